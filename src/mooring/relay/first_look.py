"""First looks: a variant that nobody has listed yet is started once in the background, listed, and left to idle.

So a new server's tools appear by themselves, and apart from that a list starts nothing. Where a server may ask some of
its callers, a look declares all that Mooring can carry: there may be tools for those callers only. Owns one task for
each look under way. Used by ``relay.greetings``, told by ``serve`` when the plan changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from mooring.config.plan import Plan, Variant
from mooring.errors import MooringError, Unavailable
from mooring.instances.opener import Demand
from mooring.instances.pool import Pool
from mooring.nouns import InstanceKey
from mooring.relay.bridge import CARRIED, may_ask
from mooring.relay.listener import LookListener
from mooring.relay.listings import Listings
from mooring.relay.refusals import explained
from mooring.relay.views import Views
from mooring.tasks import Tasks

PATIENCE = 3.0
"""Seconds that lists wait, in all, for a first look, and that a call waits for the look at the server it is for."""
UNLIMITED = 1 << 30
RELOADS = 4
"""So often may the definition of a server change while one call waits for its listing."""


class FirstLooks:
    """The looks under way. ``tasks`` owns their tasks; ``places``: how many servers may run at once (0: any number), of
    which looks take half, so that calls find a place beside them."""

    def __init__(self, pool: Pool, listings: Listings, views: Views, tasks: Tasks, places: int = 0) -> None:
        self._pool = pool
        self._listings = listings
        self._views = views
        self._tasks = tasks
        self._permits = asyncio.Semaphore(max(1, places // 2) if places else UNLIMITED)
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._retry_at: dict[tuple[str, str], float] = {}
        self._waited_for: set[tuple[str, str]] = set()
        """Those that lists do not wait for any more."""
        self._overtaken: set[tuple[str, str]] = set()
        """Those under way that began before ``again``."""

    def start(self, plan: Plan) -> None:
        """Look at every mounted variant that can be started and has no listing."""
        mounted = {mount.variant for workspace in plan.workspaces.values() for mount in workspace.mounts}
        places = {_place(variant) for variant in plan.variants.values()}
        self._waited_for &= places
        self._retry_at = {place: at for place, at in self._retry_at.items() if place in places}
        for variant in plan.variants.values():
            if variant.id in mounted:
                self.look(variant)

    def again(self, server: str) -> None:
        """What made looks at the server fail may be gone: look now, where there is no listing, and wait for it. One
        that is under way may yet fail for the old reason, and is then followed by another."""
        for variant in self._views.plan.variants.values():
            place = _place(variant)
            if variant.server != server or not (place in self._under_way or place in self._retry_at):
                continue
            self._retry_at.pop(place, None)
            self._waited_for.discard(place)
            self._views.missing(variant.id, None)
            if place in self._under_way:
                self._overtaken.add(place)
            else:
                self.look(variant)

    async def wait(self, variants: Iterable[str]) -> None:
        """Wait for the first looks at these variants, ``PATIENCE`` seconds at most in all, and only once for each; try
        failed ones again whose back-off is over (in the background)."""
        asked = set(variants)
        for variant in asked & self._views.plan.variants.keys():
            self.look(self._views.plan.variants[variant])
        pending = {
            task: place
            for place, task in self._under_way.items()
            if place[0] in asked and place not in self._waited_for
        }
        if pending:
            _, late = await asyncio.wait(pending, timeout=PATIENCE)
            self._waited_for.update(pending[task] for task in late)

    async def needed(self, id: str) -> None:
        """A call is for a variant that has no listing: wait ``PATIENCE`` seconds at most for the look under way, or for
        one that begins now. Raises MooringError saying why there is no listing yet."""
        looked: Variant | None = None
        for _ in range(RELOADS):
            variant = self._views.plan.variants.get(id)
            if variant is None or self._listings.get(variant) is not None:
                self._views.changed(id)  # the asker's view may be a moment older than the listing
                return
            if looked is not None and _place(variant) == _place(looked):
                break
            looked = variant
            self.look(variant)
            task = self._under_way.get(_place(variant))
            if task is not None:
                await asyncio.wait((task,), timeout=PATIENCE)
        if looked is not None:
            raise self._in_the_way(looked)

    def _in_the_way(self, variant: Variant) -> MooringError:
        """Why a variant is not listed."""
        obstacle = None if variant.unavailable else self._pool.obstacle(self._key(variant))
        if obstacle is not None:
            return obstacle
        reason = variant.unavailable or self._views.reason(variant.id) or "it is still starting"
        retry_at = self._retry_at.get(_place(variant))
        return Unavailable(f"{variant.server} is not available: {reason}", server=variant.server, retry_at=retry_at)

    def looking(self, variant: Variant) -> bool:
        """Whether a look at this definition is under way."""
        return _place(variant) in self._under_way

    async def done(self) -> None:
        """Wait until no look is under way; bounded by the limits of the starts themselves."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    def look(self, variant: Variant) -> None:
        """Look at a variant that can be started and is not listed completely, unless that failed lately."""
        place = _place(variant)
        if variant.unavailable or place in self._under_way or self._listings.complete(variant):
            return
        if time.time() < self._retry_at.get(place, 0.0):
            return
        task = self._under_way[place] = self._tasks.create_task(self._looked(variant))
        task.add_done_callback(lambda _: self._under_way.pop(place, None))

    async def _looked(self, variant: Variant) -> None:
        """As everybody meets it, and where that is not all, as one who can be asked everything would."""
        if self._listings.get(variant) is None:
            await self._tried(variant, self._key(variant))
        if self._listings.get(variant) is not None and not self._listings.complete(variant):
            await self._tried(variant, self._own_key(variant))

    async def _tried(self, variant: Variant, key: InstanceKey) -> None:
        """One look, and another if ``again`` was called during one that failed."""
        place = _place(variant)
        try:
            failure = await self._failure(variant, key)
            while failure is not None and place in self._overtaken:
                self._overtaken.discard(place)
                self._pool.retry(variant.server)
                failure = await self._failure(variant, key)
        finally:
            self._overtaken.discard(place)
            if key.scope:
                self._pool.end_scope(key.scope)
        if failure is not None:
            self._failed(variant, *failure)

    async def _failure(self, variant: Variant, key: InstanceKey) -> tuple[str, float | None] | None:
        """Why a look failed, and when to try again if that is known; None when there is a listing now."""
        demand = None
        if key.scope and may_ask(variant):
            demand = Demand(CARRIED, None, LookListener(key, self._pool))
        try:
            async with self._permits:
                lease = await self._pool.lease(variant, key, demand)
                try:
                    async with asyncio.timeout(variant.timeouts.discover):
                        await self._pool.listed(lease.key)
                finally:
                    lease.release()
        except TimeoutError:
            return f"did not list what it offers within {variant.timeouts.discover:g} s", None
        except MooringError as error:
            return explained(error), error.details.get("retry_at")
        return None

    def _failed(self, variant: Variant, reason: str, retry_at: float | None) -> None:
        today = self._views.plan.variants.get(variant.id)
        if today is None or _place(today) != _place(variant):
            return  # that of today has a look of its own, and this one too, should it come back
        self._retry_at[_place(variant)] = retry_at or time.time() + 60.0
        self._waited_for.add(_place(variant))
        if self._listings.get(variant) is None:
            self._views.missing(variant.id, reason)

    def _key(self, variant: Variant) -> InstanceKey:
        """Where instances belong to workspaces or sessions, the one that is only looked at belongs to its look."""
        mounts = (mount for workspace in self._views.plan.workspaces.values() for mount in workspace.mounts)
        shared = any(mount.variant == variant.id and mount.sharing == "shared" for mount in mounts)
        return variant.key() if shared and variant.dialogue != "session" else self._own_key(variant)

    def _own_key(self, variant: Variant) -> InstanceKey:
        return variant.key(f"look:{variant.id}")


def _place(variant: Variant) -> tuple[str, str]:
    return variant.id, variant.digest
