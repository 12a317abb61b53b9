"""The first start of what is being added: on trial, listed, gone again unless it was kept. For ``serve.registry``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from mooring.config.plan import Process, Timeouts, Variant
from mooring.errors import MooringError, TimedOut
from mooring.instances import rules
from mooring.nouns import Listing
from mooring.serve.mounts import Record

if TYPE_CHECKING:
    from mooring.serve.app import App

FIRST = Timeouts(start=600.0, initialize=600.0)
"""Limits of a first start whose program gets a package before it speaks."""
LOOK = 0.1
"""Seconds between two looks at how far a start is."""
MARGIN = 5.0
"""Seconds more than an instance may take to end, for the engine to remove a container."""
GETTING = ("pull", "build", "resolve")
"""Steps of a start in which no server runs yet, so that what is said is said by the engine."""

Told = Callable[[str], None]
"""Hears how far an add is, a line at a time."""


@asynccontextmanager
async def trial(app: App, variant: Variant) -> AsyncGenerator[None]:
    """The variant can be leased in the block. Afterwards it is as the mounts say: it goes unless it was kept."""
    app.additions.trials[variant.id] = msgspec.structs.replace(
        variant, timeouts=FIRST if isinstance(variant.launch, Process) else variant.timeouts
    )
    try:
        await app.adjust()
        yield
    finally:
        app.additions.trials.pop(variant.id, None)
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
    key = variant.key()
    told(f"starting {record.name}")
    watching = asyncio.create_task(_watched(app, variant, told))
    try:
        lease = await app.pool.lease(app.plan.variants.get(variant.id, variant), key)
        try:
            async with asyncio.timeout(variant.timeouts.discover):
                await app.pool.listed(key)
        finally:
            lease.release()
    except TimeoutError:
        raise TimedOut(
            f'"{record.entry_id}" was not added: it did not list its tools within {variant.timeouts.discover:g} s.',
            server=record.server,
            phase="discover",
        ) from None
    except MooringError as error:
        error.args = (f'"{record.entry_id}" was not added: {error.message}',)
        raise
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    listing = app.listings.get(variant)
    assert listing is not None
    return listing


async def _watched(app: App, variant: Variant, told: Told) -> None:
    """Tell how far a start is, until cancelled: its steps, and what the engine says while it gets an image. What
    the server itself says is in its log; no agent reads it here."""

    def step() -> str:
        rows = (row for row in app.pool.rows() if row.variant == variant.id and row.state == "starting")
        return next((row.reason for row in rows), "")

    def said(line: str) -> None:
        if step() in GETTING:
            told(line)

    before = ""
    with app.logs.following(variant.server, said):
        while True:
            now = step()
            if now and now != before:
                told(now)
                before = now
            await asyncio.sleep(LOOK)


async def ended(app: App, variant: str) -> None:
    """Wait until instances of a variant that nobody has any more are gone; bounded by their own limits."""
    if variant in app.plan.variants:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(rules.leaving_limit(Timeouts()) + MARGIN):
            await app.pool.end(variant, "it was removed")
