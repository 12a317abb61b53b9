"""The shapes everybody shares, frozen; those with ``Row`` or ``Report`` in the name are also the shapes behind
``--json``; ``nouns_check``, ``nouns_litellm`` and ``nouns_registry`` have more. Pure. msgspec structs: they cost a
tenth of a dataclass at start and encode themselves.

Durations are seconds, times epoch seconds, sizes bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec

Era = Literal["legacy", "modern"]
"""``legacy``: protocol up to 2025-11-25 (handshake, sessions). ``modern``: 2026-07-28 (stateless)."""

Sharing = Literal["shared", "workspace", "session"]
State = Literal["stopped", "starting", "ready", "stopping", "backoff"]
Scope = Literal["call", "list"]


class InstanceKey(msgspec.Struct, frozen=True, order=True):
    """One running thing: which variant, from which resolved definition, for whom."""

    variant: str
    digest: str
    scope: str = ""
    """"" shared; ``w:<workspace>``; ``s:<session id>``."""

    @property
    def whom(self) -> str:
        """The scope as people may see it: a session id is not for logs."""
        return self.scope[:8] if self.scope.startswith("s:") else self.scope

    @property
    def id(self) -> str:
        """As ``check``, ``ps`` and the audit name it, such as ``time@432ff4de74f4 w:alice``."""
        return _instance_id(self)


@lru_cache(1024)
def _instance_id(key: InstanceKey) -> str:
    return f"{key.variant}@{key.digest[:12]} {key.whom}".rstrip()


class Principal(msgspec.Struct, frozen=True):
    """Who is calling: a key, or the local user through the control socket (``key_id`` then starts with "local:")."""

    key_id: str
    workspace: str
    scopes: tuple[Scope, ...] = ("call", "list")
    variant: str | None = None
    tools: tuple[str, ...] = ()
    """Globs on advertised names; empty allows all."""
    name: str = ""
    """The key's name in its workspace; the configuration may hold a policy for it."""
    bare: bool = False
    """It came by the endpoint of its one variant (``/s/<variant>/mcp``), where names have no prefix."""
    ours: bool = False
    """It is another Mooring of this user, which asks a person itself where one has to agree."""


class Facts(msgspec.Struct, frozen=True):
    """What a server said about itself in ``initialize`` or ``server/discover``. The ``bytes`` are raw JSON."""

    era: Era
    version: str
    """Protocol version of the conversation, such as "2025-11-25"."""
    capabilities: bytes = b"{}"
    server_info: bytes = b"{}"
    instructions: str = ""


class Item(msgspec.Struct, frozen=True):
    """One listed tool, prompt, resource or template: its upstream name (or URI, or URI template) and its raw JSON."""

    name: str
    raw: bytes


class Caching(msgspec.Struct, frozen=True):
    """How long and by whom a list may be reused, as a modern server says; what a legacy one offers, never."""

    ttl_ms: int = 0
    """Milliseconds since the list was taken."""
    public: bool = False
    """By everybody, else by the one who asked."""


class Listing(msgspec.Struct, frozen=True):
    """All that one server offers, as it said it, in its order."""

    facts: Facts
    tools: tuple[Item, ...] = ()
    prompts: tuple[Item, ...] = ()
    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    problems: tuple[str, ...] = ()
    """What went wrong while listing, such as a repeated cursor; for ``check`` and ``ps``."""
    taken_at: float = 0.0
    caching: dict[str, Caching] = {}
    """By the method of a list."""

    @property
    def empty(self) -> bool:
        """Whether it names nothing at all."""
        return not (self.tools or self.prompts or self.resources or self.templates)


class InstanceRow(msgspec.Struct, frozen=True):
    """One line of ``mooring ps``."""

    server: str
    variant: str
    state: State
    scope: str = ""
    instance: str = ""
    """Its id, ``InstanceKey.id``; "" where there is none."""
    reason: str = ""
    pid: int | None = None
    """Of its process; of a container, the engine's program that is attached to it."""
    container: str | None = None
    """Engine and name, such as ``podman:mooring-mcp-time-0a1b2c3d4e5f``."""
    era: Era | None = None
    uptime: float | None = None
    idle: float | None = None
    leases: int = 0
    workspaces: tuple[str, ...] = ()
    tools: int | None = None
    unlisted: str = ""
    """Which of its lists are not complete, and why."""
    restarts: int = 0
    retry_at: float | None = None
    exit_code: int | None = None
    memory: int | None = None
    """Resident bytes of its processes together, descendants included; None when nothing runs here."""
    processes: int | None = None
    """Itself and whatever it started."""
    dialogue: str = ""
    """Where dialogue is off for this instance: why, and how to turn it on."""
    denied: tuple[str, ...] = ()
    """Peers (host:port) that its guarded network refused since it started."""
    unapproved: int = 0
    """Tools that changed or appeared since they were pinned."""
    last_error: str = ""
    stderr: str = ""


class ToolRow(msgspec.Struct, frozen=True):
    """One tool of a workspace, under its advertised name."""

    name: str
    server: str
    upstream: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}


class KeyRow(msgspec.Struct, frozen=True):
    """A key as it may be shown: never its value."""

    id: str
    workspace: str
    name: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    scopes: tuple[Scope, ...] = ("call", "list")
    variant: str | None = None
    tools: tuple[str, ...] = ()
    revoked: bool = False
    inert: str = ""
    """Why a valid key opens nothing now, such as "no such workspace"."""


class NewKey(msgspec.Struct, frozen=True):
    """What ``mooring key create --json`` prints, once."""

    key: str
    id: str
    workspace: str


class Problem(msgspec.Struct, frozen=True):
    """Something in the configuration that works differently than its writer may think."""

    level: Literal["error", "warning", "info"]
    message: str
    path: str = ""
    file: str = ""
    line: int | None = None


class PinRow(msgspec.Struct, frozen=True):
    """One pinned tool (``mooring pins``)."""

    server: str
    variant: str
    tool: str
    """The server's own name."""
    state: Literal["pinned", "changed", "new"]
    """``new``: it appeared after its server was pinned. What is not ``pinned`` waits for approval."""
    fingerprint: str
    """Of the definition as it is now: SHA-256, hex."""
    since: float
    why: str = ""
    diff: str = ""
    """From the pinned definition to the one of now."""


class AuditRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the audit file (``mooring audit --json``); what does not apply is left out."""

    ts: float
    event: str
    """``call.finished`` for a request that was allowed, ``policy.denied`` for one that was not, or another event."""
    method: str = ""
    """Of a request: ``tools/call``, ``resources/read``, and so on."""
    workspace: str = ""
    server: str = ""
    instance: str = ""
    """The instance that served it, as ``ps`` names it; of what was refused, the variant."""
    trace: str = ""
    """The caller's W3C ``traceparent``."""
    key: str = ""
    tool: str = ""
    target: str = ""
    """Of a request that is no tool call: the prompt's name or the resource's URI."""
    decision: str = ""
    """``allowed``, ``asked`` (a person has to agree and has not yet), ``confirmed`` (one did) or ``denied``."""
    reason: str = ""
    outcome: str = ""
    """``ok``, ``error`` (of the server or of its tool), ``failed`` (of Mooring) or ``cancelled``."""
    error: str = ""
    """The kind of a failure, the code of a server's error, or ``tool_error``."""
    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    arguments: Any = None
    """Only where ``[audit] arguments`` covers the tool; secrets are masked."""
    data: dict[str, Any] = {}
    """What any other event carries."""

    @property
    def refused(self) -> bool:
        """Whether somebody did not get what they asked for, by Mooring's decision."""
        return self.decision == "denied" or self.error == "busy" or self.event == "key.refused"


class AgentServerRow(msgspec.Struct, frozen=True):
    """One server of an agent: where it comes from, and how it gets there (``mooring agent explain``)."""

    server: str
    layers: tuple[str, ...]
    """Those that name it, the nearest last: ``agent_pool``, ``teams.NAME``, ``agents.NAME``, ``session``."""
    prefix: str
    way: Literal["mooring", "direct", "none"]
    """``none``: not offered."""
    why: str
    """Why this way."""


class ReloadReport(msgspec.Struct, frozen=True):
    """What a reload did, or why it did nothing."""

    applied: bool
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    error: str = ""


class StatusReport(msgspec.Struct, frozen=True):
    """The daemon at a glance."""

    version: str
    pid: int
    home: str
    endpoint: str
    """Where the daemon listens."""
    public_url: str
    """The endpoint as others are told, ``gateway.public_url``."""
    started_at: float
    workspaces: tuple[str, ...]
    config_error: str = ""
