"""What a server offers, when it has become known: asked for, compared with what people approved, kept, told.

``App.listed`` calls it, which the pool calls at every ``ready`` and after a list change.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from mooring.config.plan import Variant
from mooring.errors import Unavailable
from mooring.instances.listing import take
from mooring.instances.opener import Demand
from mooring.nouns import Listing
from mooring.observe.events import Event
from mooring.relay import bridge
from mooring.relay.listings import Kind
from mooring.wire.connection import Connection

if TYPE_CHECKING:
    from mooring.serve.app import App

LIST_SHARE = 0.8
"""Part of ``timeouts.discover`` that one list may take, so that a hung list does not cost the others."""


async def discovered(app: App, variant: Variant, connection: Connection, demand: Demand | None) -> None:
    """Ask, keep, tell. Raises Crashed, StoreError, and Unavailable when no list could be had."""
    era = connection.facts.era
    asks = bridge.EVERYTHING if era == "modern" else bridge.asks(demand.capabilities) if demand else ""
    main = demand is None or demand.era is None
    listing = await take(
        connection,
        time.time(),
        complete=bridge.own,
        before=app.listings.taken(variant, (era, asks)),
        limit=variant.timeouts.discover * LIST_SHARE,
    )
    listing = msgspec.structs.replace(listing, problems=tuple(map(app.redact, listing.problems)))
    if listing.empty and listing.problems:
        raise Unavailable("; ".join(listing.problems), server=variant.server, phase="discover")
    await _pinned(app, variant, asks, app.listings.with_(variant, listing, asks, main))
    await app.listings.put(variant, listing, asks, main, lambda kinds: _known(app, variant, kinds))


async def _pinned(app: App, variant: Variant, asks: str, whole: Listing) -> None:
    """Compare it with what people approved, unless it is half a first sight, or of a definition that only drains."""
    current = variant.digest == app.plan.variants.get(variant.id, variant).digest
    # A fuller look follows the first one of a remote, and is as much first sight.
    half = asks != bridge.EVERYTHING and bridge.may_ask(variant)
    half = half and (app.listings.get(variant) is None or app.looks.looking(variant))
    half = half and not await app.pins.known(variant.id)
    if current and not half and await app.pins.seen(variant.id, variant.server, whole.tools):
        app.views.changed(variant.id)


def _known(app: App, variant: Variant, kinds: frozenset[Kind]) -> None:
    """The listing is known from this moment on."""
    today = app.plan.variants.get(variant.id, variant)
    if today.digest == variant.digest:
        app.views.missing(variant.id, None)
        if app.looking:
            app.looks.look(variant)
    elif app.listings.get(today) is not None:
        return  # a definition of yesterday, which only drains; else it stands in until that of today is listed
    touched = app.views.changed(variant.id)
    app.subscriptions.changed(touched, kinds)
    if kinds:
        data = {"kinds": sorted(kinds)}
        for workspace in touched:
            app.events.emit(Event("list.changed", time.time(), workspace, variant.server, data=data))
