"""Idle, drain, stop, end of a scope, end of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_opener import BOUND, Bench, Recorder, until, variant

from mooring.config.plan import Mount, Sharing
from mooring.errors import Unavailable
from mooring.instances.opener import Running
from mooring.instances.pool import Pool
from mooring.observe.events import Events

IDLER = variant(idle_timeout=0.05)
KEY = IDLER.key()


async def test_an_unused_instance_idles_away_and_the_next_call_starts_it_transparently() -> None:
    """R14"""
    bench = Bench()
    async with bench.pool as pool:
        (await pool.lease(IDLER, KEY)).release()
        assert (await bench.recorder.saw("stopped")).data["reason"] == "idle for 0.05 s"
        await bench.opener.lives[0].gone.wait()
        (await pool.lease(IDLER, KEY)).release()
        assert len(bench.opener.lives) == 2
        assert pool.rows()[0].restarts == 0


async def test_a_lease_keeps_an_instance_however_long_the_call_takes() -> None:
    """R14: tool calls count as activity."""
    bench = Bench()
    async with bench.pool as pool:
        lease = await pool.lease(IDLER, KEY)
        bench.clock.skipped += 1000
        await asyncio.sleep(0.15)
        assert bench.state(KEY) == "ready"
        lease.release()
        await bench.recorder.saw("stopped")


async def test_each_call_starts_the_idle_time_anew() -> None:
    """R14"""
    bench = Bench()
    calm = variant(idle_timeout=100)
    async with bench.pool as pool:
        for _ in range(5):
            (await pool.lease(calm, calm.key())).release()
            bench.clock.skipped += 99
        instance = pool.ready(calm.key())
        assert instance is not None
        instance._idle()  # the timer fires; 99 of 100 s have passed
        assert pool.ready(calm.key()) is instance
        bench.clock.skipped += 2
        instance._idle()
        assert pool.ready(calm.key()) is None


async def test_zero_means_never() -> None:
    """R14: 0 means never."""
    bench = Bench()
    forever = variant(idle_timeout=0)
    async with bench.pool as pool:
        (await pool.lease(forever, forever.key())).release()
        bench.clock.skipped += 1e9
        await asyncio.sleep(0.1)
        assert bench.state(forever.key()) == "ready"


async def test_a_changed_idle_timeout_holds_from_the_reload_on() -> None:
    bench = Bench()
    forever = variant(idle_timeout=0)
    async with bench.pool as pool:
        (await pool.lease(forever, KEY)).release()
        pool.apply({"time": IDLER})
        await bench.recorder.saw("stopped")


async def test_a_lease_taken_while_it_stops_waits_for_the_new_start() -> None:
    """R14"""
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        bench.opener.may_leave.clear()
        (await pool.lease(IDLER, KEY)).release()
        await until(lambda: bench.state(KEY) == "stopping")
        waiters = [asyncio.create_task(pool.lease(IDLER, KEY)) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert bench.opener.entries == 1
        bench.opener.may_leave.set()
        leases = await asyncio.gather(*waiters)
        assert {id(lease.connection) for lease in leases} == {id(bench.opener.lives[1].connection)}
        assert not bench.opener.doubled


async def test_a_changed_definition_starts_beside_the_old_one_which_drains() -> None:
    bench = Bench()
    old, new = variant(digest="d1"), variant(digest="d2")
    other = variant("other")
    async with bench.pool as pool:
        pool.apply({"time": old, "other": other})
        held = await pool.lease(old, old.key())
        (await pool.lease(other, other.key())).release()
        pool.apply({"time": new, "other": other})
        assert pool.ready(old.key()) is None
        assert pool.ready(other.key()) is not None
        with pytest.raises(Unavailable, match="its definition changed"):
            await pool.lease(old, old.key())
        fresh = await pool.lease(new, new.key())
        assert fresh.connection is not held.connection
        assert [(row.state, row.reason) for row in pool.rows()] == [
            ("ready", ""),
            ("ready", "draining: its definition changed"),
            ("ready", ""),
        ]
        held.release()
        await bench.recorder.saw("stopped")
        await until(lambda: len(pool.rows()) == 2)
        with pytest.raises(Unavailable, match="its definition changed"):
            await pool.lease(old, old.key())
        assert len(bench.opener.lives) == 3


async def test_an_unused_instance_whose_variant_is_gone_stops_at_once_and_is_forgotten() -> None:
    bench = Bench()
    async with bench.pool as pool:
        (await pool.lease(IDLER, KEY)).release()
        pool.apply({})
        assert (await bench.recorder.saw("stopped")).data["reason"] == "it is no longer configured"
        await until(lambda: not pool.rows())


async def test_a_definition_that_comes_back_while_draining_is_used_again() -> None:
    bench = Bench()
    old = variant()
    async with bench.pool as pool:
        held = await pool.lease(old, old.key())
        pool.apply({})
        pool.apply({"time": old})
        again = await pool.lease(old, old.key())
        assert again.connection is held.connection
        held.release()
        again.release()
        assert bench.state(old.key()) == "ready"


async def test_a_start_under_way_serves_its_waiters_before_it_drains() -> None:
    bench = Bench()
    bench.opener.may_answer.clear()
    old = variant()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        waiter = asyncio.create_task(pool.lease(old, old.key()))
        await bench.recorder.saw("starting")
        pool.apply({})
        bench.opener.may_answer.set()
        (await waiter).release()
        await bench.recorder.saw("stopped")


async def test_a_draining_start_whose_last_waiter_gives_up_is_called_off() -> None:
    bench = Bench()
    bench.opener.may_answer.clear()
    old = variant()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        waiter = asyncio.create_task(pool.lease(old, old.key()))
        await bench.recorder.saw("starting")
        pool.apply({})
        waiter.cancel()
        await bench.recorder.saw("stopped")
        await until(lambda: not pool.rows())
        assert bench.opener.undone == 1


async def test_a_failed_instance_whose_variant_is_gone_is_forgotten() -> None:
    bench = Bench()
    bench.opener.failing = RuntimeError("broken")
    async with bench.pool as pool:
        with pytest.raises(Unavailable):
            await pool.lease(IDLER, KEY)
        pool.apply({})
        assert pool.rows() == []
        assert bench.recorder.names()[-1] == "stopped"


async def test_a_draining_instance_that_crashes_is_forgotten() -> None:
    bench = Bench()
    async with bench.pool as pool:
        held = await pool.lease(IDLER, KEY)
        pool.apply({})
        bench.opener.lives[0].crash()
        await bench.recorder.saw("crashed")
        await until(lambda: not pool.rows())
        held.release()


async def test_an_instance_ends_with_the_workspace_that_it_was_for_and_with_its_sharing() -> None:
    """Its server stays, for others or shared otherwise; 0 means that it would never idle."""
    bench = Bench()
    forever = variant(idle_timeout=0)
    variants = {"time": forever}

    def mount(workspace: str, sharing: Sharing) -> Mount:
        return Mount(workspace, "time", "time", "time", sharing)

    async with bench.pool as pool, asyncio.timeout(BOUND):
        pool.apply(variants, [mount("a", "workspace"), mount("b", "workspace"), mount("c", "shared")])
        for scope in ("w:a", "w:b", "", "s:1"):
            (await pool.lease(forever, forever.key(scope))).release()
        pool.apply(variants, [mount("b", "workspace"), mount("c", "shared")])
        await until(lambda: [row.scope for row in pool.rows()] == ["", "s:1", "w:b"])
        pool.apply(variants, [mount("b", "shared"), mount("c", "session")])
        await until(lambda: [row.scope for row in pool.rows()] == ["", "s:1"])
        pool.apply(variants, [mount("b", "session"), mount("c", "session")])
        await until(lambda: [row.scope for row in pool.rows()] == ["s:1"])
        pool.apply(variants)
        assert [row.state for row in pool.rows()] == ["ready"]


async def test_what_is_wanted_again_while_it_ends_is_not_ended_once_more() -> None:
    """As when one workspace removes a server and another adds it."""
    bench = Bench()
    it, other = variant(), variant("other")
    async with bench.pool as pool, asyncio.timeout(BOUND):
        for each in (it, other):
            (await pool.lease(each, each.key())).release()
        bench.opener.may_leave.clear()
        pool.apply({"other": other})
        ending = asyncio.create_task(pool.end("time", "it was removed"))
        await asyncio.sleep(0)
        pool.apply({"time": it})
        waiter = asyncio.create_task(pool.lease(it, it.key()))
        await asyncio.sleep(0)
        bench.opener.may_leave.set()
        lease = await waiter
        await ending
        await until(lambda: [row.server for row in pool.rows()] == ["time"])
        assert bench.state(it.key()) == "ready"
        lease.release()


async def test_a_reload_does_not_keep_what_a_session_left_behind() -> None:
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        pool.apply({"time": IDLER})
        bench.opener.may_leave.clear()
        (await pool.lease(IDLER, IDLER.key("s:1"))).release()
        pool.end_scope("s:1")
        pool.apply({"time": IDLER})
        bench.opener.may_leave.set()
        await until(lambda: not pool.rows())


@pytest.mark.parametrize(("scope", "back"), [("s:key:k_1:w", True), ("s:bare:k_1:w", True), ("s:abc", False)])
async def test_a_key_comes_back_while_what_it_had_still_ends_and_a_session_does_not(scope: str, back: bool) -> None:
    bench = Bench()
    key = IDLER.key(scope)
    async with bench.pool as pool, asyncio.timeout(BOUND):
        bench.opener.may_leave.clear()
        (await pool.lease(IDLER, key)).release()
        pool.end_scope(scope)
        waiter = asyncio.create_task(pool.lease(IDLER, key))
        await asyncio.sleep(0.02)
        bench.opener.may_leave.set()
        if back:
            (await waiter).release()
            assert (bench.opener.entries, bench.opener.doubled) == (2, False)
        else:
            with pytest.raises(Unavailable, match="is over"):
                await waiter


async def test_a_session_that_ends_takes_its_instances_with_it_and_no_others() -> None:
    """R14: open sessions on a session-scoped instance pin it; its end stops it."""
    bench = Bench()
    async with bench.pool as pool:
        mine, shared = IDLER.key("s:1"), variant().key()
        for v, key in ((IDLER, mine), (variant(), shared)):
            await pool.lease(v, key)
        bench.opener.may_leave.clear()
        pool.end_scope("s:1")
        with pytest.raises(Unavailable, match="takes no more calls: what it was started for is over"):
            await pool.lease(IDLER, mine)
        bench.opener.may_leave.set()
        await bench.recorder.saw("stopped")
        await until(lambda: [row.scope for row in pool.rows()] == [""])
        assert pool.ready(shared) is not None


async def test_stopping_a_start_tells_the_waiters_and_cleans_up() -> None:
    """R13"""
    bench = Bench()
    bench.opener.may_answer.clear()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        waiter = asyncio.create_task(pool.lease(IDLER, KEY))
        await bench.recorder.saw("starting")
        pool.stop(KEY)
        with pytest.raises(Unavailable, match="stopped on request"):
            await waiter
        await bench.recorder.saw("stopped")
        assert bench.opener.undone == 1


async def test_a_start_that_waits_for_its_turn_can_be_stopped() -> None:
    bench = Bench(max_starting=1)
    bench.opener.may_answer.clear()
    other = variant("other")
    async with bench.pool as pool, asyncio.timeout(BOUND):
        first = asyncio.create_task(pool.lease(IDLER, KEY))
        await bench.recorder.saw("starting")
        second = asyncio.create_task(pool.lease(other, other.key()))
        await bench.recorder.saw("starting", 2)
        assert [row.reason for row in pool.rows()] == ["queue", "initialize"]
        pool.stop(other.key())
        with pytest.raises(Unavailable):
            await second
        bench.opener.may_answer.set()
        (await first).release()
        assert bench.opener.entries == 1


async def test_leaving_the_pool_ends_all_instances_at_once_in_whatever_state() -> None:
    """R15, A13: all servers in parallel, bounded in total."""
    bench = Bench()
    variants = [variant(name) for name in "abcdef"]
    async with bench.pool as pool, asyncio.timeout(BOUND):
        for v in variants:
            await pool.lease(v, v.key())
        bench.opener.lives[0].crash()
        await bench.recorder.saw("backoff")
        bench.opener.may_answer.clear()
        late = variant("late")
        waiter = asyncio.create_task(pool.lease(late, late.key()))
        await bench.recorder.saw("starting", 7)
        bench.opener.may_leave.clear()
        asyncio.get_running_loop().call_later(0.05, bench.opener.may_leave.set)
    with pytest.raises(Unavailable, match="Mooring is stopping"):
        await waiter
    assert bench.opener.alive == 0
    assert pool.rows() == []
    with pytest.raises(Unavailable, match="Mooring is stopping"):
        await pool.lease(IDLER, KEY)


async def test_leaving_the_pool_is_finished_even_when_its_owner_is_cancelled_meanwhile() -> None:
    """A13: shielded."""
    bench = Bench()
    inside = asyncio.Event()

    async def daemon() -> None:
        async with bench.pool as pool:
            await pool.lease(IDLER, KEY)
            bench.opener.may_leave.clear()
            inside.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(BOUND):
        task = asyncio.create_task(daemon())
        await inside.wait()
        task.cancel()
        await until(lambda: bench.state(KEY) == "stopping")
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        bench.opener.may_leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert bench.opener.alive == 0


async def test_an_ending_that_hangs_is_given_up_after_its_limit_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A13: bounded in total."""
    monkeypatch.setattr("mooring.instances.rules.LEAVING_MARGIN", 0.0)
    bench = Bench()
    hanging = variant(close=0.02)
    async with bench.pool as pool:
        await pool.lease(hanging, hanging.key())
        bench.opener.may_leave.clear()
        pool.stop(hanging.key())
        await bench.recorder.saw("stopped")
        assert pool.rows()[0].last_error == "did not end cleanly: not gone in time"
        assert bench.opener.alive == 0


async def test_a_pool_that_started_nothing_ends_at_once() -> None:
    async with Bench().pool as pool:
        assert isinstance(pool, Pool)


async def test_a_start_whose_clean_up_hangs_does_not_hold_up_the_end_of_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R15: every wait in shutdown is bounded."""
    monkeypatch.setattr("mooring.instances.rules.LEAVING_MARGIN", 0.0)
    cleaning = asyncio.Event()

    @asynccontextmanager
    async def opener(*_: object) -> AsyncIterator[Running]:
        try:
            await asyncio.Event().wait()
            raise AssertionError
            yield
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    recorder = Recorder()
    hanging = variant(close=0.02)
    async with asyncio.timeout(BOUND):
        async with Pool(opener, Events((recorder,)), listed=Bench()._listed) as pool:
            waiter = asyncio.create_task(pool.lease(hanging, hanging.key()))
            await recorder.saw("starting")
            await until(lambda: pool.rows()[0].reason == "start")
        assert cleaning.is_set()
        with pytest.raises(Unavailable, match="Mooring is stopping"):
            await waiter
    assert pool.rows() == []
    assert recorder.names() == ["starting", "stopped"]
