"""When a server is looked at again. Whole looks are in ``tests/journeys``; the pool and the views are doubles here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from mooring.config.plan import Mount, Plan, Variant, Workspace
from mooring.config.plan_servers import Process
from mooring.errors import Unavailable
from mooring.instances.pool import Pool
from mooring.nouns import Facts, InstanceKey, Listing
from mooring.relay.first_look import FirstLooks
from mooring.relay.listings import Listings
from mooring.relay.views import Views
from mooring.store.base import Store
from mooring.tasks import Tasks

VARIANT = Variant(id="far", server="far", kwargs="{}", digest="d", launch=Process(("far",)))
WORKSPACE = Workspace("w", (Mount("w", "far", "far", "far"),))
PLAN = Plan(variants={"far": VARIANT}, workspaces={"w": WORKSPACE})


class Gate:
    """A pool whose starts go on when they are told to: each element of ``fails`` is one start."""

    def __init__(self, listings: Listings, fails: list[bool]) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.retried: list[str] = []
        self._listings = listings
        self._fails = fails

    async def lease(self, variant: Variant, key: InstanceKey, demand: object = None) -> Any:
        self.begun.set()
        await self.go.wait()
        if self._fails.pop(0):
            raise Unavailable("far needs login", server="far")
        self.key = key
        return self

    async def listed(self, key: InstanceKey) -> None:
        listing = Listing(Facts("modern", "2026-07-28"))
        self._listings._known[VARIANT.id, VARIANT.digest] = self._listings._joined(VARIANT, listing, "", True)

    def release(self) -> None: ...

    def retry(self, server: str) -> None:
        self.retried.append(server)


@asynccontextmanager
async def looking() -> AsyncGenerator[tuple[FirstLooks, Gate, Views, Listings]]:
    """Looks of which the first fails and the second does not."""
    listings = Listings(cast(Store, None))
    views, pool = Views(PLAN, listings), Gate(listings, [True, False])
    async with asyncio.timeout(30), Tasks() as tasks:
        yield FirstLooks(cast(Pool, pool), listings, views, tasks), pool, views, listings


async def test_a_look_that_began_before_a_login_and_fails_is_followed_by_another() -> None:
    async with looking() as (looks, pool, views, listings):
        looks.start(PLAN)
        await pool.begun.wait()
        looks.again("far")
        pool.go.set()
        await looks.done()
    assert pool.retried == ["far"]
    assert listings.get(VARIANT) is not None
    assert views.reason("far") == ""


async def test_what_failed_is_no_reason_any_more_once_it_is_looked_at_again() -> None:
    async with looking() as (looks, pool, views, listings):
        pool.go.set()
        looks.start(PLAN)
        await looks.done()
        assert views.reason("far") == "far needs login"
        pool.go.clear()
        looks.again("far")
        assert views.reason("far") == ""
        pool.go.set()
        await looks.done()
    assert listings.get(VARIANT) is not None


async def test_a_definition_of_yesterday_that_fails_is_held_against_none() -> None:
    """Neither against that of today, nor against itself when it comes back."""
    async with looking() as (looks, pool, views, listings):
        looks.start(PLAN)
        await pool.begun.wait()
        views.apply(Plan(variants={"far": msgspec.structs.replace(VARIANT, digest="e")}, workspaces={"w": WORKSPACE}))
        pool.go.set()
        await looks.done()
        assert views.reason("far") == ""
        views.apply(PLAN)
        looks.start(PLAN)
        await looks.done()
    assert listings.get(VARIANT) is not None
