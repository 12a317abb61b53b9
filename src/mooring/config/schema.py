"""What may be written in ``mooring.toml``: one struct a table, one docstring a key. Pure.

``config.decode`` fills these structs, ``config.resolve`` gives them meaning, ``config.reference`` prints the docstrings
as ``docs/configuration.md``. Nothing else reads them. The tables of one subject are in ``schema_servers``,
``schema_policy``, ``schema_identity``, ``schema_agents`` and ``schema_catalog``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from mooring.config.durations import Limit, Seconds
from mooring.config.schema_agents import Agent, AgentPool, Layer, Team
from mooring.config.schema_base import Count, Kwarg, Path, Table, dotted
from mooring.config.schema_catalog import Catalog, Plugins
from mooring.config.schema_identity import Issuer
from mooring.config.schema_policy import Audit, Policy, Telemetry
from mooring.config.schema_servers import AnyServer, Secret
from mooring.errors import ConfigError


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


class LiteLLM(Table, frozen=True, kw_only=True):
    """A LiteLLM proxy that Mooring keeps in step with the workspaces: a server for each variant, a team and a key for
    each workspace."""

    url: str
    """Where Mooring reaches it, such as `http://127.0.0.1:4000`. Before it becomes another LiteLLM's: `mooring litellm
    remove`; what is in the old one stays there otherwise, and goes on working."""
    public_url: str | None = None
    """What agents are told, such as an address that containers reach; default `url`."""
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
        for key, url in (("url", self.url), ("public_url", self.public_url or self.url)):
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{key} needs to begin with http:// or https://")
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
    identity: dict[str, Issuer] = {}
    """Whose tokens are taken instead of keys."""
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
    telemetry: Telemetry | None = None
    """A collector of traces and metrics."""


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
