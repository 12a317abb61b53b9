"""What one key, or somebody whom an issuer vouches for, may do, for ``mooring check --as``: the very decisions that the
daemon takes, without one.

Reads the configuration and what the store knows: the key (its id, never its value), what the servers offered when they
were last listed, and pins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from mooring.access.keys import Keys
from mooring.access.pins import Pins
from mooring.config.home import Home
from mooring.config.plan import Plan, Workspace
from mooring.errors import ConfigError
from mooring.nouns import Principal
from mooring.nouns_check import AccessRow
from mooring.observe.events import Events
from mooring.relay.listings import Listings
from mooring.relay.table import Route
from mooring.relay.view import View
from mooring.relay.views import Views
from mooring.store.sqlite import MEMORY, SqliteStore


def permitted(
    plan: Plan, who: str, claims: tuple[str, ...] = (), workspace: str | None = None
) -> tuple[AccessRow, ...]:
    """A row for every tool, prompt and resource of the workspace of a key, or, for ``SUBJECT@ISSUER``, of whoever comes
    with a token that makes these ``claims`` (``NAME=VALUE``) in ``workspace``. Raises ConfigError when there is no such
    key or it opens nothing, or nobody lets the subject in; StoreError."""
    if "@" in who:
        principal = _subject(plan, who, claims, workspace)
        return asyncio.run(_permitted(plan, lambda _: principal))
    return asyncio.run(_permitted(plan, lambda keys: keys.holder(who)))


def _subject(plan: Plan, who: str, said: tuple[str, ...], workspace: str | None) -> Principal:
    from mooring.access import claims as saying  # most configurations have no issuers

    subject, _, name = who.rpartition("@")
    issuer = next((issuer for issuer in plan.identity if issuer.name == name), None)
    if issuer is None:
        known = ", ".join(issuer.name for issuer in plan.identity) or "none"
        raise ConfigError(f'There is no issuer "{name}". Issuers: {known}.')
    base = plan.gateway.public_url
    claims: dict[str, list[str]] = {"aud": [base]}
    for claim, _, value in (each.partition("=") for each in said):
        claims.setdefault(claim, []).append(value)
    words = {claim: " ".join(claims[claim]) for claim in ("scope", "scp") if claim in claims}
    whole = {**claims, **words, "sub": subject}
    if missing := saying.lacking(whole, issuer):
        raise ConfigError(f"Tokens of {name} need the scope {' '.join(missing)}; add: --claim scope={missing[0]}")
    found = saying.principals(whole, issuer, base)
    if not found or workspace not in (None, *found):
        where = f' into "{workspace}"' if workspace else ""
        raise ConfigError(f"No admission of {name} lets {subject}{where or ' in'} with these claims.")
    return found[workspace or next(iter(found))]


async def _permitted(plan: Plan, find: Callable[[Keys], Principal]) -> tuple[AccessRow, ...]:
    file = Home.locate().store_file
    async with SqliteStore(file if os.path.exists(file) else MEMORY) as store:
        keys = Keys(store, Events())
        keys.load()
        principal = find(keys)
        workspace = plan.workspaces.get(principal.workspace)
        if workspace is None:
            raise ConfigError(
                f'The key {principal.key_id} is for "{principal.workspace}", which is not in the configuration.'
            )
        listings = Listings(store)
        listings.load(plan.variants.values())
        pins = Pins(store, Events())
        pins.load()
    view = Views(plan, listings, pins.waiting).of(principal)
    return (*_routes(view), *_unlisted(view, workspace, principal))


def _routes(view: View) -> list[AccessRow]:
    table = view.table
    routes = (*table.tools.values(), *table.prompts.values(), *table.resources.values(), *table.template_order)
    return [_row(view, route) for route in routes]


def _row(view: View, route: Route) -> AccessRow:
    call = view.decide("call", route)
    return AccessRow(
        kind=route.about.kind,
        name=route.advertised,
        server=route.mount.server,
        listed=view.decide("list", route).allowed,
        call="no" if not call.allowed else "confirm" if call.confirm else "yes",
        reason=call.reason,
    )


def _unlisted(view: View, workspace: Workspace, principal: Principal) -> list[AccessRow]:
    """Servers that nobody has listed yet: what they offer is not known."""
    return [
        AccessRow("server", mount.server, mount.server, False, "unknown", "not listed yet; start it once")
        for mount in workspace.mounts
        if mount.variant not in view.listings and principal.variant in (None, mount.variant)
    ]
