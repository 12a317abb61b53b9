"""All instances, by key: who gets a lease on which, and which of them should not be there any more.

An async context manager; opened by ``serve.app``, used by the relay (leases), by reload (``apply``) and by the control
verbs (``rows``, ``restart``, ``stop``). It starts nothing by itself: an instance starts when somebody wants a lease.
Leaving it ends all instances at once. It knows neither launchers, transports nor workspaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from mooring.config.plan import Mount, Variant
from mooring.errors import Unavailable
from mooring.instances import rules
from mooring.instances.health import Complete, as_is
from mooring.instances.opener import Demand, Means, Opener
from mooring.instances.room import Room
from mooring.nouns import InstanceKey, InstanceRow
from mooring.observe.events import Events
from mooring.tasks import finish
from mooring.wire.connection import Connection

if TYPE_CHECKING:
    from mooring.instances.chores import Chores
    from mooring.instances.instance import Instance
    from mooring.instances.lease import Lease

CANCELLED_LIMIT = 2.0
"""Seconds for owner tasks that had to be cancelled at the very end."""

Listed = Callable[[Variant, InstanceKey, Connection, Demand | None], Awaitable[None]]
"""Called at each ``ready`` and after the server said that its lists changed, in a task of the instance; with what was
asked of it."""


class Pool:
    """``max_starting``: starts under way at the same time. ``max_instances``: what may run at the same time; 0: no
    limit. ``complete`` fits params to a server's era (health pings). ``clock``: monotonic seconds."""

    def __init__(
        self,
        open: Opener,
        events: Events,
        *,
        listed: Listed,
        max_starting: int = 32,
        max_instances: int = 0,
        complete: Complete = as_is,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instances: dict[InstanceKey, Instance] = {}
        permits, room = asyncio.Semaphore(max_starting), Room(max_instances, self._instances.values)
        self._means = Means(open, listed, complete, events, clock, permits, room, self._spawn, self._forget)
        self._variants: Mapping[str, Variant] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._closing = False
        self._forgotten = asyncio.Event()
        """Set when an instance is gone for good, and when others are wanted."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """All instances stop at once; bounded, and done even if the caller is cancelled meanwhile."""
        self._closing = True
        limits = [rules.leaving_limit(instance.variant.timeouts) for instance in self._instances.values()]
        for instance in tuple(self._instances.values()):
            instance.dismiss("Mooring is stopping")
        await finish(self._ended(max(limits, default=0.0)))

    def ready(self, key: InstanceKey) -> Instance | None:
        """The instance, if a lease on it can be had at once; the warm path."""
        instance = self._instances.get(key)
        return instance if instance is not None and instance.ready else None

    async def lease(self, variant: Variant, key: InstanceKey, demand: Demand | None = None) -> Lease:
        """A lease on the instance, which is started if need be. No time limit of its own beyond those of a start; a
        caller that gives up leaves the start to the others.

        Raises Unavailable: at once when the variant cannot be started, is no longer wanted or backs off (BackingOff);
        else whatever the start failed with, the same for all who waited.
        """
        while True:
            instance = self.ready(key)
            if instance is not None:
                return instance.lease()
            self._admit(variant, key)
            instance = self._instances.get(key)
            if instance is None:
                from mooring.instances.instance import Instance  # not before the first server starts

                instance = self._instances[key] = Instance(key, variant, self._means)
            lease = await instance.wanted(variant, demand)
            if lease is not None:
                return lease

    async def listed(self, key: InstanceKey) -> None:
        """Wait until the running instance's first listing is over. Raises Unavailable when it failed or there is no
        such instance; no time limit of its own beyond ``timeouts.discover``."""
        chores = self._chores(key)
        if chores is None:
            raise Unavailable(f"{key.variant} is not running", phase="discover")
        await chores.listed()

    def relist(self, key: InstanceKey) -> None:
        """The server said that its lists changed: they are taken again, debounced."""
        if (chores := self._chores(key)) is not None:
            chores.relist()

    def suspect(self, key: InstanceKey) -> None:
        """A call timed out: an instance that does not answer a ping now is stopped, and the next lease starts it."""
        if (chores := self._chores(key)) is not None:
            chores.suspect()

    def obstacle(self, key: InstanceKey) -> Unavailable | None:
        """Why the instance serves nobody at this moment: it backs off or is starting. None: nothing is in the way."""
        instance = self._instances.get(key)
        return instance.obstacle() if instance is not None else None

    def apply(self, variants: Mapping[str, Variant], mounts: Iterable[Mount] = ()) -> None:
        """What should be, and for whom. Instances that are not part of it drain; the others are left alone. Until the
        first call anything may be leased, from then on only this."""
        self._variants = variants
        self._forgotten.set()
        mounted: dict[str, list[Mount]] = {}
        for mount in mounts if self._instances else ():
            mounted.setdefault(mount.variant, []).append(mount)
        for key, instance in tuple(self._instances.items()):
            reason = rules.unwanted(key, variants) or rules.deserted(key, mounted.get(key.variant, ()))
            if reason:
                instance.drain(reason)
            else:
                instance.keep(variants[key.variant])

    def stop(self, key: InstanceKey, reason: str = "stopped on request") -> None:
        """End an instance now; the next lease starts it again."""
        instance = self._instances.get(key)
        if instance is not None:
            instance.stop(reason)

    def drain(self, key: InstanceKey, reason: str) -> None:
        """Let an instance serve out who has it now, and end then; nobody else gets a lease on it."""
        if (instance := self._instances.get(key)) is not None:
            instance.drain(reason)

    async def end(self, variant: str, reason: str) -> None:
        """End all instances of a variant that is not wanted any more, and wait until they are gone, or wanted again.
        Bounded by their own limits."""
        while variant not in (self._variants or ()):
            self._forgotten.clear()
            for instance in [instance for key, instance in self._instances.items() if key.variant == variant]:
                instance.dismiss(reason)
            if variant not in {key.variant for key in self._instances}:
                return
            await self._forgotten.wait()

    def restart(self, server: str) -> int:
        """Start the server's ready instances anew, and those that back off without waiting; how many that were."""
        found = [
            instance
            for instance in self._instances.values()
            if instance.variant.server == server and instance.restartable
        ]
        for instance in found:
            instance.restart()
        return len(found)

    def retry(self, server: str) -> None:
        """What kept the server from serving may be gone: its instances that back off start without waiting, and what
        the ready ones offer is listed anew."""
        for key, instance in tuple(self._instances.items()):
            if instance.variant.server != server:
                continue
            if instance.ready:
                self.relist(key)
            elif instance.restartable:
                instance.restart()

    def end_scope(self, scope: str) -> None:
        """A session, or whatever the scope stands for, is over: its instances end with it."""
        for instance in [instance for key, instance in self._instances.items() if key.scope == scope]:
            instance.leave("what it was started for is over")

    @property
    def waiting(self) -> int:
        """Those who wait for a start."""
        return sum(instance.waiting for instance in self._instances.values())

    def rows(self) -> list[InstanceRow]:
        """All instances as ``ps`` shows them, ordered by key."""
        return [self._instances[key].row() for key in sorted(self._instances)]

    def _chores(self, key: InstanceKey) -> Chores | None:
        instance = self._instances.get(key)
        return instance.life.chores if instance is not None and instance.life is not None else None

    def _admit(self, variant: Variant, key: InstanceKey) -> None:
        if self._closing:
            raise Unavailable("Mooring is stopping", server=variant.server)
        reason = variant.unavailable
        if not reason and self._variants is not None:
            reason = rules.unwanted(key, self._variants)
        if reason:
            raise Unavailable(f"{variant.server}: {reason}", server=variant.server)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._owners.add(task)
        task.add_done_callback(self._owners.discard)

    def _forget(self, key: InstanceKey) -> None:
        self._instances.pop(key, None)
        self._forgotten.set()

    async def _ended(self, limit: float) -> None:
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=limit)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CANCELLED_LIMIT)
