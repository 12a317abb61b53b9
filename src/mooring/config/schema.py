"""What may be written in ``mooring.toml``: one struct a table, one docstring a key. Pure.

``config.decode`` fills these structs, ``config.resolve`` gives them meaning, ``config.reference`` prints the docstrings
as ``docs/configuration.md``. Nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from mooring.config.durations import Limit, Seconds
from mooring.config.plan import SecretRef
from mooring.errors import ConfigError
from mooring.nouns import Sharing

Scalar = bool | int | float | str
Kwarg = Scalar | tuple[Scalar, ...]
"""A setting that a workspace gives a server."""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Memory = Annotated[str, msgspec.Meta(pattern="^([0-9]+[bkmgBKMG]?)?$")]
Transport = Literal["stdio", "http", "sse"]
Via = Literal["mooring", "direct"]
Path = tuple[str | int, ...]
"""Where something stands in the configuration: keys and list positions from the top."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table that takes exactly the keys named here."""


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


class MountTable(Table, frozen=True, kw_only=True):
    """How a workspace sees a server."""

    prefix: str | None = None
    """First part of its tools' names; default the server's name with `-` as `_`."""
    tools: Tools = Tools()
    """Filter for this workspace; a tool must pass the server's too."""
    sharing: Sharing | None = None
    """Who shares its instances; default the server's `sharing`."""
    via: Via | None = None
    """For agents: how the server is reached; default the agent's `via`."""


class Grant(Table, frozen=True, kw_only=True):
    """What one layer gives one server."""

    presets: tuple[str, ...] = ()
    """Presets to take kwargs from, in this order."""
    mount: MountTable = MountTable()
    """How the server is seen."""
    kwargs: dict[str, Kwarg] = {}
    """Every other key is a kwarg; `"key+"` appends to what presets or defaults give."""


class Layer(Table, frozen=True, kw_only=True):
    """Keys of everything that is given servers."""

    mcp_servers: tuple[str, ...] = ()
    """Servers, groups, or `"*"` for all servers."""
    mcp: dict[str, Grant] = {}
    """Server to its kwargs here."""


class Rule(Table, frozen=True, kw_only=True):
    """Some tools: all that is said has to hold; `{}` is everything. A rule that names neither a tool nor what it does
    is about the whole server, its prompts and resources too."""

    server: str = "*"
    """Glob on the server's name."""
    tool: str = "*"
    """Glob on the server's own name of the tool."""
    read_only: bool | None = None
    """Whether it only reads; known of `trust = "trusted"` servers that say so, and else `false`."""
    destructive: bool | None = None
    """Whether it may destroy; `true` unless a trusted server says otherwise."""


class Rate(Table, frozen=True, kw_only=True):
    """So many calls in a time."""

    calls: Annotated[int, msgspec.Meta(ge=1)]
    """Calls that may be made in a row."""
    per: Limit = Limit(60)
    """Time in which they become available again, one after the other."""


class Policy(Table, frozen=True, kw_only=True):
    """What may be done, and how much of it."""

    allow: tuple[Rule, ...] = ()
    """Only what a rule covers; without rules everything."""
    deny: tuple[Rule, ...] = ()
    """Not what a rule covers, whatever `allow` says."""
    confirm: tuple[Rule, ...] = ()
    """Tools whose calls a person must agree to, one by one."""
    rate: Rate | None = None
    """How many calls in which time."""
    concurrency: Count = 0
    """Calls at the same time; 0: no limit."""
    max_result: Count = 0
    """Bytes of a result; a longer one is replaced by an error that names its size; 0: no limit."""


class Audit(Table, frozen=True, kw_only=True):
    """The record of calls and of changes of who may do what, in `state/audit.jsonl`."""

    enabled: bool = True
    """`false`: nothing is recorded."""
    arguments: tuple[Rule, ...] = ()
    """Tools whose arguments are recorded, with secrets masked."""
    max_bytes: Annotated[int, msgspec.Meta(ge=65536)] = 10_000_000
    """Size at which a file is put aside."""
    files: Annotated[int, msgspec.Meta(ge=1, le=999)] = 10
    """Files that are kept, the current one included."""


class Workspace(Layer, frozen=True, kw_only=True):
    """A tenant."""

    prefix: Literal[""] | None = None
    """`""`: names pass unchanged; for a workspace with one server."""
    anonymous: Literal["loopback"] | None = None
    """`loopback`: no key is needed from this machine."""
    policy: Policy = Policy()
    """What its keys may do together."""
    keys: dict[str, Policy] = {}
    """Name of a key to what holds for that key besides."""
    registry: bool = False
    """`true`: agents may look for servers in the catalog and add them here while they work."""


class AgentPool(Layer, frozen=True, kw_only=True):
    """What all agents are given."""


class Team(Layer, frozen=True, kw_only=True):
    """What the members of a team are given."""

    members: tuple[str, ...] = ()
    """Agents."""


class Agent(Layer, frozen=True, kw_only=True):
    """An agent, and what it alone is given."""

    type: Literal["native", "ag_ui", "claude_code", "codex", "acp"]
    """What runs it."""
    model: str | None = None
    """Model to use; needed by `native`, such as `openai:gpt-5`."""
    url: str | None = None
    """Of `ag_ui`: where it is reached."""
    headers: dict[str, str] = {}
    """Of `ag_ui`: HTTP headers to send; `{NAME}` is filled with that secret."""
    command: tuple[str, ...] | str | None = None
    """What starts it: the program, or program and arguments. Needed by `acp`; default `claude` for `claude_code` and
    `codex` for `codex`."""
    cwd: str | None = None
    """Folder it works in, relative to this file; default the folder of the one who runs it."""
    env: dict[str, str] = {}
    """Environment variables of its program that are not secret."""
    secrets: dict[str, Secret] = {}
    """Environment variable of its program, or name in `headers`, to secret reference."""
    prompt: str | None = None
    """Instructions it always gets."""
    via: Via = "mooring"
    """How it reaches its servers: through Mooring's endpoint with its own key, or `direct` by its own MCP client.
    Servers that need a secret, and others that only Mooring can run, go through Mooring all the same."""
    confirm: Literal["always", "never", "per_tool"] = "per_tool"
    """Which tool calls a person must approve, besides those that `confirm` of a server, mount or policy names;
    `per_tool`: functions that ask for it, and tools that say themselves that they destroy."""
    tools: tuple[str, ...] = ()
    """Python functions offered to it as tools: import paths, `module:name` of a function or of a list of them."""

    def __post_init__(self) -> None:
        for key, kinds in _AGENT_KEYS.items():
            if getattr(self, key) and self.type not in kinds:
                raise ValueError(f"{key} is for agents of type {' and '.join(kinds)}, not {self.type}")
        for kind, key in (("native", "model"), ("ag_ui", "url"), ("acp", "command")):
            if self.type == kind and not getattr(self, key):
                raise ValueError(f"an agent of type {kind} needs {key}")


_AGENT_KEYS = {
    "url": ("ag_ui",),
    "headers": ("ag_ui",),
    "model": ("native", "claude_code", "codex"),
    "command": ("claude_code", "codex", "acp"),
    "cwd": ("claude_code", "codex", "acp"),
    "env": ("claude_code", "codex", "acp"),
    "secrets": ("ag_ui", "claude_code", "codex", "acp"),
}
"""Keys that not every type of agent has."""


class Gateway(Table, frozen=True, kw_only=True):
    """The daemon."""

    listen: tuple[str, ...] = ("127.0.0.1:7420",)
    """Addresses to serve on; beyond loopback every request needs a key."""
    public_url: str | None = None
    """What exports and LiteLLM are told; default made of the first address."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use, besides the addresses."""
    idle_timeout: Seconds = Seconds(600)
    """Default for every server; 0: never."""
    start_timeout: Limit = Limit(60)
    """Default for every server."""
    call_timeout: Limit = Limit(300)
    """Default for every server."""
    engine: Literal["auto", "podman", "docker"] = "auto"
    """What runs containers."""
    max_starting: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Servers that may start at the same time."""
    max_instances: Count = 0
    """Servers that may run at the same time; an idle one gives way to the next. 0: no limit."""
    pins: Literal["report", "strict"] = "report"
    """What happens when a tool's definition changes: it is reported, or blocked until approved."""


class CatalogSource(Table, frozen=True, kw_only=True):
    """Where entries of the catalog come from. `starter`, `official` and `docker` are there without being written; a
    table of that name replaces one."""

    kind: str
    """`registry` (speaks the v0.1 API), `docker` (a checkout or archive of Docker's catalog), `files` (entries of your
    own), `starter` (the list that comes with Mooring), or what a plugin brings."""
    url: str | None = None
    """Address of the registry, or of the archive."""
    path: str | None = None
    """File or folder, relative to this file."""
    interval: Seconds = Seconds(86400)
    """How long what was read stays fresh; 0: it is read again only when somebody asks for it."""
    trusted: bool = False
    """Agents may add its entries without being asked."""
    enabled: bool = True
    """`false`: its entries are not found."""

    def __post_init__(self) -> None:
        if self.url is not None and self.path is not None:
            raise ValueError("a source has url or path, not both")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url needs to begin with http:// or https://")
        if self.kind == "registry" and self.url is None:
            raise ValueError("a registry needs its url")
        if self.kind == "files" and self.path is None:
            raise ValueError("files need a path")


class Catalog(Table, frozen=True, kw_only=True):
    """What could be run, and what of it agents may add without being asked. Everything else that an agent wants to
    run waits for `mooring approve`."""

    sources: dict[str, CatalogSource] = {}
    """Name, which is the first part of its entries' ids, to source."""
    allow: tuple[str, ...] = ()
    """Entries of sources that are not trusted, as globs on their ids: `"official/com.example/*"`."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that agents may run as servers, each whole with its arguments: `["uvx", "mcp-server-time"]`."""


class Plugins(Table, frozen=True, kw_only=True):
    """Installed plugins."""

    disable: tuple[str, ...] = ()
    """Plugins, or packages that bring some, that are not even imported."""
    image: str | None = None
    """Image in which servers of plugins run; default Python's own, with the `mcp` library added."""
    run: Literal["container", "host"] | None = None
    """Where servers of plugins run; default in a container where there is an engine, else on this machine."""
    trace: bool = False
    """Log every call of a hook."""


class LiteLLM(Table, frozen=True, kw_only=True):
    """A LiteLLM proxy that Mooring keeps in step with the workspaces: a server for each variant, a team and a key for
    each workspace."""

    url: str
    """Where it is reached, by Mooring and by agents, such as `http://127.0.0.1:4000`."""
    master_key: Secret
    """Reference to its master key."""
    via: Literal["mooring", "upstream"] = "mooring"
    """`mooring`: LiteLLM calls every server through Mooring. `upstream`: remotes directly where no rule of Mooring's
    stands between, all else through Mooring."""
    interval: Seconds = Seconds(600)
    """Time between two looks at what LiteLLM has; 0: only when the daemon starts or its configuration changes."""
    alias_prefix: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_]*$")] = ""
    """Put before the names of servers, to tell them from others in the same LiteLLM."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("url needs to begin with http:// or https://")
        if self.interval and self.interval < 1:
            raise ValueError("interval needs to be 0, or a second at least")


class Config(Table, frozen=True, kw_only=True):
    """The whole configuration, of all files."""

    gateway: Gateway = Gateway()
    """The daemon."""
    plugins: Plugins = Plugins()
    """Installed plugins."""
    mcp_servers: dict[str, AnyServer] = {}
    """What can be run."""
    mcp_groups: dict[str, tuple[str, ...]] = {}
    """Name to servers."""
    mcp_presets: dict[str, dict[str, Kwarg]] = {}
    """Name to kwargs."""
    workspaces: dict[str, Workspace] = {}
    """Who is given what."""
    audit: Audit = Audit()
    """What is recorded."""
    catalog: Catalog = Catalog()
    """What could be run."""
    agent_pool: AgentPool = AgentPool()
    """What all agents are given."""
    teams: dict[str, Team] = {}
    """What teams are given."""
    agents: dict[str, Agent] = {}
    """Agents."""
    litellm: LiteLLM | None = None
    """A LiteLLM proxy to keep in step."""


class Session(msgspec.Struct, frozen=True):
    """One conversation with an agent, and the servers it alone is given at run time."""

    agent: str
    layer: Layer = Layer()


class Loaded(msgspec.Struct, frozen=True):
    """A configuration that was read, and where each part of it stands."""

    config: Config
    files: tuple[str, ...]
    """Every file read, absolute, in order; the main file first, even when it does not exist."""
    sources: dict[str, str]
    """File to its text."""
    file_of: Callable[[Path], str]
    """Key path to the file that has it; the main file for what no file has."""
    place: Callable[[Path], tuple[str, int | None]]
    """Key path to file and line (from 1; None when the file does not show it). Slower: it reads the text again."""
    user: str = "/"
    """The user's home folder, for ``~`` in paths."""
    extend: Callable[[Config], Config] = lambda written: written
    """What added to it that which is not written."""
    sessions: dict[str, Session] = {}
    """By workspace: sessions of agents that exist besides, or instead of, the one that each agent has by itself."""

    def error(self, message: str, path: Path) -> ConfigError:
        """A ConfigError about what stands at ``path``."""
        file, line = self.place(path)
        return ConfigError(message, file=file, line=line, path=dotted(path))


def dotted(path: Path) -> str:
    """``path`` as people read it: ``workspaces.alice.mcp_servers[2]``."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            shown += ("." if shown else "") + (part if bare else f'"{part}"')
    return shown
