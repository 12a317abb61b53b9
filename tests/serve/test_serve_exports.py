"""Exporters: when they run, and what their failures cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mooring.config.plan import Plan
from mooring.errors import Unavailable
from mooring.export.base import Offer
from mooring.observe.events import Event, Events
from mooring.serve.exports import Exports
from mooring.tasks import Tasks
from mooring.testing import wait_for

OFFER = Offer(Plan(), "http://mooring")
LIMIT = 5.0


class Told:
    """An exporter that does as it is told, one thing a run: return that, or raise it."""

    def __init__(self, name: str, *does: Any) -> None:
        self.name = name
        self.runs = 0
        self._does = list(does)
        self._ran = asyncio.Condition()

    async def export(self, offer: Offer) -> float | None:
        assert offer is OFFER
        async with self._ran:
            self.runs += 1
            self._ran.notify_all()
        does = self._does.pop(0) if self._does else None
        if isinstance(does, Exception):
            raise does
        return does

    async def ran(self, times: int) -> None:
        async with asyncio.timeout(LIMIT), self._ran:
            await self._ran.wait_for(lambda: self.runs >= times)


@asynccontextmanager
async def running(*exporters: Told, first_retry: float = 0.01) -> AsyncGenerator[tuple[Exports, list[Event]]]:
    seen: list[Event] = []
    exports = Exports(exporters, lambda: OFFER, Events((seen.append,)), first_retry=first_retry)
    async with Tasks() as tasks:
        exports.start(tasks)
        yield exports, seen


async def test_each_runs_at_once_on_its_schedule_and_after_changes() -> None:
    often, once = Told("often", 0.01, 0.01), Told("once")
    async with running(often, once) as (exports, _):
        await often.ran(3)
        await once.ran(1)
        assert once.runs == 1
        exports.applied(Plan())
        await once.ran(2)
        await often.ran(4)


async def test_a_failure_is_told_once_and_tried_again() -> None:
    """R20: what is down does not stop Mooring."""
    broken = Told("broken", Unavailable("down"), Unavailable("down"), ValueError("odd"))
    async with running(broken) as (exports, seen):
        await broken.ran(4)
        exports.applied(Plan())
        await broken.ran(5)
    assert [(event.name, event.data.get("error")) for event in seen] == [
        ("export.failed", "down"),
        ("export.failed", "odd"),
        ("export.recovered", None),
    ]


async def test_one_that_hangs_delays_neither_the_others_nor_the_end() -> None:
    class Hanging(Told):
        async def export(self, offer: Offer) -> float | None:
            await super().export(offer)
            await asyncio.get_running_loop().create_future()
            return None

    hanging, other = Hanging("hanging"), Told("other")
    async with asyncio.timeout(LIMIT), running(hanging, other):
        await hanging.ran(1)
        await other.ran(1)


async def test_one_that_fails_for_days_is_still_tried() -> None:
    """A power of two that no float holds must not end it."""
    broken = Told("broken", *[Unavailable("down")] * 1100)
    async with running(broken, first_retry=0.0) as (_, seen):
        await broken.ran(1101)
        await wait_for(lambda: [event.name for event in seen] == ["export.failed", "export.recovered"])
