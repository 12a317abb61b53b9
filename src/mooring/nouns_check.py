"""More of ``nouns``: what ``mooring check`` and ``mooring agent explain`` say about a configuration, and print with
``--json``. No boot needs it. Pure.

Durations are seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mooring.nouns import AgentServerRow, Problem, Scope, Sharing


class VariantRow(msgspec.Struct, frozen=True):
    """One variant in the plan that ``mooring check`` prints; secrets are masked."""

    id: str
    server: str
    kind: str
    command: tuple[str, ...]
    """What would be run (argv with kwargs as flags), or the URL."""
    env: dict[str, str]
    """Environment that the definition adds; a secret shows its reference, never its value."""
    instance_keys: tuple[str, ...]
    sharing: Sharing
    shared_by: tuple[str, ...]
    """Workspaces that mount it."""
    idle_timeout: float
    dialogue: str = ""
    unavailable: str = ""
    credentials: dict[str, str] | None = None
    """What goes over stdin before MCP, as references; None: not an SMCP server."""
    confined: tuple[str, ...] = ()
    """What a container gets, in words: network, limits, root, mounts, ports."""


class MountRow(msgspec.Struct, frozen=True):
    """One mount in the plan: which server a workspace sees under which prefix."""

    workspace: str
    prefix: str
    server: str
    variant: str
    sharing: Sharing


class AccessRow(msgspec.Struct, frozen=True):
    """What one key may do with one thing (``mooring check --as``)."""

    kind: Literal["tool", "prompt", "resource", "server"]
    """``server``: it was not listed yet, so what it offers is not known."""
    name: str
    server: str
    listed: bool
    call: Literal["yes", "confirm", "no", "unknown"]
    """``confirm``: a person has to agree to each call."""
    reason: str


class AgentReport(msgspec.Struct, frozen=True):
    """What ``mooring agent explain`` prints."""

    agent: str
    type: str
    workspace: str
    teams: tuple[str, ...]
    servers: tuple[AgentServerRow, ...]
    functions: tuple[str, ...] = ()
    """Import paths of its own tools."""
    confirm: str = "per_tool"


class AdmissionRow(msgspec.Struct, frozen=True):
    """Whom an issuer's word lets into which workspace."""

    workspace: str
    claims: dict[str, tuple[str, ...]]
    """Claim to globs; empty: everybody."""
    scopes: tuple[Scope, ...]
    tools: tuple[str, ...]
    key: str
    """The key whose policy holds besides."""


class IssuerRow(msgspec.Struct, frozen=True):
    """An authorization server whose tokens are taken instead of keys."""

    name: str
    url: str
    audience: tuple[str, ...]
    """What tokens may name as whom they are for."""
    jwks: str
    """Where its keys are; "": found by its metadata."""
    algorithms: tuple[str, ...]
    scopes: tuple[str, ...]
    leeway: float
    admit: tuple[AdmissionRow, ...]
    """In this order."""


class ProbeRow(msgspec.Struct, frozen=True):
    """What an SMCP server says about its credentials, beside those it is given (``mooring check --probe``)."""

    variant: str
    server: str
    required: dict[str, str] = {}
    """Key to description."""
    optional: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    """Required, and not in the configuration."""
    unknown: tuple[str, ...] = ()
    """In the configuration, and unknown to the server."""
    error: str = ""
    """Why nothing is known about it; "" when the rest holds."""


class CheckReport(msgspec.Struct, frozen=True):
    """What ``mooring check`` prints."""

    ok: bool
    files: tuple[str, ...]
    variants: tuple[VariantRow, ...]
    mounts: tuple[MountRow, ...]
    problems: tuple[Problem, ...]
    probes: tuple[ProbeRow, ...] = ()
    access: tuple[AccessRow, ...] = ()
    """With ``--as``."""
    identity: tuple[IssuerRow, ...] = ()
