"""Spares: started in advance, taken once, replaced, and ended with what they were for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec
from fake_opener import FakeLaunched, until, variant

from mooring.config.plan import Variant
from mooring.errors import LaunchMissing
from mooring.instances.spares import AT_ONCE, Spares
from mooring.launch.base import Launched, Pipes
from mooring.nouns import InstanceKey

ONE = msgspec.structs.replace(variant(), spare=1)
KEY = ONE.key()


def silent(phase: str) -> None:
    pass


class FakeStarter:
    """Counts what it starts; ``failing`` is raised instead."""

    def __init__(self) -> None:
        self.started: list[FakeLaunched] = []
        self.keys: list[InstanceKey] = []
        self.alive = 0
        self.starting = 0
        self.most_starting = 0
        self.failing: Exception | None = None
        self.pipes = False

    @asynccontextmanager
    async def __call__(
        self, variant: Variant, key: InstanceKey, phase: Callable[[str], None]
    ) -> AsyncGenerator[Launched]:
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        await asyncio.sleep(0.001)
        self.starting -= 1
        if self.failing:
            raise self.failing
        launched = FakeLaunched(1000 + len(self.started), "its words")
        if self.pipes:
            (reader, _), (_, writer) = os.pipe(), os.pipe()
            launched.endpoint = Pipes(reader, writer)
        self.started.append(launched)
        self.keys.append(key)
        self.alive += 1
        try:
            yield launched  # type: ignore[misc]
        finally:
            self.alive -= 1


def waiting(spares: Spares) -> list[int | None]:
    return [row.pid for row in spares.rows() if row.reason.startswith("started in advance")]


async def ready(spares: Spares, count: int = 1) -> None:
    await until(lambda: len(waiting(spares)) == count)


async def test_a_start_takes_a_spare_and_another_one_follows() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await ready(spares)
        async with spares.launched(ONE, KEY, silent) as launched:
            assert launched is starter.started[0]
            assert waiting(spares) == []
            await ready(spares)
            assert starter.alive == 2
        assert starter.alive == 1, "leaving means gone"
        assert len(starter.started) == 2
        assert {key.scope for key in starter.keys} == {"spare:1", "spare:2"}, "each is something of its own"
    assert starter.alive == 0


async def test_without_a_spare_a_start_makes_a_fresh_process() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        async with spares.launched(variant(), variant().key(), silent):
            assert starter.keys == [variant().key()]
        assert starter.alive == 0


async def test_as_many_as_asked_for_a_few_at_a_time() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        spares.apply({"time": msgspec.structs.replace(ONE, spare=9)})
        await ready(spares, 9)
        assert starter.most_starting == AT_ONCE


async def test_a_reload_ends_the_spares_of_what_changed_and_leaves_the_others() -> None:
    """Fewer, more, another definition, none."""
    starter = FakeStarter()
    other = msgspec.structs.replace(ONE, id="other", server="other")
    async with Spares(starter) as spares:
        spares.apply({"time": msgspec.structs.replace(ONE, spare=3), "other": other})
        await ready(spares, 4)
        spares.apply({"time": ONE, "other": other})
        await until(lambda: starter.alive == 2)
        before = set(waiting(spares))
        spares.apply({"time": msgspec.structs.replace(ONE, digest="d2"), "other": other})
        await until(lambda: len(waiting(spares)) == 2 and starter.alive == 2)
        assert len(before & set(waiting(spares))) == 1
        spares.apply({})
        await until(lambda: starter.alive == 0)


async def test_a_spare_that_is_in_use_outlives_its_definition() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await ready(spares)
        async with spares.launched(ONE, KEY, silent):
            spares.apply({})
            await asyncio.sleep(0.01)
            assert starter.alive == 1
        assert starter.alive == 0


async def test_a_spare_that_ends_by_itself_is_replaced_after_a_back_off_and_said() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await ready(spares)
        starter.started[0].exited.set_result(3)
        await until(lambda: [row.state for row in spares.rows()] == ["backoff"])
        (row,) = spares.rows()
        assert row.reason == "a spare ended by itself (exit code 3) its words"
        assert row.retry_at is not None
        assert starter.alive == 0
        await until(lambda: len(waiting(spares)) == 1)


async def test_a_spare_that_went_down_with_its_keeper_is_replaced_at_once() -> None:
    starter = FakeStarter()
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await ready(spares)
        starter.started[0].exited.set_result(None)
        async with asyncio.timeout(0.9):  # a back-off is a second at least
            await until(lambda: waiting(spares) == [1001])


async def test_a_spare_is_shown_at_every_moment_of_its_replacement() -> None:
    """Also between an end that costs no wait and the start that follows at once."""
    starter = FakeStarter()
    states: set[str] = set()
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await ready(spares)
        starter.started[0].exited.set_result(None)
        async with asyncio.timeout(5):
            while waiting(spares) != [1001]:
                states |= {row.state for row in spares.rows()}
                await asyncio.sleep(0)
    assert states == {"starting", "backoff"}


async def test_a_failing_start_of_a_spare_is_said_and_disturbs_nobody() -> None:
    starter = FakeStarter()
    starter.failing = LaunchMissing("there is no uvx")
    async with Spares(starter) as spares:
        spares.apply({"time": ONE})
        await until(lambda: [row.reason for row in spares.rows()] == ["there is no uvx"])
        starter.failing = None
        async with spares.launched(ONE, KEY, silent):
            assert starter.keys == [KEY]


async def test_the_pipes_of_a_spare_that_nobody_took_are_closed() -> None:
    """A13: no leaked descriptors."""
    starter = FakeStarter()
    starter.pipes = True
    before = len(os.listdir("/dev/fd"))
    async with Spares(starter) as spares:
        spares.apply({"time": msgspec.structs.replace(ONE, spare=3)})
        await ready(spares, 3)
    assert len(os.listdir("/dev/fd")) == before + 6, "the test's own ends"
