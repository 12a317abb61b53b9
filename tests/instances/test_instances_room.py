"""``max_instances``: who makes room for whom, and what is told when nobody can."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from fake_opener import BOUND, Bench, until, variant

from mooring.config.plan import Variant
from mooring.config.plan_servers import Remote
from mooring.errors import Busy
from mooring.instances import room


def servers(*names: str, idle_timeout: float = 100.0) -> list[Variant]:
    return [variant(name, idle_timeout=idle_timeout) for name in names]


def running(bench: Bench) -> set[str]:
    return {row.variant for row in bench.pool.rows() if row.state == "ready"}


async def used(bench: Bench, one: Variant) -> None:
    async with asyncio.timeout(BOUND):
        (await bench.pool.lease(one, one.key())).release()
    bench.clock.skipped += 1


async def test_the_longest_unused_makes_room_and_no_more_run_than_allowed() -> None:
    """R14: idle ones only, least recently used first."""
    bench = Bench(max_instances=2)
    a, b, c = servers("a", "b", "c")
    async with bench.pool:
        await used(bench, a)
        await used(bench, b)
        await used(bench, a)
        await used(bench, c)
        assert running(bench) == {"a", "c"}
        assert bench.opener.alive == 2
        (gone,) = [row for row in bench.pool.rows() if row.variant == "b"]
        assert (gone.state, gone.reason) == ("stopped", "made room for c (gateway.max_instances)")
        await used(bench, b)
        assert running(bench) == {"b", "c"}


async def test_a_start_begins_only_when_the_one_that_makes_room_is_gone() -> None:
    """Never more processes than places, not even for a moment."""
    bench = Bench(max_instances=1)
    a, b = servers("a", "b")
    async with bench.pool:
        await used(bench, a)
        bench.opener.may_leave.clear()
        next_one = asyncio.create_task(used(bench, b))
        await bench.recorder.saw("starting", 2)
        await asyncio.sleep(0.02)
        assert bench.opener.entries == 1
        bench.opener.may_leave.set()
        await next_one
        assert bench.opener.alive == 1


async def test_what_is_in_use_stays_and_the_caller_is_told_that_all_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear error, no back-off: the next call tries again at once."""
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    bench = Bench(max_instances=1)
    a, b = servers("a", "b")
    async with bench.pool as pool:
        lease = await pool.lease(a, a.key())
        for _ in range(2):
            with pytest.raises(Busy, match=r"b was not started: 1 servers run already.*gateway\.max_instances"):
                await pool.lease(b, b.key())
        assert running(bench) == {"a"}
        (row,) = [row for row in pool.rows() if row.variant == "b"]
        assert (row.state, row.retry_at, row.restarts) == ("stopped", None, 0)
        lease.release()
        await used(bench, b)
        assert running(bench) == {"b"}


async def test_a_start_that_waits_for_a_place_gets_the_first_that_is_free() -> None:
    bench = Bench(max_instances=1)
    a, b = servers("a", "b")
    async with bench.pool as pool:
        lease = await pool.lease(a, a.key())
        waiting = asyncio.create_task(used(bench, b))
        await bench.recorder.saw("starting", 2)
        assert next(row for row in pool.rows() if row.variant == "b").reason == "queue"
        lease.release()
        await waiting
        assert running(bench) == {"b"}


async def test_two_that_wait_send_two_away() -> None:
    bench = Bench(max_instances=2)
    a, b, c, d = servers("a", "b", "c", "d")
    async with bench.pool:
        await used(bench, a)
        await used(bench, b)
        bench.opener.may_leave.clear()
        both = [asyncio.create_task(used(bench, one)) for one in (c, d)]
        await until(lambda: not running(bench))
        bench.opener.may_leave.set()
        await asyncio.gather(*both)
        assert running(bench) == {"c", "d"}


async def test_one_that_never_idles_or_has_its_session_open_is_not_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    bench = Bench(max_instances=2)
    (keeps_state,) = servers("a", idle_timeout=0)
    b, c = servers("b", "c")
    async with bench.pool as pool:
        await used(bench, keeps_state)
        (await pool.lease(b, b.key("s:0123456789abcdef"))).release()
        with pytest.raises(Busy):
            await pool.lease(c, c.key())
        pool.end_scope("s:0123456789abcdef")
        await used(bench, c)
        assert running(bench) == {"a", "c"}


async def test_a_waiter_that_is_stopped_frees_nobody_else_from_waiting() -> None:
    """One of two that wait is told to stop; the other still gets its place."""
    bench = Bench(max_instances=1)
    a, b, c = servers("a", "b", "c")
    async with bench.pool as pool:
        lease = await pool.lease(a, a.key())
        stopped = asyncio.create_task(used(bench, b))
        waiting = asyncio.create_task(used(bench, c))
        await bench.recorder.saw("starting", 3)
        pool.stop(b.key())
        lease.release()
        await waiting
        with pytest.raises(Exception, match="stopped on request"):
            await stopped
        assert running(bench) == {"c"}


async def test_what_is_not_started_here_takes_no_place() -> None:
    bench = Bench(max_instances=1)
    (a,) = servers("a")
    remotes = [msgspec.structs.replace(one, launch=Remote("http://x")) for one in servers("r", "s")]
    async with bench.pool:
        for one in (a, *remotes):
            await used(bench, one)
        assert running(bench) == {"a", "r", "s"}


async def test_what_holds_no_place_and_is_about_to_go_is_not_waited_for() -> None:
    """A remote that says goodbye makes no room, so that another one has to."""
    bench = Bench(max_instances=1)
    a, b, remote = servers("a", "b", "r")
    remote = msgspec.structs.replace(remote, launch=Remote("http://x"))
    async with bench.pool as pool:
        for one in (a, remote):
            await used(bench, one)
        bench.opener.may_leave.clear()
        pool.stop(remote.key())
        next_one = asyncio.create_task(used(bench, b))
        await bench.recorder.saw("starting", 3)
        await until(lambda: not running(bench))
        bench.opener.may_leave.set()
        await next_one
        assert running(bench) == {"b"}


async def test_a_restart_keeps_its_place() -> None:
    bench = Bench(max_instances=1)
    (a,) = servers("a")
    async with bench.pool as pool:
        await used(bench, a)
        assert pool.restart("a") == 1
        await bench.recorder.saw("ready", 2)
        assert bench.opener.alive == 1


async def test_fifty_servers_in_three_places_all_get_their_turn() -> None:
    bench = Bench(max_instances=3)
    async with bench.pool:
        await asyncio.gather(*(used(bench, one) for one in servers(*(f"s{number}" for number in range(50)))))
        assert len(bench.opener.lives) == 50
        assert bench.opener.alive <= 3
        assert not bench.opener.doubled


async def test_the_pool_ends_while_starts_wait_for_a_place() -> None:
    bench = Bench(max_instances=1)
    a, b = servers("a", "b")
    async with bench.pool as pool:
        await pool.lease(a, a.key())
        waiting = asyncio.create_task(used(bench, b))
        await bench.recorder.saw("starting", 2)
    with pytest.raises(Exception, match="Mooring is stopping"):
        await waiting
    assert bench.opener.alive == 0
