"""Function servers in the plan: a pure overlay over what the configuration says. Library only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mooring.config import names
from mooring.config.plan import Mount, Plan, Variant
from mooring.config.plan_servers import Functions
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


class FunctionServer(msgspec.Struct, frozen=True):
    """Where functions are mounted."""

    prefix: str
    workspaces: tuple[str, ...] | None
    """None: in all but those of agents."""


def with_functions(plan: Plan, servers: Mapping[str, FunctionServer]) -> Plan:
    """``plan`` with these function servers, each mounted in its workspaces."""
    if not servers:
        return plan
    variants = dict(plan.variants)
    workspaces = dict(plan.workspaces)
    for name, server in servers.items():
        variants[name] = Variant(
            id=name, server=name, kwargs="{}", digest=f"functions:{name}", launch=Functions(name), idle_timeout=0.0
        )
        chosen = [w for w in workspaces if w not in plan.agents] if server.workspaces is None else server.workspaces
        for workspace in [workspaces[w] for w in chosen if w in workspaces]:
            mount = Mount(workspace.name, server.prefix, name, name)
            workspaces[workspace.name] = msgspec.structs.replace(workspace, mounts=(*workspace.mounts, mount))
    return msgspec.structs.replace(plan, variants=variants, workspaces=workspaces)
