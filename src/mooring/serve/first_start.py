"""The first start of what is being added: on trial, listed, gone again unless it was kept. For ``serve.registry``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from mooring.config.plan import Variant
from mooring.errors import MooringError, TimedOut, Unavailable
from mooring.instances import rules
from mooring.nouns import Listing
from mooring.serve.discovery import LIST_SHARE
from mooring.serve.mounts import Record

if TYPE_CHECKING:
    from mooring.serve.app import App

LOOK = 0.1
"""Seconds between two looks at how far a start is."""
STILL = 5.0
"""Seconds of silence after which an add says that it goes on: clients take a silent server for a dead one."""
MARGIN = 5.0
"""Seconds more than an instance may take to end, for the engine to remove a container."""
GETTING = ("pull", "build", "resolve")
"""Steps of a start in which no server runs yet, so that what is said is said by the engine."""

Told = Callable[[str], None]
"""Hears how far an add is, a line at a time."""


@asynccontextmanager
async def trial(app: App, variant: Variant) -> AsyncGenerator[None]:
    """The variant can be leased in the block. Afterwards it is as the mounts say: it goes unless it was kept."""
    app.additions.trials.append(variant)
    try:
        await app.adjust()
        yield
    finally:
        app.additions.trials.remove(variant)
        over = asyncio.get_running_loop().create_future()
        app.tasks.create_task(_settled(app, variant, over))
        await asyncio.shield(over)  # also when the asker has gone: what was begun ends


async def _settled(app: App, variant: Variant, over: asyncio.Future[None]) -> None:
    try:
        await app.adjust()
        await ended(app, variant.id)
    finally:
        if not over.done():
            over.set_result(None)


async def listed(app: App, record: Record, variant: Variant, told: Told) -> Listing:
    """Start it and list what it offers. Raises Unavailable, TimedOut and LaunchMissing."""
    told(f"starting {record.name}")
    watching = asyncio.create_task(_watched(app, variant, told))
    try:
        lease = await app.pool.lease(app.plan.variants.get(variant.id, variant), variant.key())
        try:
            return await _discovered(app, record, variant)
        finally:
            lease.release()
    except MooringError as error:
        error.args = (f'"{record.entry_id}" was not added: {error.message}',)
        raise
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _discovered(app: App, record: Record, variant: Variant) -> Listing:
    """What it offers, now that it runs. One whose tools cannot be had is of no use here. Raises TimedOut and
    Unavailable."""
    loop, limit = asyncio.get_running_loop(), app.plan.added.timeouts.discover
    began = loop.time()
    try:
        async with asyncio.timeout(limit):
            await app.pool.listed(variant.key())
        listing = app.listings.get(variant)
        assert listing is not None
        if listing.tools or not listing.problems:
            return listing
        why = "; ".join(listing.problems)
    except (TimeoutError, Unavailable) as error:
        why = str(error)
    if loop.time() - began >= limit * LIST_SHARE:
        raise TimedOut(
            f"it did not list its tools within {limit:g} s (timeouts.discover of [catalog] sets the limit)",
            server=record.server,
            phase="discover",
        )
    raise Unavailable(f"what it offers could not be listed: {why}", server=record.server, phase="discover")


async def _watched(app: App, variant: Variant, told: Told) -> None:
    """Tell how far a start is, until cancelled: its steps, how long they take, and what is said while an image or
    package is got. What the server itself says is in its log; no agent reads it here."""
    loop = asyncio.get_running_loop()
    before, began, heard = "", loop.time(), loop.time()

    def tell(line: str) -> None:
        nonlocal heard
        heard = loop.time()
        told(line)

    def look() -> None:
        nonlocal before, began
        rows = (row for row in app.pool.rows() if row.variant == variant.id and row.state == "starting")
        now = next((row.reason for row in rows), "")
        if now and now != before:
            before, began = now, loop.time()
            tell(now)

    def said(line: str) -> None:
        look()
        if before in GETTING:
            tell(line)

    with app.logs.following(variant.server, said):
        while True:
            look()
            if loop.time() - heard >= STILL:
                tell(f"{before or 'waiting'}, {loop.time() - began:.0f} s")
            await asyncio.sleep(LOOK)


async def ended(app: App, variant: str) -> None:
    """Wait until instances of a variant that nobody has any more are gone; bounded by their own limits."""
    if variant in app.plan.variants:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(rules.leaving_limit(app.plan.added.timeouts) + MARGIN):
            await app.pool.end(variant, "it was removed")
