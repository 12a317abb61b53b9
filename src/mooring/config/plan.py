"""The resolved configuration: everything decided, nothing started. Frozen; built by ``config.resolve`` only. Pure.

Kwargs are already flags or filled placeholders, defaults are filled in, secrets are still references. The rest of the
product reads this and never the schema. Annotations are evaluated as they stand: as strings they would be compiled at
every boot, when the plan of the last run is decoded.
"""

import msgspec

from mooring.config.plan_servers import Launch, Process, Remote, SecretRef, Timeouts
from mooring.nouns import AgentServerRow, InstanceKey, Problem, Scope, Sharing

REGISTRY = "mooring.registry"
"""Variant of the registry server, which is part of Mooring; with a dot, no configured server can have it."""


class ToolRules(msgspec.Struct, frozen=True):
    """Globs on upstream tool names. ``deny`` wins over ``allow``."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()


class Variant(msgspec.Struct, frozen=True):
    """(server, kwargs) with everything that is needed to run it."""

    id: str
    server: str
    kwargs: str
    """Canonical JSON of the resolved kwargs: sorted keys, no spaces."""
    digest: str
    """Spec digest, hex: hash of ``launch`` with secrets as HMAC(installation key, value)."""
    launch: Launch
    sharing: Sharing = "shared"
    dialogue: str = "call"
    """``call`` or ``session``: session gives each caller session its own process with the caller's capabilities."""
    idle_timeout: float = 600.0
    """Seconds without a lease until it is stopped; 0 = never."""
    spare: int = 0
    """So many are kept started in advance."""
    timeouts: Timeouts = Timeouts()
    tools: ToolRules = ToolRules()
    trusted: bool = False
    unavailable: str = ""
    """Why it cannot be started at all (disabled, missing secret, no launcher of its kind); "" when it can."""

    def key(self, scope: str = "") -> InstanceKey:
        """The InstanceKey for a scope id."""
        return InstanceKey(self.id, self.digest, scope)


class Mount(msgspec.Struct, frozen=True):
    """A server in a workspace under a prefix."""

    workspace: str
    prefix: str
    server: str
    variant: str
    sharing: Sharing = "shared"
    tools: ToolRules = ToolRules()
    """The mount's own filter; a tool must pass this and the variant's."""


class Rule(msgspec.Struct, frozen=True):
    """Some tools: all conditions have to hold. ``server`` and ``tool`` are globs on the server's name and on its own
    name of the tool."""

    server: str = "*"
    tool: str = "*"
    read_only: bool | None = None
    destructive: bool | None = None


class Rate(msgspec.Struct, frozen=True):
    """So many calls in so many seconds."""

    calls: int
    per: float = 60.0


class Policy(msgspec.Struct, frozen=True):
    """What a workspace, or one of its keys, may do, and how much of it."""

    name: str = ""
    """As people know it, for reasons and refusals."""
    allow: tuple[Rule, ...] = ()
    """Empty: everything."""
    deny: tuple[Rule, ...] = ()
    confirm: tuple[Rule, ...] = ()
    rate: Rate | None = None
    concurrency: int = 0
    """Calls at the same time; 0: no limit."""
    max_result: int = 0
    """Bytes of a result; 0: no limit."""


class Audit(msgspec.Struct, frozen=True):
    """What is kept of what was done."""

    enabled: bool = True
    arguments: tuple[Rule, ...] = ()
    """Tools whose arguments are recorded."""
    max_bytes: int = 10_000_000
    """Size at which a file is put aside."""
    files: int = 10
    """Files that are kept, the current one included."""


class Workspace(msgspec.Struct, frozen=True):
    """One tenant: its mounts in the order of the configuration."""

    name: str
    mounts: tuple[Mount, ...] = ()
    anonymous: bool = False
    """True: no key is needed from this machine (``anonymous = "loopback"``)."""
    policy: Policy = Policy()
    keys: dict[str, Policy] = {}
    """Key name to what holds for it besides."""

    registry: bool = False
    """True: it offers the registry, with which agents add servers."""

    def policies(self, key: str) -> tuple[Policy, ...]:
        """Those that hold for a key of this name and say anything."""
        found = (self.policy, self.keys.get(key, Policy()))
        return tuple(policy for policy in found if policy != Policy())


class Direct(msgspec.Struct, frozen=True):
    """A server that an agent's own MCP client connects to. It needs no secret; Mooring starts nothing for it."""

    server: str
    prefix: str
    launch: Process | Remote
    start_timeout: float = 60.0
    call_timeout: float = 300.0


class Agent(msgspec.Struct, frozen=True):
    """An agent, or one more session of one: its workspace of this name holds what it reaches through Mooring."""

    name: str
    """As configured."""
    workspace: str
    type: str
    """``native`` | ``ag_ui`` | ``claude_code`` | ``codex`` | ``acp``"""
    launch: Process | Remote | None = None
    """Its program or its endpoint; None: it runs in this process."""
    model: str = ""
    prompt: str = ""
    confirm: str = "per_tool"
    """``always`` | ``never`` | ``per_tool``"""
    tools: tuple[str, ...] = ()
    """Import paths of its Python functions."""
    direct: tuple[Direct, ...] = ()
    servers: tuple[AgentServerRow, ...] = ()
    """Where each of its servers comes from, and which way it goes."""


class Gateway(msgspec.Struct, frozen=True):
    """The daemon's own settings."""

    listen: tuple[tuple[str, int], ...] = (("127.0.0.1", 7420),)
    public_url: str = "http://127.0.0.1:7420"
    allowed_hosts: tuple[str, ...] = ()
    engine: str = "auto"
    max_starting: int = 32
    max_instances: int = 0
    """0 = no cap."""
    pins: str = "report"


class CatalogSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where entries of the catalog come from."""

    name: str
    """First part of its entries' ids."""
    kind: str
    url: str = ""
    path: str = ""
    interval: float = 86400.0
    """Seconds between two looks; 0: only when somebody asks for it."""
    trusted: bool = False
    """Agents may add its entries without being asked."""
    enabled: bool = True
    asked_first: bool = False
    """Nothing is fetched until a person refreshed it once: what nobody configured goes to no network by itself."""

    @property
    def place(self) -> str:
        """What is read, for people; tells this source from another one of the same name."""
        return f"{self.kind} {self.url or self.path}".strip()


class Allowed(msgspec.Struct, frozen=True):
    """What agents may add without a person's approval, besides entries of trusted sources."""

    entries: tuple[str, ...] = ()
    """Globs on ids."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Whole argvs."""


class Telemetry(msgspec.Struct, frozen=True):
    """What an OpenTelemetry collector is sent."""

    endpoint: str = ""
    """Without a slash at its end; "": where the standard variables say."""
    traces: bool = True
    metrics: bool = True


class Added(msgspec.Struct, frozen=True):
    """What holds for every server that is added at run time."""

    timeouts: Timeouts = Timeouts()
    idle_timeout: float = 600.0


class LiteLLM(msgspec.Struct, frozen=True):
    """A LiteLLM proxy to keep in step with the workspaces."""

    url: str
    """Without a slash at its end."""
    public_url: str
    """The same as agents are told."""
    master_key: SecretRef
    via: str = "mooring"
    """``mooring`` | ``upstream``"""
    interval: float = 600.0
    """Seconds between two looks at it; 0 = only after changes."""
    alias_prefix: str = ""


class Admission(msgspec.Struct, frozen=True):
    """Who of those that an issuer vouches for comes into a workspace, and what for."""

    workspace: str
    claims: dict[str, tuple[str, ...]] = {}
    """Claim to globs: each claim needs a value that one of its globs covers."""
    scopes: tuple[Scope, ...] = ("call", "list")
    tools: tuple[str, ...] = ()
    key: str = ""
    """Name of the key whose policy holds."""


class Issuer(msgspec.Struct, frozen=True):
    """An authorization server whose tokens are taken instead of keys."""

    name: str
    url: str
    """Issuer identifier, as it stands in tokens."""
    audience: tuple[str, ...] = ()
    """Empty: this gateway's own addresses."""
    jwks: str = ""
    """Address of its keys; "": found by its metadata."""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    scopes: tuple[str, ...] = ()
    """OAuth scopes that a token must have."""
    leeway: float = 30.0
    admit: tuple[Admission, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What should be: the whole resolved configuration."""

    gateway: Gateway = Gateway()
    variants: dict[str, Variant] = {}
    workspaces: dict[str, Workspace] = {}
    catalog: tuple[CatalogSource, ...] = ()
    """Sources that the configuration names."""
    allowed: Allowed = Allowed()
    added: Added = Added()
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    """Every file read, absolute, in order."""
    audit: Audit = Audit()
    litellm: LiteLLM | None = None
    telemetry: Telemetry | None = None
    agents: dict[str, Agent] = {}
    """By workspace."""
    teams: dict[str, tuple[str, ...]] = {}
    """Name to its members, which are names of agents."""
    identity: tuple[Issuer, ...] = ()
