"""From a server's table and one workspace's kwargs to what a launcher is told. Pure; called by ``config.resolve``."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Callable, Iterator, Mapping

import msgspec

from mooring.config import kwargs as kw
from mooring.config import schema_servers
from mooring.config.fault import Fault
from mooring.config.plan_servers import Container, Launch, OAuth, Plugin, Process, Remote, Sandbox, SecretRef
from mooring.config.plugged import PluggedCommand, PluggedImage, Unplugged
from mooring.config.schema_agents import Agent
from mooring.config.schema_base import Kwarg, Path
from mooring.config.schema_servers import (
    AnyServer,
    CommandServer,
    ImageServer,
    Listening,
    PluginServer,
    Secret,
    Started,
    UrlServer,
)

READ_ONLY = ":ro"
"""What follows a path that may only be read."""


class Site(msgspec.Struct, frozen=True):
    """Where a server is defined: ``path`` in the configuration, ``folder`` of the file, ``user``'s home folder."""

    path: Path
    folder: str
    user: str

    def file(self, written: str) -> str:
        """A path as written, absolute."""
        if written == "~" or written.startswith("~/"):
            written = self.user + written[1:]
        return os.path.normpath(os.path.join(self.folder, written))


def templates(server: AnyServer) -> Iterator[str]:
    """Every text of ``server`` that may hold placeholders."""
    match server:
        case UrlServer():
            yield from (server.url, *server.headers.values())
        case CommandServer():
            yield from (*server.args, *server.env.values(), server.cwd or "", *_paths(server))
        case ImageServer():
            yield from (*server.args, *server.env.values(), *server.volumes)
        case PluginServer():
            yield from ()


def build(server: AnyServer, kwargs: Mapping[str, Kwarg], site: Site, unused: Callable[[str], Path]) -> Launch:
    """What to start for ``server`` with ``kwargs`` (defaults included, and ``workspace`` where it is used).

    ``unused`` gives the place of a kwarg that fills nothing. Raises Fault.
    """
    used = kw.placeholders(templates(server))
    for name in sorted(used & server.secrets.keys() - kwargs.keys()):
        if not isinstance(server, UrlServer) or name in kw.placeholders([server.url]):
            raise Fault(f"{{{name}}} is a secret; only headers of a remote can be filled with one", site.path)
    if not server.enabled:
        return _Builder(server, kwargs, site, used - kwargs.keys()).build()
    match server:
        case UrlServer():
            builder = _Builder(server, kwargs, site, {"session"} | (server.secrets.keys() - kwargs.keys()))
            for key in sorted(kwargs.keys() - used):
                raise Fault(f'"{key}" fills nothing: a server with url has no flags', unused(key))
        case CommandServer(port=int()):
            builder = _Builder(server, kwargs, site, {"session", "port"})
        case ImageServer(port=int(port)):
            builder = _Builder(server, {**kwargs, "port": port} if "port" in used else kwargs, site, {"session"})
        case _:
            builder = _Builder(server, kwargs, site, {"session"})
    return builder.build()


def agent(written: Agent, site: Site) -> Process | Remote | None:
    """The program or the endpoint of an agent; None when it runs in the process of whoever runs it."""
    secrets = {name: _ref(secret, site) for name, secret in written.secrets.items()}
    if written.type == "ag_ui":
        return Remote(written.url or "", headers=written.headers, secrets=secrets)
    programs = {"claude_code": "claude", "codex": "codex"}
    command = written.command or programs.get(written.type)
    if command is None or written.type == "native":
        return None
    program, *args = (command,) if isinstance(command, str) else command
    argv = (site.file(program) if "/" in program else program, *args)
    cwd = None if written.cwd is None else site.file(written.cwd)
    return Process(argv=argv, env=written.env, secrets=secrets, cwd=cwd)


class _Builder:
    """Fills one server's texts; ``keep`` are the placeholders that the launcher fills."""

    def __init__(self, server: AnyServer, kwargs: Mapping[str, Kwarg], site: Site, keep: set[str]) -> None:
        self.server = server
        self.site = site
        self.filling = kw.Filling(kwargs, server.join, keep)
        used = kw.placeholders(templates(server))
        self.flags = kw.flags({key: value for key, value in kwargs.items() if key not in used}, server.join)

    def build(self) -> Launch:
        match self.server:
            case UrlServer() as server:
                return self._remote(server)
            case CommandServer() as server:
                return self._process(server)
            case ImageServer() as server:
                return self._container(server)
            case PluginServer() as server:
                why = server.why if isinstance(server, Unplugged) else f'the plugin "{server.plugin}" is not installed'
                return Plugin(server.plugin, why)

    def _remote(self, server: UrlServer) -> Remote:
        auth = _ref(server.auth, self.site) if isinstance(server.auth, Secret) else server.auth
        headers = self._table("headers", server.headers)
        secret = server.oauth.client_secret
        client = OAuth(
            client_id=server.oauth.client_id or "",
            client_secret=None if secret is None else _ref(secret, self.site),
            scopes=server.oauth.scopes,
            redirect_port=server.oauth.redirect_port or 0,
        )
        return Remote(self._text("url", server.url), server.transport, headers, self._secrets(), auth, client)

    def _process(self, server: CommandServer) -> Process:
        command = self.site.file(server.command) if "/" in server.command else server.command
        transport, path = _endpoint(server)
        return Process(
            argv=(command, *self._args(server)),
            env=self._table("env", server.env),
            secrets=self._secrets(),
            credentials=self._credentials(server),
            cwd=None if server.cwd is None else self.site.file(self._text("cwd", server.cwd)),
            port=server.port,
            transport=transport,
            path=path,
            sandbox=self._sandbox(server),
            source=server.source if isinstance(server, PluggedCommand) else "",
            environment=server.environment if isinstance(server, PluggedCommand) else None,
        )

    def _sandbox(self, server: CommandServer) -> Sandbox | None:
        if not server.sandbox:
            return None
        limits = server.sandbox if isinstance(server.sandbox, schema_servers.Sandbox) else schema_servers.Sandbox()
        place = (*self.site.path, "sandbox", "paths")
        paths = [self.filling.fill(path, (*place, number)) for number, path in enumerate(limits.paths)]
        return Sandbox(
            writable=tuple(self.site.file(path) for path in paths if not path.endswith(READ_ONLY)),
            readable=tuple(self.site.file(path.removesuffix(READ_ONLY)) for path in paths if path.endswith(READ_ONLY)),
            network=server.network,
            memory=limits.memory,
            pids=limits.pids,
        )

    def _container(self, server: ImageServer) -> Container:
        transport, path = _endpoint(server)
        return Container(
            image=server.image,
            dockerfile=None if server.dockerfile is None else self.site.file(server.dockerfile),
            args=self._args(server),
            env=self._table("env", server.env),
            secrets=self._secrets(),
            credentials=self._credentials(server),
            port=server.port,
            ports=server.ports,
            transport=transport,
            path=path,
            pull=server.pull,
            volumes=tuple(self._volume(volume) for volume in self._texts("volumes", server.volumes)),
            network=server.network,
            memory=server.limits.memory,
            pids=server.limits.pids,
            cpus=server.limits.cpus,
            read_only=server.read_only,
            base=server.base if isinstance(server, PluggedImage) else "",
            source=server.source if isinstance(server, PluggedImage) else "",
        )

    def _text(self, field: str, template: str) -> str:
        return self.filling.fill(template, (*self.site.path, field))

    def _texts(self, field: str, templates: tuple[str, ...]) -> tuple[str, ...]:
        place = (*self.site.path, field)
        return tuple(self.filling.fill(template, (*place, number)) for number, template in enumerate(templates))

    def _table(self, field: str, templates: Mapping[str, str]) -> dict[str, str]:
        place = (*self.site.path, field)
        return {name: self.filling.fill(template, (*place, name)) for name, template in templates.items()}

    def _args(self, server: Started) -> tuple[str, ...]:
        return self._texts("args", server.args) + self.flags

    def _volume(self, volume: str) -> str:
        source, colon, rest = volume.partition(":")
        path = "/" in source or source.startswith((".", "~"))
        return (self.site.file(source) if path else source) + colon + rest

    def _secrets(self) -> dict[str, SecretRef]:
        return {name: _ref(secret, self.site) for name, secret in self.server.secrets.items()}

    def _credentials(self, server: Listening) -> dict[str, SecretRef] | None:
        if server.credentials is None:
            return None
        return {name: _ref(secret, self.site) for name, secret in server.credentials.items()}


def _ref(secret: Secret, site: Site) -> SecretRef:
    if secret.file is None:
        return secret.ref
    return msgspec.structs.replace(secret.ref, where=site.file(secret.file))


def _paths(server: CommandServer) -> tuple[str, ...]:
    return server.sandbox.paths if isinstance(server.sandbox, schema_servers.Sandbox) else ()


def _endpoint(server: Listening) -> tuple[str, str]:
    """Transport and path, with defaults."""
    transport = server.transport or ("stdio" if server.port is None else "http")
    return transport, server.path or ("/sse" if transport == "sse" else "/mcp")


def digest(launch: Launch, fingerprints: Mapping[SecretRef, str | None]) -> str:
    """The spec digest: everything the process would see; of a secret only its fingerprint, wherever it comes from."""
    seen = msgspec.to_builtins(launch)
    seen.pop("oauth", None)  # it is how one logs in, not whom one talks to
    for field in ("source", "environment", "base"):
        if not seen.get(field):
            seen.pop(field, None)  # only plugins bring these
    for field in ("secrets", "credentials"):
        if refs := getattr(launch, field, None):
            seen[field] = {name: [fingerprints.get(ref), ref.as_file] for name, ref in refs.items()}
    auth = getattr(launch, "auth", None)
    if isinstance(auth, SecretRef):
        seen["auth"] = [fingerprints.get(auth)]
    return hashlib.sha256(kw.canonical(seen).encode()).hexdigest()
