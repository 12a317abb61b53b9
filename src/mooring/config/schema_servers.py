"""The tables of what can be run: ``[mcp_servers.NAME]`` and what stands in it. Pure; see ``config.schema``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mooring.config.durations import Limit, Seconds
from mooring.config.plan_servers import SecretRef
from mooring.config.schema_base import Count, Kwarg, Port, Table
from mooring.nouns import Sharing

Memory = Annotated[str, msgspec.Meta(pattern="^([0-9]+[bkmgBKMG]?)?$")]
Transport = Literal["stdio", "http", "sse"]


class Secret(Table, frozen=True, kw_only=True, rename={"as_": "as"}):
    """A reference to a secret: one of `env`, `file`, `keyring`, `command`, `store` and `plugin` says where the value
    is."""

    env: str | None = None
    """Environment variable of the daemon."""
    file: str | None = None
    """File whose content, without the last line break, is the value; neither group nor others may read it."""
    keyring: str | None = None
    """Entry of the system keyring: `service/user`, or a name that `mooring secret set` made."""
    command: tuple[str, ...] | None = None
    """Program and arguments, run without a shell for at most 10 s; what it prints is the value."""
    store: str | None = None
    """Name given to `mooring secret set`."""
    plugin: str | None = None
    """`NAME:WHERE`: what a plugin finds; `NAME` is a place that it brings."""
    optional: bool = False
    """Missing is a warning; without it the server cannot be started."""
    as_: Literal["env", "file"] = "env"
    """`file`: the server finds the value in a file named by `<NAME>_FILE`."""

    def __post_init__(self) -> None:
        kinds = ("env", "file", "keyring", "command", "store", "plugin")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("a secret reference needs exactly one of env, file, keyring, command, store and plugin")
        if not getattr(self, given[0]):
            raise ValueError(f"{given[0]} of a secret reference is empty")
        if self.plugin is not None and not all(self.plugin.partition(":")):
            raise ValueError('plugin of a secret reference is written "NAME:WHERE"')

    @property
    def ref(self) -> SecretRef:
        """The same reference in the form the plan uses."""
        kinds = {
            "env": self.env,
            "file": self.file,
            "keyring": self.keyring,
            "command": self.command,
            "plugin": self.plugin,
        }
        for kind, where in kinds.items():
            if where is not None:
                return SecretRef(kind, where, self.optional, self.as_ == "file")
        return SecretRef("store", self.store or "", self.optional, self.as_ == "file")


class Timeouts(Table, frozen=True, kw_only=True):
    """Limits for the steps of a server's life."""

    start: Limit | None = None
    """From start until the server speaks MCP; default `gateway.start_timeout`."""
    call: Limit | None = None
    """Silence within one call; progress restarts it; default `gateway.call_timeout`."""
    look_up: Limit = Limit(30)
    """Finding the values of its secrets."""
    pull: Limit = Limit(600)
    """Pulling or building an image, resolving a package."""
    initialize: Limit = Limit(30)
    """The first MCP exchange."""
    discover: Limit = Limit(30)
    """Listing what the server offers."""
    close: Limit = Limit(5)
    """From end of input until the server is killed."""
    ready: Limit = Limit(10)
    """SMCP: from start until the server asks for its credentials."""
    credentials: Limit = Limit(5)
    """SMCP: from sending the credentials until the server has accepted them."""


class Tools(Table, frozen=True, kw_only=True):
    """Which tools are offered: globs on the server's own tool names."""

    allow: tuple[str, ...] = ("*",)
    """Tools that are offered."""
    deny: tuple[str, ...] = ()
    """Tools that are not, whatever `allow` says."""
    confirm: tuple[str, ...] = ()
    """Tools that a person must approve, call by call."""


class Limits(Table, frozen=True, kw_only=True):
    """What a container may use."""

    memory: Memory = "1g"
    """Such as `512m` or `2g`, swap included; empty: no limit."""
    pids: Count = 256
    """Processes and threads; 0: no limit."""
    cpus: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Processors, once the server answers: while it starts it may use all. 0: no limit."""


class Server(Table, frozen=True, kw_only=True):
    """Keys that every server takes."""

    enabled: bool = True
    """`false`: it stays in the file and is not offered."""
    defaults: dict[str, Kwarg] = {}
    """Kwargs for workspaces that do not set them."""
    join: dict[str, str] = {}
    """Kwarg to separator: its list becomes one value; without it the flag is repeated."""
    secrets: dict[str, Secret] = {}
    """Environment variable to secret reference. For a remote: a name to use as `{NAME}` in `headers`."""
    tools: Tools = Tools()
    """Filter on the server's tools."""
    trust: Literal["trusted", "untrusted"] = "untrusted"
    """Whether what the server says about itself may lower a guard."""
    sharing: Sharing = "shared"
    """Who shares one running instance: everybody, one workspace, or one session."""
    dialogue: Literal["call", "session"] = "call"
    """`session`: each session gets its own instance, which may ask that session's client questions at any time."""
    spare: Count = 0
    """Processes kept started in advance, for the next starts of this server; not for a `url`."""
    timeouts: Timeouts = Timeouts()
    """Limits for the steps of its life."""
    idle_timeout: Seconds | None = None
    """Time without use until it is stopped; 0: never; default `gateway.idle_timeout`."""


class Started(Server, frozen=True, kw_only=True):
    """Keys of servers that Mooring starts."""

    args: tuple[str, ...] = ()
    """Arguments; `{name}` is filled with the kwarg of that name, `{port}`, `{workspace}` or `{session}`."""
    env: dict[str, str] = {}
    """Environment variables that are not secret."""


class Listening(Started, frozen=True, kw_only=True):
    """Keys of servers that speak on stdio, or, with `port`, HTTP."""

    port: Port | None = None
    """The server speaks HTTP on this port; for a command `{port}` is a free one."""
    transport: Transport | None = None
    """`stdio` without `port`, else `http` (the default) or `sse`."""
    path: str | None = None
    """Path of its endpoint with `port`; default `/mcp`, for `sse` `/sse`."""
    credentials: dict[str, Secret] | None = None
    """Makes it an SMCP server, even when empty: these go over its stdin before MCP begins, and nowhere else."""

    def __post_init__(self) -> None:
        if self.port is None and self.transport in ("http", "sse"):
            raise ValueError(f'transport = "{self.transport}" needs a port')
        if self.port is not None and self.transport == "stdio":
            raise ValueError('a server with a port speaks "http" or "sse", not "stdio"')
        if self.port is None and self.path is not None:
            raise ValueError("path is for servers with a port")
        if self.port is not None and self.credentials is not None:
            raise ValueError("credentials go over stdin: an SMCP server has no port")
        if any(secret.as_ == "file" for secret in (self.credentials or {}).values()):
            raise ValueError('credentials go over stdin: as = "file" is for secrets')


class Sandbox(Table, frozen=True, kw_only=True):
    """What a confined process may see and use, besides the system's programs, which it can read."""

    paths: tuple[str, ...] = ()
    """Folders and files it may change, or with `:ro` behind them only read; relative to this file."""
    memory: Memory = ""
    """Such as `512m` or `1g`, swap included; empty: no limit. Needs root."""
    pids: Count = 0
    """Processes and threads; 0: no limit. Needs root."""


class CommandServer(Listening, frozen=True, kw_only=True):
    """A process: the server has `command`."""

    command: str
    """Program to run, found on PATH; with a slash, relative to this file."""
    cwd: str | None = None
    """Folder to run in, relative to this file."""
    sandbox: bool | Sandbox = False
    """Run it confined: it reads programs and libraries, has a home and a `/tmp` of its own, and nothing else but what
    the table names. Linux, with bubblewrap."""
    network: Literal["open", "none"] | tuple[str, ...] = "open"
    """With `sandbox`: `open`, `none`, or the only `host:port` it may reach, by the proxy in `HTTPS_PROXY`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network != "open" and not self.sandbox:
            raise ValueError("network is for servers in a sandbox: add sandbox = true")


class ImageServer(Listening, frozen=True, kw_only=True):
    """A container: the server has `image`."""

    image: str
    """Image to run; with `dockerfile` the name of what is built."""
    dockerfile: str | None = None
    """Build the image from this file, relative to this one, instead of pulling it."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When to pull the image."""
    ports: tuple[Port, ...] = ()
    """Further ports of the container; each gets a free one on this machine."""
    volumes: tuple[str, ...] = ()
    """`source:target[:options]`; a source with a slash is a path, relative to this file, else a named volume."""
    network: Literal["open", "none"] | tuple[str, ...] = "open"
    """`open`, `none`, or the only `host:port` it may reach."""
    limits: Limits = Limits()
    """What it may use."""
    read_only: bool = True
    """Its root file system cannot be written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dockerfile is not None and self.pull != "missing":
            raise ValueError("an image with a dockerfile is built, not pulled: leave out pull")


class OAuth(Table, frozen=True, kw_only=True):
    """How to log in at a remote; without it Mooring registers itself as a client and asks for what the server names."""

    client_id: str | None = None
    """Id of a client that was registered by hand, or the `https://` address of a client metadata document."""
    client_secret: Secret | None = None
    """Secret of a client that was registered by hand."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for besides those that the server names."""
    redirect_port: Port | None = None
    """Port of the redirect address `http://localhost:PORT/callback`; without it any free one."""

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret needs a client_id")


class UrlServer(Server, frozen=True, kw_only=True):
    """A remote: the server has `url`."""

    url: str
    """Its endpoint."""
    headers: dict[str, str] = {}
    """HTTP headers to send; `{NAME}` is filled with that secret at the moment of connecting."""
    auth: Literal["oauth"] | Secret | None = None
    """`oauth` (then: `mooring auth login SERVER`), or a secret reference that is sent as bearer token."""
    oauth: OAuth = OAuth()
    """How to log in, with `auth = "oauth"`."""
    transport: Literal["http", "sse"] = "http"
    """Streamable HTTP, or the older SSE."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://", "{")):
            raise ValueError("url needs to begin with http:// or https://")
        if self.auth != "oauth" and self.oauth != OAuth():
            raise ValueError('oauth is for servers with auth = "oauth"')
        if self.spare:
            raise ValueError("a remote server is not started here: leave out spare")


class PluginServer(Server, frozen=True, kw_only=True):
    """A server of an installed plugin: the server has `plugin`. Such a server is there without a table; one with its
    name changes single fields of it."""

    plugin: str
    """Name of the plugin."""
    server: str | None = None
    """Which of the plugin's servers, where it has several and this one is named otherwise."""
    args: tuple[str, ...] | None = None
    """Arguments, instead of the plugin's."""
    env: dict[str, str] = {}
    """Environment variables that are not secret, added to the plugin's."""
    run: Literal["container", "host"] | None = None
    """Where it runs; default what the plugin says, else `run` of `[plugins]`."""
    image: str | None = None
    """Image to run it in, instead of the plugin's or that of `[plugins]`."""
    volumes: tuple[str, ...] = ()
    """In a container: see servers with image."""
    network: Literal["open", "none"] | tuple[str, ...] = "open"
    """In a container: `open`, `none`, or the only `host:port` it may reach."""
    limits: Limits = Limits()
    """In a container: what it may use."""


AnyServer = CommandServer | ImageServer | UrlServer | PluginServer
SERVER_KINDS: dict[str, type[AnyServer]] = {
    "command": CommandServer,
    "image": ImageServer,
    "url": UrlServer,
    "plugin": PluginServer,
}
"""The key that makes a server one of its kind."""
