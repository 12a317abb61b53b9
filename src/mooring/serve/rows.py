"""The lines of ``mooring ps``: what the pool knows, completed by the plan and the listings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Container, Process
from mooring.nouns import InstanceRow
from mooring.relay.listings import Listings
from mooring.relay.views import Views


def instance_rows(
    running: Iterable[InstanceRow],
    plan: Plan,
    listings: Listings,
    views: Views,
    unapproved: Mapping[str, Mapping[str, str]] | None = None,
) -> list[InstanceRow]:
    """Every instance there is, and one "stopped" line for each variant without any, in the order of the plan."""
    rows: dict[str, list[InstanceRow]] = {id: [] for id in plan.variants}
    for row in running:
        rows.setdefault(row.variant, []).append(row)
    mounted = _mounted(plan)
    complete: list[InstanceRow] = []
    for id, found in rows.items():
        variant = plan.variants.get(id)
        if variant is None:
            complete += found
            continue
        listing = listings.get(variant)
        asleep = "not listed yet" if listing is None else "asleep; the next call starts it"
        reason = variant.unavailable or views.reason(id) or asleep
        found = found or [InstanceRow(server=variant.server, variant=id, state="stopped", reason=reason)]
        for row in found:
            complete.append(
                msgspec.structs.replace(
                    row,
                    unlisted="" if listing is None else "; ".join(listing.problems),
                    workspaces=row.workspaces or mounted.get(id, ()),
                    tools=None if listing is None else len(listing.tools),
                    unapproved=len((unapproved or {}).get(id, ())),
                    dialogue=dialogue(variant, row.era or (listing.facts.era if listing else None)),
                )
            )
    return complete


def dialogue(variant: Variant, era: str | None) -> str:
    """Where a server cannot ask its users anything: why, and how to change it; "" where it can."""
    if era == "legacy" and variant.dialogue != "session" and isinstance(variant.launch, Process | Container):
        return 'off: one legacy process is shared by all callers; dialogue = "session" gives each caller its own'
    return ""


def _mounted(plan: Plan) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for workspace in plan.workspaces.values():
        for mount in workspace.mounts:
            names = found.setdefault(mount.variant, [])
            if workspace.name not in names:
                names.append(workspace.name)
    return {variant: tuple(names) for variant, names in found.items()}
