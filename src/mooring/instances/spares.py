"""Servers started in advance (``spare = N``): spawned and waiting, not spoken to yet. The next start takes one.

Opened by ``serve.app`` around the pool; ``serve.upstream`` launches through it, so whether a start meets a spare or a
fresh process makes no other difference. Each spare has a task that enters the launcher's block and, when it is
cancelled, leaves it. Taking one makes another, a little later. Spares are no instances: they hold no lease, take no
place of ``max_instances``, and are not listed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Self

import msgspec

from mooring.config.plan import Variant
from mooring.instances import rules
from mooring.instances.opener import Progress
from mooring.launch.base import Launched, Pipes
from mooring.nouns import InstanceKey, InstanceRow
from mooring.tasks import Tasks, finish

AT_ONCE = 2
"""Spares that start at the same time: starts that somebody waits for go first."""
PAUSE = 0.1
"""Seconds between the taking of a spare and the start of the next: the start that took it goes first."""
SCOPE = "spare"
"""Stands in ``ps`` where others have the scope they are for."""

_log = logging.getLogger("mooring")

Launch = Callable[[Variant, InstanceKey, Progress], AbstractAsyncContextManager[Launched]]
"""Starts a server, step by step; leaving the block means the server is gone."""


class Spare:
    """One of them."""

    def __init__(self) -> None:
        self.launched: Launched | None = None
        """Once it runs."""
        self.since = 0.0
        """Since when, in seconds of the event loop's clock."""
        self.taken = False
        self.task: asyncio.Task[None]

    @property
    def waits(self) -> bool:
        """It can be taken."""
        return self.launched is not None and not self.launched.exited.done()


class Shelf:
    """The spares of one variant that nobody has taken yet, those that are starting too."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.spares: list[Spare] = []
        self.failures = 0
        self.problem = ""
        """Why the last one failed."""
        self.refill: asyncio.Handle | None = None
        self.refill_at = 0.0
        """When, by the event loop's clock."""

    def clear(self) -> None:
        """Nobody is to take these any more."""
        for spare in self.spares:
            spare.task.cancel()
        self.spares.clear()
        if self.refill is not None:
            self.refill.cancel()

    def rows(self, now: float) -> list[InstanceRow]:
        """Its lines in ``ps``."""
        row = InstanceRow(self.variant.server, self.variant.id, "starting", scope=SCOPE, last_error=self.problem)
        if not self.spares and self.refill is not None and self.problem:
            retry_at = time.time() + self.refill_at - now
            return [msgspec.structs.replace(row, state="backoff", reason=self.problem, retry_at=retry_at)]
        return [_row(row, spare, now) for spare in self.spares]


class Spares:
    """All of them: an async context manager; leaving it leaves none."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._permits = asyncio.Semaphore(AT_ONCE)
        self._numbers = count(1)
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.dismiss()
        await self._tasks.__aexit__()

    def apply(self, variants: Mapping[str, Variant]) -> None:
        """What should be: so many of each. Those of other variants and definitions end."""
        wanted = {(variant.id, variant.digest): variant for variant in variants.values() if rules.spares(variant)}
        for place in [place for place in self._shelves if place not in wanted]:
            self._shelves.pop(place).clear()
        for place, variant in wanted.items():
            shelf = self._shelves.setdefault(place, Shelf(variant))
            shelf.variant = variant
            self._fill(shelf)

    def dismiss(self) -> None:
        """All that nobody has taken begin to end; leaving the block waits for them."""
        self.apply({})

    @asynccontextmanager
    async def launched(self, variant: Variant, key: InstanceKey, progress: Progress) -> AsyncGenerator[Launched]:
        """The server for one life: a spare if there is one, else a fresh process, whose steps ``progress`` is told."""
        spare = self._take(variant)
        if spare is None or spare.launched is None:
            async with self._launch(variant, key, progress) as launched:
                yield launched
            return
        try:
            yield spare.launched
        finally:
            spare.task.cancel()
            await finish(_ended(spare.task))

    def rows(self) -> list[InstanceRow]:
        """Spares as ``ps`` shows them."""
        now = asyncio.get_running_loop().time()
        return [row for shelf in self._shelves.values() for row in shelf.rows(now)]

    def _take(self, variant: Variant) -> Spare | None:
        shelf = self._shelves.get((variant.id, variant.digest))
        spare = next((spare for spare in shelf.spares if spare.waits), None) if shelf else None
        if shelf is not None and spare is not None:
            shelf.spares.remove(spare)
            spare.taken = True
            shelf.failures, shelf.problem = 0, ""
            self._fill_later(shelf, PAUSE)
        return spare

    def _fill_later(self, shelf: Shelf, seconds: float) -> None:
        if shelf.refill is None:
            loop = asyncio.get_running_loop()
            shelf.refill, shelf.refill_at = loop.call_later(seconds, self._fill, shelf), loop.time() + seconds

    def _fill(self, shelf: Shelf) -> None:
        if shelf.refill is not None:
            shelf.refill.cancel()
            shelf.refill = None
        while len(shelf.spares) > shelf.variant.spare:
            shelf.spares.pop().task.cancel()
        while len(shelf.spares) < shelf.variant.spare:
            spare = Spare()
            shelf.spares.append(spare)
            spare.task = self._tasks.create_task(self._live(shelf, spare))

    async def _live(self, shelf: Shelf, spare: Spare) -> None:
        """One spare, from its start to its end."""
        variant = shelf.variant
        key = InstanceKey(variant.id, variant.digest, f"{SCOPE}:{next(self._numbers)}")
        loop = asyncio.get_running_loop()
        try:
            async with AsyncExitStack() as stack:
                async with self._permits, asyncio.timeout(rules.spare_limit(variant.timeouts)):
                    launched = await stack.enter_async_context(self._launch(variant, key, _Unwatched()))
                stack.callback(_close_pipes, spare, launched)
                spare.launched, spare.since = launched, loop.time()
                await asyncio.wait((launched.exited,))
                if spare.taken:
                    await loop.create_future()  # it was taken, and its end is for that one to see
                code = launched.exited.result()
                said = launched.stderr.text(3)
                self._lost(shelf, spare, f"a spare ended by itself (exit code {code}) {said}".strip(), code is not None)
        except Exception as error:  # a start will meet the same, and tell its caller
            if spare.taken:
                _log.warning("%s did not end cleanly: %s", variant.server, error)
            self._lost(shelf, spare, str(error) or "a spare did not start in time", True)

    def _lost(self, shelf: Shelf, spare: Spare, problem: str, blamed: bool) -> None:
        """It cannot be taken any more; the next one comes after a back-off, like any start that follows a failure."""
        if spare not in shelf.spares:
            return
        shelf.spares.remove(spare)
        ready_for = asyncio.get_running_loop().time() - spare.since if spare.launched else None
        shelf.failures, wait = rules.after_failure(shelf.failures, ready_for, blamed)
        shelf.problem = problem
        self._fill_later(shelf, wait)


def _close_pipes(spare: Spare, launched: Launched) -> None:
    """Whoever takes a server owns its pipes; the end of input is what asks one that nobody took to go."""
    if isinstance(launched.endpoint, Pipes) and not spare.taken:
        os.close(launched.endpoint.writer)
        os.close(launched.endpoint.reader)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))


class _Unwatched:
    """Nobody waits for a spare, nobody needs to know how far it is."""

    def phase(self, name: str) -> None:
        pass

    def spawned(self, launched: Launched) -> None:
        pass


def _row(row: InstanceRow, spare: Spare, now: float) -> InstanceRow:
    launched = spare.launched
    if launched is None:
        return msgspec.structs.replace(row, reason="starting in advance")
    return msgspec.structs.replace(
        row,
        reason="started in advance; the next start takes it",
        pid=launched.pid,
        container=launched.container,
        uptime=now - spare.since,
        stderr=launched.stderr.text(),
    )
