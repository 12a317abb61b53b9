"""From an entry of the catalog and a person's settings to what a launcher is told. Pure: starts and asks nothing.

    adopt(entry, settings, able=("container", "npm"), has_secret=store.has)

Chooses the way to launch, fills templates, names secrets, and says what is missing. What an entry asks of the programs
that start it (``npx``, ``uvx``, the engine) passes only if it is known to be harmless: entries are written by others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mooring.catalog import settings as rules
from mooring.catalog.entry import LAUNCH_OF, Argument, Entry, KeyValue, Launch, Package, Transport, Value
from mooring.catalog.errors import NotLaunchable
from mooring.catalog.fetching import fetching
from mooring.catalog.settings import Wanted
from mooring.catalog.template import Given, filled
from mooring.config.plan_servers import Container, Process, Remote, SecretRef
from mooring.config.schema_servers import Limits
from mooring.errors import ConfigError

_NPM = re.compile(r"(@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*", re.I | re.A)
_PYPI = re.compile(r"[a-z0-9]([\w.-]*[a-z0-9])?(\[[\w,.-]+\])?", re.I | re.A)
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]*", re.I | re.A)
_VERSION = re.compile(r"[0-9a-z][\w.+!-]*", re.I | re.A)
_REQUIREMENT = re.compile(r"[a-z0-9][\w.,<>=!~*\[\] -]*", re.I | re.A)
"""Such as ``mcp<2``: for what older servers need."""
_SETTLED = {"npm": ("-y", "--yes", "-q", "--quiet"), "pypi": (), "container": ("-i", "--interactive", "--rm", "--init")}
"""Options that change nothing here."""
_PUBLIC = {"npm": "npmjs", "pypi": "pypi"}
"""Second-level domain, below ``org``, of the public registry of each package type."""


_LIMITS = Limits()
"""What any container may use that nothing else is written about."""


def _is_public(url: str, method: Launch) -> bool:
    """Whether ``url`` says nothing, or is the public registry, which the machine's own npx or uvx asks in its way. The
    same name elsewhere may be another program."""
    host = urlsplit(url).hostname or ""
    return not url or (url.startswith("https://") and host.split(".")[-2:] == [_PUBLIC.get(method), "org"])


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """How an entry would be run."""

    entry_id: str
    name: str
    """What people call it."""
    server: str
    """Name for the server, from the id."""
    prefix: str
    method: Launch
    launch: Container | Process | Remote
    """Complete only when nothing is missing."""
    missing: tuple[Wanted, ...] = ()
    settings: dict[str, Any] = {}
    """What was given, to be kept with the mount."""


def default_prefix(entry_id: str) -> str:
    """The last segment of an id, as a prefix of tools."""
    return re.sub(r"[^a-z0-9]+", "_", entry_id.rpartition("/")[2].lower()).strip("_") or "server"


def secret_name(server: str, variable: str) -> str:
    """Under which name a secret of a server is kept in the secret store."""
    return f"{server}.{re.sub(r'[^A-Za-z0-9_.-]', '_', variable)}"


def adopt(
    entry: Entry,
    settings: Mapping[str, Any],
    *,
    able: Sequence[Launch],
    has_secret: Callable[[str], bool],
    prefix: str | None = None,
) -> Adoption:
    """How to run ``entry``.

    ``settings``: declared, non-secret inputs. ``able``: what can be started here. ``has_secret``: whether the secret
    store has a name. Raises NotLaunchable, and ConfigError for settings that are not declared or do not fit."""
    method, way = _way(entry, able)
    server = default_prefix(entry.id).replace("_", "-")
    known = rules.declared(entry, way)
    values = rules.checked(settings, known, entry.id)
    named = {name: secret_name(server, name) for name, value in known.items() if value.is_secret}
    there = {name for name, where in named.items() if has_secret(where)}
    missing = rules.wanted(known, values, {name: where for name, where in named.items() if name not in there})
    # Optional secrets that nobody set are left out; required ones stay, so that the reason of a failed start is theirs.
    kept = {name: where for name, where in named.items() if name in there or known[name].is_required}
    make = _Maker(entry, known, values, kept)
    if isinstance(way, Transport):
        launch = make.remote(way)
    elif method == "container":
        launch = make.container(way)
    else:
        launch = make.process(way, method)
    return Adoption(
        entry_id=entry.id,
        name=entry.name,
        server=server,
        prefix=default_prefix(entry.id) if prefix is None else prefix,
        method=method,
        launch=launch,
        missing=tuple(missing),
        settings=dict(settings),
    )


def _way(entry: Entry, able: Sequence[Launch]) -> tuple[Launch, Package | Transport]:
    """The first way that the entry prefers and that is possible here."""
    for package in entry.packages:
        method = LAUNCH_OF.get(package.registry_type)
        if method is not None and method in able and package.transport.type == "stdio":
            return method, package
    if "remote" in able:
        for remote in entry.remotes:
            if remote.type in ("streamable-http", "sse"):
                return "remote", remote
    if not entry.launches:
        kinds = ", ".join(dict.fromkeys(package.registry_type for package in entry.packages)) or "nothing to launch"
        raise NotLaunchable(f'"{entry.id}" cannot be started by Mooring: it comes as {kinds}.')
    raise NotLaunchable(
        f'"{entry.id}" runs as {" or ".join(entry.launches)} on stdio, which cannot be started here. '
        f"Possible here: {', '.join(able) or 'nothing'}. See: mooring doctor"
    )


class _Maker:
    """Fills one entry's templates. ``secrets``: variable to name in the store."""

    def __init__(
        self, entry: Entry, known: Mapping[str, Value], values: Mapping[str, Given], secrets: Mapping[str, str]
    ) -> None:
        self._entry = entry
        self._known = known
        self._values = values
        self._secrets = secrets

    def container(self, package: Package) -> Container:
        image = self._named(package.identifier, _IMAGE, "image")
        if package.version and not re.search(r"@|:[^/]*$", image):
            image = f"{image}:{self._named(package.version, _VERSION, 'version')}"
        variables, volumes = self._engine_options(package.runtime_arguments)
        env, secrets = self._environment((*package.environment_variables, *variables))
        return Container(
            image=image,
            args=tuple(self._arguments(package.package_arguments)),
            env=env,
            secrets=secrets,
            volumes=tuple(volume for template in (*package.volumes, *volumes) for volume in self._volumes(template)),
            network="none" if package.network == "none" else package.allowed_hosts or "open",
            memory=_LIMITS.memory,
            pids=_LIMITS.pids,
            cpus=_LIMITS.cpus,
            # Images of others write where they like; what they write is thrown away with the container.
            read_only=False,
        )

    def process(self, package: Package, method: Launch) -> Process:
        if not _is_public(package.registry_base_url, method):
            raise NotLaunchable(
                f'"{self._entry.id}" comes from {package.registry_base_url}; only public registries are used.'
            )
        env, secrets = self._environment(package.environment_variables)
        start = self._npx(package) if method == "npm" else self._uvx(package)
        argv = (*start, *self._arguments(package.package_arguments))
        return Process(argv=argv, env=env, secrets=secrets, fetch=fetching(argv))

    def remote(self, remote: Transport) -> Remote:
        url = (filled(remote.url, self._values, self._known) or [remote.url])[0]
        parts = urlsplit(url)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or parts.username is not None or not (parts.scheme == "https" or local):
            raise NotLaunchable(f'"{self._entry.id}" is reached at {url}; only https is gone to.')
        headers: dict[str, str] = {}
        secrets: dict[str, SecretRef] = {}
        for header in remote.headers:
            inside = [name for name, value in header.variables.items() if value.is_secret]
            own = header.is_secret and header.value is None
            named = [header.name] if own else inside
            if any(name not in self._secrets for name in named):
                continue
            plain = {name: value for name, value in self._known.items() if name not in named}
            text = f"{{{header.name}}}" if own else self._text(header, plain)
            if text is not None:
                headers[header.name] = text
                secrets |= {name: SecretRef("store", self._secrets[name]) for name in named}
        return Remote(
            url=url,
            transport="sse" if remote.type == "sse" else "http",
            headers=headers,
            secrets=secrets,
            auth="oauth" if self._entry.logins else None,
        )

    def _npx(self, package: Package) -> list[str]:
        for argument in package.runtime_arguments:
            self._settled(argument, "npm")
        name = self._named(package.identifier, _NPM, "npm package")
        version = f"@{self._named(package.version, _VERSION, 'version')}" if package.version else ""
        return ["npx", "-y", name + version]

    def _uvx(self, package: Package) -> list[str]:
        name = self._named(package.identifier, _PYPI, "PyPI package")
        version = f"=={self._named(package.version, _VERSION, 'version')}" if package.version else ""
        options: list[str] = []
        command = re.sub(r"\[.*", "", name)
        for argument in package.runtime_arguments:
            if argument.type == "named" and argument.name in ("--with", "--python") and argument.value:
                options += [argument.name, self._named(argument.value, _REQUIREMENT, argument.name)]
            elif argument.type == "named" and argument.name == "--from" and argument.value:
                self._named(argument.value, _REQUIREMENT, argument.name)
                if re.split(r"[^\w.-]", argument.value)[0] != command:
                    raise NotLaunchable(f'"{self._entry.id}" runs another package than it names: {argument.value}')
            elif argument.type == "positional" and argument.value:
                command = self._named(argument.value, _PYPI, "command")
            else:
                self._settled(argument, "pypi")
        return ["uvx", *options, "--from", name + version, command]

    def _engine_options(self, arguments: Iterable[Argument]) -> tuple[list[KeyValue], list[str]]:
        """Variables and volumes that an image's entry gives as options of the engine."""
        variables: list[KeyValue] = []
        volumes: list[str] = []
        for argument in arguments:
            if argument.name in ("-e", "--env") and argument.value and "=" in argument.value:
                name, _, template = argument.value.partition("=")
                inner = {key: value for key, value in argument.variables.items() if f"{{{key}" in template}
                variables.append(KeyValue(name=name, value=template, variables=inner))
            elif argument.name in ("-v", "--volume") and argument.value:
                volumes.append(argument.value)
            elif argument.name == "--mount" and argument.value:
                volumes.append(self._mount(argument.value))
            else:
                self._settled(argument, "container")
        return variables, volumes

    def _mount(self, written: str) -> str:
        parts: dict[str, str] = {}
        for part in written.split(","):
            key, _, value = part.partition("=")
            parts[key] = value
        source, target = parts.get("src") or parts.get("source"), parts.get("dst") or parts.get("target")
        if not source or not target:
            raise NotLaunchable(f'"{self._entry.id}" asks for a mount that is not understood: {written}')
        return f"{source}:{target}" + (":ro" if "readonly" in parts or "ro" in parts else "")

    def _settled(self, argument: Argument, method: str) -> None:
        """Raises NotLaunchable for an option that is not known to change nothing."""
        word = argument.name or argument.value or ""
        if word not in _SETTLED[method]:
            raise NotLaunchable(f'"{self._entry.id}" asks for the option {word}, which Mooring does not pass on.')

    def _environment(self, variables: Iterable[KeyValue]) -> tuple[dict[str, str], dict[str, SecretRef]]:
        env: dict[str, str] = {}
        secrets: dict[str, SecretRef] = {}
        for variable in variables:
            inside = [name for name, value in variable.variables.items() if value.is_secret]
            if inside and variable.value != f"{{{inside[0]}}}":
                raise NotLaunchable(
                    f'"{self._entry.id}" makes {variable.name} of a secret and more; only a whole one can be given.'
                )
            asked = inside[0] if inside else variable.name
            if asked in self._secrets:
                secrets[variable.name] = SecretRef("store", self._secrets[asked])
            elif not inside and not variable.is_secret and (text := self._text(variable, self._known)) is not None:
                env[variable.name] = text
        return env, secrets

    def _arguments(self, arguments: Iterable[Argument]) -> list[str]:
        found: list[str] = []
        for argument in arguments:
            if argument.is_secret or any(value.is_secret for value in argument.variables.values()):
                raise NotLaunchable(f'"{self._entry.id}" wants a secret among its arguments, where others see it.')
            if rules.is_flag(argument):
                found.append(argument.name)
                continue
            texts = self._texts(argument)
            if argument.type == "positional" or not argument.name:
                found += texts
            elif argument.format == "boolean":
                found += [argument.name] if texts == ["true"] else []
            else:
                found += (word for text in texts for word in _flag(argument.name, text))
        return found

    def _texts(self, part: KeyValue | Argument) -> list[str]:
        """What a part becomes; nothing when nobody gave what it needs."""
        if part.value is not None:
            return filled(part.value, self._values, self._known) or []
        given = self._values.get(rules.setting_name(part))
        if given is None:
            return []
        if isinstance(given, tuple):
            return list(given)
        # A default may have variables in it; what somebody gave stands as it is.
        return filled(given, self._values, part.variables) or [] if given == part.default else [given]

    def _text(self, part: KeyValue, known: Mapping[str, Value]) -> str | None:
        texts = self._texts(part) if part.value is None else filled(part.value, self._values, known) or []
        return ",".join(texts) if texts else None

    def _volumes(self, template: str) -> list[str]:
        """A volume's texts. A setting in it may be a path, and nothing that would mount something else."""
        for name, value in self._values.items():
            if f"{{{name}" not in template:
                continue
            for path in value if isinstance(value, tuple) else (value,):
                if not path.startswith("/") or ":" in path or "," in path:
                    raise ConfigError(f'The setting "{name}" is "{path}"; it needs to be an absolute path without ":".')
        return filled(template, self._values, self._known) or []

    def _named(self, written: str, pattern: re.Pattern[str], what: str) -> str:
        if not pattern.fullmatch(written):
            raise NotLaunchable(f'"{self._entry.id}" names no valid {what}: {written!r}')
        return written


def _flag(name: str, text: str) -> tuple[str, ...]:
    return (name + text,) if name.endswith("=") else (name, text)
