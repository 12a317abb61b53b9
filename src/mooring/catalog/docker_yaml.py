"""An entry of Docker's catalog, ``server.yaml`` with ``tools.json`` beside it, to an entry and back. Pure.

Docker's templates ``{{server.setting|filter}}`` become ``{setting|filter}``, and ``${VARIABLE}`` in headers
``{VARIABLE}``; ``catalog.template`` fills both kinds. Source: https://github.com/docker/mcp-registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mooring.catalog.entry import (
    Argument,
    Entry,
    Icon,
    KeyValue,
    Login,
    Package,
    Repository,
    ToolNote,
    Transport,
    Value,
    entry_id,
)
from mooring.catalog.residue import applied, plain, residue
from mooring.catalog.server_json import without_nulls

SERVER, TOOLS = "server.yaml", "tools.json"
"""The two documents of an entry, by the name of their file."""
OWN_IMAGES = "docker.io/mcp/"
"""Images that Docker builds itself."""

_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*((?:\|[^{}]*)?)\}\}")
_DOLLAR = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Json = dict[str, Any]


class _Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    env: str = ""
    example: str = ""
    description: str = ""
    required: bool = True


class _Env(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    example: Any = ""
    value: str = ""
    description: str = ""


class _About(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str = ""
    description: str = ""
    icon: str = ""


class _Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    category: str = ""
    tags: tuple[str, ...] = ()


class _Source(msgspec.Struct, frozen=True, omit_defaults=True):
    project: str = ""
    directory: str = ""


class _Run(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    command: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    env: dict[str, str] = {}
    user: str = ""
    disable_network: bool = False
    allow_hosts: tuple[str, ...] = ()


class _Config(msgspec.Struct, frozen=True, omit_defaults=True):
    secrets: tuple[_Secret, ...] = ()
    env: tuple[_Env, ...] = ()
    parameters: Json = {}


class _Remote(msgspec.Struct, frozen=True, omit_defaults=True):
    transport_type: str = "streamable-http"
    url: str = ""
    headers: dict[str, str] = {}


class _Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """The members that an entry has a word for."""

    name: str
    image: str = ""
    type: str = ""
    meta: _Meta = _Meta()
    about: _About = _About()
    source: _Source = _Source()
    run: _Run = _Run()
    config: _Config = _Config()
    remote: _Remote = _Remote()
    oauth: tuple[Login, ...] = ()
    tools: tuple[Json, ...] = ()


def parse(server: Json, source: str, tools: list[Json] | None = None) -> Entry:
    """The entry of a ``server.yaml`` and, where there is one, a ``tools.json``. Raises ValueError when it is none."""
    found = msgspec.convert(without_nulls(server), _Server)
    if not found.name.strip():
        raise ValueError("the name is empty")
    image = full_image(found.image) if found.image else ""
    entry = Entry(
        id=entry_id(source, found.name),
        source=source,
        name=found.about.title or found.name,
        own_name=found.name,
        description=found.about.description,
        categories=(found.meta.category,) if found.meta.category else (),
        tags=found.meta.tags,
        official=image.startswith(OWN_IMAGES),
        repository=_repository(found.source),
        icons=(Icon(src=found.about.icon),) if found.about.icon else (),
        packages=(_package(found, image),) if image else (),
        remotes=(_remote(found),) if found.remote.url else (),
        inputs=dict(_inputs(found.config.parameters)),
        logins=found.oauth,
        tools=tuple(_tool(tool) for tool in (*found.tools, *(tools or ())) if isinstance(tool.get("name"), str)),
        form="server.yaml",
    )
    documents: Json = {SERVER: server} if tools is None else {SERVER: server, TOOLS: tools}
    return msgspec.structs.replace(entry, residue=residue(_rendered(entry), documents))


def render(entry: Entry) -> Json:
    """The documents of an entry by file name; of an entry that came from Docker's catalog, those very documents."""
    return applied(_rendered(entry), entry.residue if entry.form == "server.yaml" else ())


def full_image(image: str) -> str:
    """An image with its registry's host: Docker's own is meant where none is named."""
    host, slash, _ = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _short_image(image: str) -> str:
    return image.removeprefix("docker.io/library/").removeprefix("docker.io/")


def _repository(source: _Source) -> Repository | None:
    if not source.project:
        return None
    host = "github" if source.project.startswith("https://github.com/") else ""
    return Repository(url=source.project, source=host, subfolder=source.directory)


def _package(found: _Server, image: str) -> Package:
    secrets = (
        KeyValue(
            name=secret.env or secret.name,
            is_secret=True,
            is_required=secret.required,
            placeholder=secret.example,
            description=secret.description,
        )
        for secret in found.config.secrets
    )
    plain = (_environment(env, found) for env in found.config.env)
    fixed = (KeyValue(name=name, value=_own(value, found.name)) for name, value in found.run.env.items())
    return Package(
        registry_type="oci",
        identifier=image,
        package_arguments=tuple(Argument(value=_own(word, found.name)) for word in found.run.command),
        environment_variables=(*secrets, *plain, *fixed),
        volumes=tuple(_own(volume, found.name) for volume in found.run.volumes),
        network="none" if found.run.disable_network else "open",
        allowed_hosts=found.run.allow_hosts,
        user=_own(found.run.user, found.name),
    )


def _environment(env: _Env, found: _Server) -> KeyValue:
    value = _own(env.value, found.name) if env.value else None
    example = env.example if isinstance(env.example, str) else ""
    return KeyValue(name=env.name, value=value, placeholder=example, description=env.description)


def _remote(found: _Server) -> Transport:
    variables = {
        secret.env: Value(
            is_secret=True, is_required=secret.required, placeholder=secret.example, description=secret.description
        )
        for secret in found.config.secrets
        if secret.env
    }

    def header(name: str, text: str) -> KeyValue:
        named = {variable: variables[variable] for variable in _DOLLAR.findall(text) if variable in variables}
        value = _DOLLAR.sub(r"{\1}", text)
        return KeyValue(name=name, value=value, is_secret=bool(named), variables=named)

    return Transport(
        type=found.remote.transport_type,
        url=found.remote.url,
        headers=tuple(header(name, text) for name, text in found.remote.headers.items()),
    )


def _inputs(schema: Json, prefix: str = "", needed: bool = True) -> Iterator[tuple[str, Value]]:
    """The settings of a JSON Schema of objects; a member of an inner object is ``outer.inner``."""
    properties: Json = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    for name, member in properties.items():
        must = needed and name in required
        if member.get("type") == "object" and "properties" in member:
            yield from _inputs(member, f"{prefix}{name}.", must)
            continue
        yield (
            prefix + name,
            Value(
                description=str(member.get("description") or member.get("title") or ""),
                is_required=must,
                format=_FORMATS.get(str(member.get("type")), "string"),
                # A default of a required setting is an example: a path on its writer's machine, say.
                default=None if must else _text(member.get("default")),
                placeholder=_text(member.get("default") if must else member.get("example")) or "",
                choices=tuple(map(str, member.get("enum", ()))),
            ),
        )


_FORMATS = {"number": "number", "integer": "number", "boolean": "boolean", "array": "list"}
_TYPES = {"number": "number", "boolean": "boolean", "list": "array"}


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _tool(tool: Json) -> ToolNote:
    more = {key: value for key, value in tool.items() if key not in ("name", "description")}
    return ToolNote(name=tool["name"], description=str(tool.get("description") or ""), more=more)


def _own(template: str, server: str) -> str:
    """Docker's template in our spelling: the server's own name in front of a setting goes."""
    return _TEMPLATE.sub(lambda match: f"{{{match[1].removeprefix(server + '.')}{match[2].strip()}}}", template)


def _theirs(template: str, server: str, inputs: dict[str, Value]) -> str:
    """The reverse of ``_own``, as far as names tell; what it misses is residue."""

    def back(match: re.Match[str]) -> str:
        return f"{{{{{server}.{match[1]}{match[2]}}}}}" if match[1] in inputs else match[0]

    return re.sub(r"\{([^{}|]+)((?:\|[^{}]*)?)\}", back, template)


def _rendered(entry: Entry) -> Json:
    package = entry.packages[0] if entry.packages else None
    remote = entry.remotes[0] if entry.remotes else None
    name = entry.own_name or entry.id
    server = _Server(
        name=name,
        image=_short_image(package.identifier) if package else "",
        type="server" if package else "remote" if remote else "poci",
        meta=_Meta(entry.categories[0] if entry.categories else "", entry.tags),
        about=_About(entry.name, entry.description, entry.icons[0].src if entry.icons else ""),
        source=_Source(entry.repository.url, entry.repository.subfolder) if entry.repository else _Source(),
        run=_run(entry, package, name) if package else _Run(),
        config=_config(entry, package, remote, name),
        remote=_their_remote(remote) if remote else _Remote(),
        oauth=entry.logins,
        tools=() if package or remote else tuple(map(_their_tool, entry.tools)),
    )
    documents: Json = {SERVER: plain(server)}
    if entry.tools and (package or remote):
        documents[TOOLS] = [_their_tool(tool) for tool in entry.tools]
    return documents


def _run(entry: Entry, package: Package, name: str) -> _Run:
    return _Run(
        command=tuple(_theirs(word.value or "", name, entry.inputs) for word in package.package_arguments),
        volumes=tuple(_theirs(volume, name, entry.inputs) for volume in package.volumes),
        user=_theirs(package.user, name, entry.inputs),
        disable_network=package.network == "none",
        allow_hosts=package.allowed_hosts,
    )


def _config(entry: Entry, package: Package | None, remote: Transport | None, name: str) -> _Config:
    named: dict[str, Value] = {}
    if package:
        named = {variable.name: variable for variable in package.environment_variables if variable.is_secret}
    elif remote:
        named = {key: value for header in remote.headers for key, value in header.variables.items()}
    plain = [variable for variable in package.environment_variables if not variable.is_secret] if package else []
    return _Config(
        secrets=tuple(
            _Secret(f"{name}.{key.lower()}", key, value.placeholder, value.description, value.is_required)
            for key, value in named.items()
        ),
        env=tuple(
            _Env(
                variable.name,
                variable.placeholder,
                _theirs(variable.value or "", name, entry.inputs),
                variable.description,
            )
            for variable in plain
        ),
        parameters=_schema(entry.inputs),
    )


def _schema(inputs: dict[str, Value]) -> Json:
    if not inputs:
        return {}
    properties: Json = {}
    for name, value in inputs.items():
        member: Json = {"type": _TYPES.get(value.format, "string")}
        if value.description:
            member["description"] = value.description
        if value.default is not None:
            member["default"] = value.default
        if value.choices:
            member["enum"] = list(value.choices)
        properties[name] = member
    schema: Json = {"type": "object", "properties": properties}
    if required := [name for name, value in inputs.items() if value.is_required]:
        schema["required"] = required
    return schema


def _their_remote(remote: Transport) -> _Remote:
    headers = {header.name: re.sub(r"\{(\w+)\}", r"${\1}", header.value or "") for header in remote.headers}
    return _Remote(remote.type, remote.url, headers)


def _their_tool(tool: ToolNote) -> Json:
    return {"name": tool.name, "description": tool.description, **tool.more}
