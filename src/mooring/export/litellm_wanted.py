"""From Mooring's plan to what LiteLLM should have. Pure; called by ``export.litellm``.

A variant becomes one server there. LiteLLM calls it with one key of Mooring's, which belongs to one workspace: the
first that mounts the variant. So another workspace can share the entry only where Mooring would treat it the same; a
variant with an instance for each session cannot be registered at all. What is left out is said, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from mooring.config.plan import Mount, Plan, ToolRules, Variant, Workspace
from mooring.config.plan_servers import AUTHORIZATION, Functions, Remote, SecretRef, references
from mooring.export.litellm_entries import Grant, Names, Server, Team
from mooring.nouns_litellm import LiteLLMSkipped

_NO_RULES = ("name", "workspace", "prefix", "mounts", "anonymous", "keys", "registry")
"""Members of mounts and workspaces, at any depth, that two with the same rules may differ in."""


class Registration(msgspec.Struct, frozen=True):
    """A variant that LiteLLM is told about."""

    variant: str
    name: str
    """Its name and alias there."""
    workspaces: tuple[str, ...]
    """Who may use it; the key that LiteLLM calls Mooring with belongs to the first."""
    url: str
    transport: str = "http"
    headers: dict[str, str] = {}
    secret: SecretRef | None = None
    """Bearer token of a remote that LiteLLM calls directly."""
    direct: bool = False
    """LiteLLM calls the remote itself, and not Mooring."""


class Wanted(msgspec.Struct, frozen=True):
    """What LiteLLM should have."""

    servers: tuple[Server, ...]
    teams: tuple[Team, ...]
    """One for each workspace that may use anything; each has one key."""


def registrations(plan: Plan, base: str) -> tuple[tuple[Registration, ...], tuple[LiteLLMSkipped, ...]]:
    """What of ``plan`` LiteLLM is told about, and what not and why. ``base``: URL of Mooring, without path."""
    mounts: dict[str, list[Mount]] = defaultdict(list)
    for workspace in plan.workspaces.values():
        for mount in workspace.mounts:
            # The registry is Mooring's own: it acts on the workspace that asks, which LiteLLM would not tell it.
            if not isinstance(plan.variants[mount.variant].launch, Functions):
                mounts[mount.variant].append(mount)
    skipped: list[LiteLLMSkipped] = []
    found: list[Registration] = []
    for variant_id, mounted in mounts.items():
        fit = _fit(plan, plan.variants[variant_id], mounted, skipped)
        if fit:
            found.append(_registration(plan, plan.variants[variant_id], fit, base))
    return _without_clashes(found, skipped), tuple(skipped)


def wanted(found: Iterable[Registration], names: Names, fingerprints: Mapping[str, str]) -> Wanted:
    """The entries for these registrations. ``fingerprints``: of each variant's credential, where it has one."""
    servers: list[Server] = []
    granted: dict[str, list[str]] = defaultdict(list)
    for each in found:
        secret = fingerprints.get(each.variant, "")
        server = Server(
            id=names.server(each.variant),
            name=each.name,
            alias=each.name,
            url=each.url,
            transport=each.transport,
            auth="bearer_token" if secret else "none",
            headers=each.headers,
            tag={"installation": names.installation, "variant": each.variant, "secret": secret},
        )
        servers.append(server)
        for workspace in each.workspaces:
            granted[workspace].append(server.id)
    teams = (
        Team(
            id=names.team(workspace),
            alias=f"mooring {workspace}",
            grant=Grant(servers=tuple(sorted(ids))),
            tag={"installation": names.installation, "workspace": workspace},
        )
        for workspace, ids in granted.items()
    )
    return Wanted(tuple(servers), tuple(teams))


def litellm_name(prefix: str, variant: str) -> str:
    """A variant's name in LiteLLM, which takes no ``-``. A ``.``, as servers that were added at run time have, it
    takes, but some models do not in the names of tools."""
    return prefix + variant.replace("-", "_").replace(".", "_")


def skip(mount: Mount, reason: str) -> LiteLLMSkipped:
    return LiteLLMSkipped(mount.workspace, mount.server, mount.variant, reason)


def _fit(plan: Plan, variant: Variant, mounted: list[Mount], skipped: list[LiteLLMSkipped]) -> list[Mount]:
    """The mounts that one entry can serve; the others go to ``skipped``."""
    fit: list[Mount] = []
    for mount in mounted:
        reason = _unfit(variant, mount) or (_unlike(plan, variant, fit[0], mount) if fit else "")
        if reason:
            skipped.append(skip(mount, reason))
        else:
            fit.append(mount)
    return fit


def _unfit(variant: Variant, mount: Mount) -> str:
    """Why this mount cannot be served through LiteLLM by itself; "" when it can."""
    if variant.unavailable:
        return f"it cannot be started: {variant.unavailable}"
    if "session" in (mount.sharing, variant.sharing, variant.dialogue):
        return "each session has an instance of its own, and LiteLLM opens a session for each call"
    return ""


def _unlike(plan: Plan, variant: Variant, first: Mount, mount: Mount) -> str:
    """Why ``mount`` cannot share the entry that calls come in for ``first``; "" when it can."""
    if "workspace" in (first.sharing, mount.sharing, variant.sharing):
        return (
            f'each workspace has an instance of its own, and LiteLLM\'s calls go to that of "{first.workspace}"; give '
            'this workspace other kwargs, or the server a "{workspace}" in its args'
        )
    rooms = plan.workspaces
    if _rules(first, rooms[first.workspace]) != _rules(mount, rooms[mount.workspace]):
        return (
            f'its rules are not those of "{first.workspace}", for which LiteLLM\'s calls are taken; define the server '
            "a second time, under another name, for this workspace"
        )
    return ""


def _rules(mount: Mount, workspace: Workspace) -> Any:
    """All that decides how a call is treated, comparable: without what only names it, and without what holds for other
    keys than LiteLLM's."""
    return _ruling(msgspec.to_builtins((mount, workspace)))


def _ruling(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _ruling(member) for name, member in members.items() if name not in _NO_RULES}
    if isinstance(value, list | tuple):
        return [_ruling(member) for member in cast("list[Any]", value)]
    return value


def _registration(plan: Plan, variant: Variant, fit: list[Mount], base: str) -> Registration:
    litellm = plan.litellm
    assert litellm is not None
    name = litellm_name(litellm.alias_prefix, variant.id)
    workspaces = tuple(mount.workspace for mount in fit)
    launch = variant.launch
    if litellm.via == "upstream" and isinstance(launch, Remote) and _unguarded(plan, variant, launch, fit):
        auth = launch.auth if isinstance(launch.auth, SecretRef) else None
        return Registration(
            variant.id, name, workspaces, launch.url, launch.transport, launch.headers, auth, direct=True
        )
    return Registration(variant.id, name, workspaces, f"{base}/s/{variant.id}/mcp")


def _unguarded(plan: Plan, variant: Variant, launch: Remote, fit: list[Mount]) -> bool:
    """Whether a call that goes past Mooring would be treated the same: nothing is filtered, no login of Mooring's is
    needed, and no secret stands in a header, where LiteLLM would show it to its administrators."""
    only_auth = set(references(launch)) <= {AUTHORIZATION} and launch.auth != "oauth"
    plain = _rules(Mount("", "", variant.server, variant.id), Workspace(""))
    ruled = variant.tools != ToolRules() or any(
        _rules(mount, plan.workspaces[mount.workspace]) != plain for mount in fit
    )
    return only_auth and not ruled and plan.gateway.pins != "strict"


def _without_clashes(found: list[Registration], skipped: list[LiteLLMSkipped]) -> tuple[Registration, ...]:
    """Those whose names are theirs alone: LiteLLM tells no upper from lower case."""
    owners: dict[str, list[Registration]] = defaultdict(list)
    for each in found:
        owners[each.name.casefold()].append(each)
    for same in owners.values():
        if len(same) > 1:
            others = " and ".join(f'"{each.variant}"' for each in same)
            reason = f'{others} would all be called "{same[0].name}" in LiteLLM; rename one'
            skipped += (
                LiteLLMSkipped(workspace, "", each.variant, reason) for each in same for workspace in each.workspaces
            )
    return tuple(each for each in found if len(owners[each.name.casefold()]) == 1)
