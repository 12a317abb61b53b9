"""Function servers in the plan: a pure overlay over what the configuration says. Library only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mooring.config import names
from mooring.config.plan import Functions, Mount, Plan, Variant
from mooring.errors import ConfigError


def check_addition(plan: Plan, name: str, workspaces: tuple[str, ...] | None) -> None:
    """Raises ConfigError when functions cannot be added under this name, or in these workspaces."""
    fault = names.server_fault(name)
    if not fault and any(name in (variant.id, variant.server) for variant in plan.variants.values()):
        fault = f'There is a server "{name}" already.'
    unknown = [workspace for workspace in workspaces or () if workspace not in plan.workspaces]
    if not fault and unknown:
        fault = f'There is no workspace "{unknown[0]}". Workspaces: {", ".join(plan.workspaces)}.'
    if fault:
        raise ConfigError(fault)


def with_functions(plan: Plan, servers: Mapping[str, tuple[str, ...] | None]) -> Plan:
    """``plan`` with these function servers, each mounted in the workspaces named (None: in all)."""
    if not servers:
        return plan
    variants = dict(plan.variants)
    workspaces = dict(plan.workspaces)
    for name, chosen in servers.items():
        variants[name] = Variant(
            id=name, server=name, kwargs="{}", digest=f"functions:{name}", launch=Functions(name), idle_timeout=0.0
        )
        for workspace in workspaces.values() if chosen is None else [workspaces[w] for w in chosen if w in workspaces]:
            mount = Mount(workspace.name, names.prefix_of(name), name, name)
            workspaces[workspace.name] = msgspec.structs.replace(workspace, mounts=(*workspace.mounts, mount))
    return msgspec.structs.replace(plan, variants=variants, workspaces=workspaces)
