"""Servers that were added at run time, and the registry server, in the plan: a pure overlay over the configuration.

A record is what is kept of such a mount; from it a variant is made as ``config.resolve`` makes one from what is
written. The configuration goes first: where it has the prefix, the mount waits and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mooring import __version__
from mooring.config.plan import REGISTRY, Added, Mount, Plan, Variant, Workspace
from mooring.config.plan_servers import Functions, Launch, SecretRef, Timeouts, references
from mooring.errors import ConfigError

PREFIX = "registry"
"""Of the registry's own tools."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A mount as it is kept."""

    workspace: str
    entry_id: str
    name: str
    prefix: str
    launch: Launch
    settings: dict[str, Any] = {}
    environment: dict[str, str] = {}
    """Variables that were set after it was added."""
    tools: tuple[str, ...] = ()
    mounted_at: float = 0.0
    approval: str = ""

    @property
    def server(self) -> str:
        """Name of the server; with a dot, which no configured one has."""
        return re.sub(r"[^a-z0-9_-]+", ".", self.entry_id.lower()).strip(".")

    @property
    def variant(self) -> str:
        """Id of the variant: workspaces that add the same with the same settings share it."""
        from mooring.config.kwargs import variant_id  # with the whole schema; a boot without mounts does without

        return variant_id(self.server, {**self.settings, **self.environment})


Made = tuple[Record, Variant]


def made(
    record: Record, fingerprint: Callable[[SecretRef], str | None], unsupported: Callable[[Launch], str]
) -> Variant:
    """What a record runs as, but for its limits, which are the plan's. ``fingerprint`` and ``unsupported`` as for
    ``config.resolve``; may block."""
    from mooring.config.launches import digest  # with the whole schema; a boot without mounts does without

    prints: dict[SecretRef, str | None] = {}
    reasons: list[str] = []
    for name, ref in references(record.launch).items():
        try:
            prints[ref], why = fingerprint(ref), ref.missing()
        except ConfigError as error:
            prints[ref], why = None, error.message
        if prints[ref] is None and not ref.optional:
            reasons.append(f"secret {name}: {why}")
    if reason := unsupported(record.launch):
        reasons.append(reason)
    return Variant(
        id=record.variant,
        server=record.server,
        kwargs="{}",
        digest=digest(record.launch, prints),
        launch=record.launch,
        unavailable="; ".join(reasons),
    )


def obstacle(record: Record, plan: Plan) -> str:
    """Why a mount is not part of a plan without it; "" when nothing is in its way."""
    workspace = plan.workspaces.get(record.workspace)
    if workspace is None:
        return "its workspace is not in the configuration"
    return clash(record.prefix, workspace)


def clash(prefix: str, workspace: Workspace) -> str:
    """Why a workspace cannot have another mount of this prefix; "" when it can."""
    for mount in workspace.mounts:
        if mount.prefix == prefix:
            return f'the prefix "{prefix}" belongs to {mount.server}'
        if not mount.prefix:
            return f"{mount.server} has no prefix there, so it has to be the only server"
    return ""


def free_prefix(wanted: str, workspace: Workspace) -> str:
    """A prefix like ``wanted`` that nobody has."""
    taken = {mount.prefix for mount in workspace.mounts}
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def with_registry(plan: Plan) -> Plan:
    """``plan`` with the registry server in each workspace that wants it and has its prefix free."""
    rooms = [room for room in plan.workspaces.values() if room.registry and not clash(PREFIX, room)]
    if not rooms:
        return plan
    variant = Variant(
        id=REGISTRY,
        server=PREFIX,
        kwargs="{}",
        digest=f"registry:{__version__}",
        launch=Functions(REGISTRY),
        sharing="workspace",
        timeouts=Timeouts(call=_adding(plan.added.timeouts)),
        idle_timeout=0.0,
        trusted=True,
    )
    mounts = [Mount(room.name, PREFIX, PREFIX, REGISTRY, "workspace") for room in rooms]
    return _with(plan, {REGISTRY: variant}, mounts)


def with_mounts(plan: Plan, added: Iterable[Made], trials: Sequence[Variant]) -> Plan:
    """``plan`` with what was added at run time; ``trials`` are run without being mounted."""
    for record, variant in added:
        if not obstacle(record, plan):
            mount = Mount(record.workspace, record.prefix, record.server, variant.id)
            plan = _with(plan, {variant.id: _limited(variant, plan.added)}, [mount])
    return _with(plan, {variant.id: _limited(variant, plan.added) for variant in trials}, []) if trials else plan


def _limited(variant: Variant, added: Added) -> Variant:
    return msgspec.structs.replace(variant, timeouts=added.timeouts, idle_timeout=added.idle_timeout)


def _adding(limits: Timeouts) -> float:
    """How long an add may be silent towards a client that wants no progress: all its steps."""
    return limits.look_up + limits.pull + limits.start + limits.discover


def _with(plan: Plan, variants: Mapping[str, Variant], mounts: Iterable[Mount]) -> Plan:
    workspaces = dict(plan.workspaces)
    for mount in mounts:
        room = workspaces[mount.workspace]
        workspaces[room.name] = msgspec.structs.replace(room, mounts=(*room.mounts, mount))
    return msgspec.structs.replace(plan, variants={**plan.variants, **variants}, workspaces=workspaces)
