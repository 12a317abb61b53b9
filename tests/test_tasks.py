"""A home for background tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mooring import tasks
from mooring.tasks import Tasks


async def forever(over: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        over.append("over")


async def test_leaving_the_block_ends_every_task_and_waits_for_it() -> None:
    """Invariant 3: every task has a home."""
    over: list[str] = []
    async with Tasks() as home:
        running = [home.create_task(forever(over)) for _ in range(3)]
        await asyncio.sleep(0)
    assert over == ["over"] * 3
    assert all(task.cancelled() for task in running)


async def test_a_failed_task_is_logged_and_ends_no_neighbour(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    over: list[str] = []
    with caplog.at_level(logging.ERROR, "mooring"):
        async with Tasks() as home:
            neighbour = home.create_task(forever(over))
            home.create_task(fail())
            await asyncio.sleep(0.01)
            assert not neighbour.done()
    assert "mine" in caplog.text


async def test_a_task_that_resists_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 4: every wait in shutdown is bounded."""
    monkeypatch.setattr(tasks, "ENDING", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(2):
        async with Tasks() as home:
            task = home.create_task(stubborn())
            await asyncio.sleep(0)
        release.set()
        await task
