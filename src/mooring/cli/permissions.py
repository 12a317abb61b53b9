"""What one key may do, for ``mooring check --as KEY-ID``: the very decisions that the daemon takes, without one.

Reads the configuration and what the store knows: the key (its id, never its value), what the servers offered when they
were last listed, and pins.
"""

from __future__ import annotations

import asyncio
import os

from mooring.access.keys import Keys
from mooring.access.pins import Pins
from mooring.config.home import Home
from mooring.config.plan import Plan, Workspace
from mooring.errors import ConfigError
from mooring.nouns import AccessRow, Principal
from mooring.observe.events import Events
from mooring.relay.listings import Listings
from mooring.relay.table import Route
from mooring.relay.view import View
from mooring.relay.views import Views
from mooring.store.sqlite import SqliteStore


def permitted(plan: Plan, key_id: str) -> tuple[AccessRow, ...]:
    """A row for every tool, prompt and resource of the key's workspace. Raises ConfigError when there is no such key or
    it opens nothing, StoreError."""
    file = Home.locate().store_file
    if not os.path.exists(file):
        raise ConfigError(f'There is no key "{key_id}"; see: mooring key list')
    return asyncio.run(_permitted(plan, key_id, file))


async def _permitted(plan: Plan, key_id: str, file: str) -> tuple[AccessRow, ...]:
    async with SqliteStore(file) as store:
        keys = Keys(store, Events())
        keys.load()
        principal = keys.holder(key_id)
        workspace = plan.workspaces.get(principal.workspace)
        if workspace is None:
            raise ConfigError(f'The key {key_id} is for "{principal.workspace}", which is not in the configuration.')
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
