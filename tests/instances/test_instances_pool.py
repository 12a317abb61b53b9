"""Leases, starts, failures and crashes."""

from __future__ import annotations

import asyncio
import time

import pytest
from fake_opener import BOUND, Bench, FakeListener, until, variant

from mooring.errors import BackingOff, Crashed, LaunchMissing, MooringError, StartFailed, Unavailable
from mooring.instances.opener import Demand

TIME = variant()
KEY = TIME.key()


async def test_twenty_first_calls_make_one_start_and_get_the_same_connection() -> None:
    """R11: ten simultaneous requests produce one start."""
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        leases = await asyncio.gather(*(pool.lease(TIME, KEY) for _ in range(20)))
        assert bench.opener.entries == 1
        assert len({id(lease.connection) for lease in leases}) == 1
        assert pool.rows()[0].leases == 20
        for lease in leases:
            lease.release()
        assert pool.rows()[0].leases == 0
    assert bench.recorder.names() == ["starting", "ready", "stopped"]
    assert bench.opener.alive == 0


async def test_a_ready_instance_is_leased_without_waiting() -> None:
    bench = Bench()
    async with bench.pool as pool:
        (await pool.lease(TIME, KEY)).release()
        instance = pool.ready(KEY)
        assert instance is not None
        lease = instance.lease()
        assert lease.key == KEY
        with pytest.raises(StopIteration):
            pool.lease(TIME, KEY).send(None)
        lease.release()


async def test_releasing_twice_counts_once() -> None:
    bench = Bench()
    async with bench.pool as pool:
        first, second = await pool.lease(TIME, KEY), await pool.lease(TIME, KEY)
        first.release()
        first.release()
        assert pool.rows()[0].leases == 1
        second.release()


async def test_different_servers_start_at_the_same_time() -> None:
    """R11, A11: independent servers start in parallel."""
    bench = Bench()
    bench.opener.may_answer.clear()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        waits = [asyncio.create_task(pool.lease(v, v.key())) for v in map(variant, "abc")]
        await until(lambda: bench.opener.most_starting == 3)
        bench.opener.may_answer.set()
        await asyncio.gather(*waits)


async def test_no_more_than_the_limit_start_at_once_and_all_get_their_turn() -> None:
    """A11: servers start concurrently with a limit."""
    bench = Bench(max_starting=2)
    async with bench.pool as pool, asyncio.timeout(BOUND):
        await asyncio.gather(*(pool.lease(v, v.key()) for v in map(variant, "abcdefg")))
        assert bench.opener.most_starting <= 2
        assert len(bench.opener.lives) == 7


async def test_scopes_and_digests_are_instances_of_their_own() -> None:
    bench = Bench()
    async with bench.pool as pool:
        newer = variant(digest="d2")
        for v, key in ((TIME, KEY), (TIME, TIME.key("w:alice")), (newer, newer.key())):
            await pool.lease(v, key)
        assert len(bench.opener.lives) == 3
        assert [row.workspaces for row in pool.rows()] == [(), ("alice",), ()]


async def test_a_waiter_that_gives_up_does_not_kill_the_start_for_others() -> None:
    """R11"""
    bench = Bench()
    bench.opener.may_answer.clear()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        hasty = asyncio.create_task(pool.lease(TIME, KEY))
        patient = asyncio.create_task(pool.lease(TIME, KEY))
        await bench.recorder.saw("starting")
        hasty.cancel()
        await asyncio.wait([hasty])
        assert hasty.cancelled()
        bench.opener.may_answer.set()
        lease = await patient
        assert bench.opener.entries == 1
        assert pool.rows()[0].leases == 1
        lease.release()


async def test_a_start_that_nobody_waits_for_any_more_still_comes_up_and_idles() -> None:
    """R14"""
    bench = Bench()
    bench.opener.may_answer.clear()
    idler = variant(idle_timeout=0.02)
    async with bench.pool as pool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await pool.lease(idler, idler.key())
        bench.opener.may_answer.set()
        stopped = await bench.recorder.saw("stopped")
        assert bench.recorder.names() == ["starting", "ready", "stopped"]
        assert stopped.data["reason"] == "idle for 0.02 s"


async def test_a_failed_start_tells_every_waiter_the_same_with_phase_stderr_and_next_try() -> None:
    """R12: the caller gets a per-server reason with log tail. A14: the tail is shown on failure."""
    bench = Bench()
    bench.opener.said = "ModuleNotFoundError: no module named zone"
    bench.opener.failing = RuntimeError("pipe closed")
    async with bench.pool as pool:
        told = await asyncio.gather(*(pool.lease(TIME, KEY) for _ in range(5)), return_exceptions=True)
        assert bench.opener.entries == 1
        assert bench.opener.undone == 1
        assert len({str(error) for error in told}) == 1
        assert len({id(error) for error in told}) == 5
        for error in told:
            assert isinstance(error, StartFailed)
            assert str(error) == "time did not start (step: initialize): pipe closed"
            assert error.details["server"] == "time"
            assert error.details["phase"] == "initialize"
            assert "no module named zone" in error.details["stderr"]
            assert 0 < error.details["retry_at"] - time.time() <= 1
        row = pool.rows()[0]
        assert (row.state, row.last_error) == ("backoff", str(told[0]))
        assert "zone" in row.stderr


@pytest.mark.parametrize(
    "raised",
    [
        LaunchMissing("uvx is not installed; get it from astral.sh"),
        ExceptionGroup(
            "tasks", [ValueError("x"), ExceptionGroup("more", [LaunchMissing("uvx is not installed; get")])]
        ),
    ],
)
async def test_the_launchers_own_error_reaches_the_caller_even_out_of_a_group(raised: Exception) -> None:
    """R12: executable missing."""
    bench = Bench()
    bench.opener.failing = raised
    async with bench.pool as pool:
        with pytest.raises(LaunchMissing, match="uvx is not installed") as told:
            await pool.lease(TIME, KEY)
        assert told.value.details["server"] == "time"


async def test_a_failing_server_blocks_no_other() -> None:
    """R12, A11"""
    bench = Bench()
    other = variant("other")
    async with bench.pool as pool:
        bench.opener.failing = RuntimeError("broken")
        with pytest.raises(StartFailed):
            await pool.lease(TIME, KEY)
        bench.opener.failing = None
        (await pool.lease(other, other.key())).release()


async def test_while_backing_off_a_call_is_told_at_once_when_and_why() -> None:
    """A16"""
    bench = Bench()
    bench.opener.failing = RuntimeError("broken")
    async with bench.pool as pool:
        for _ in range(3):
            with pytest.raises(StartFailed):
                await pool.lease(TIME, KEY)
            bench.clock.skipped += 60
        with pytest.raises(StartFailed):
            await pool.lease(TIME, KEY)
        with pytest.raises(BackingOff, match=r"not available: .*broken; next try in 8 s") as told:
            await pool.lease(TIME, KEY)
        assert told.value.details["retry_at"] == pytest.approx(time.time() + 8, abs=1)
        assert told.value.shown()["cause"] == "start_failed"
        assert bench.opener.entries == 4
        assert pool.rows()[0].retry_at == pytest.approx(time.time() + 8, abs=1)
        bench.opener.failing = None
        bench.clock.skipped += 8
        (await pool.lease(TIME, KEY)).release()
        row = pool.rows()[0]
        assert (row.state, row.restarts, row.retry_at) == ("ready", 4, None)
        assert "broken" in row.last_error


async def test_restart_skips_the_wait_of_a_back_off() -> None:
    bench = Bench()
    bench.opener.failing = RuntimeError("broken")
    async with bench.pool as pool:
        with pytest.raises(StartFailed):
            await pool.lease(TIME, KEY)
        bench.opener.failing = None
        assert pool.restart("time") == 1
        (await pool.lease(TIME, KEY)).release()
        assert pool.restart("nobody") == 0


async def test_restart_ends_a_ready_instance_and_starts_it_anew() -> None:
    bench = Bench()
    async with bench.pool as pool:
        old = await pool.lease(TIME, KEY)
        pool.restart("time")
        new = await pool.lease(TIME, KEY)
        assert new.connection is not old.connection
        assert bench.opener.lives[0].gone.is_set()
        old.release()
        assert pool.rows()[0].leases == 1


async def test_a_start_that_takes_too_long_ends_with_the_step_it_was_at_and_is_undone() -> None:
    """R13: limits configurable; failed starts leave nothing behind."""
    bench = Bench()
    bench.opener.may_answer.clear()
    slow = variant(start=0.05)
    async with bench.pool as pool:
        with pytest.raises(StartFailed, match=r"within 0\.05 s; it was at the step: initialize") as told:
            await pool.lease(slow, slow.key())
        assert told.value.details["phase"] == "initialize"
        assert bench.opener.undone == 1
        assert bench.opener.alive == 0


async def test_pulling_does_not_use_up_the_time_of_the_start() -> None:
    """R13"""
    bench = Bench()
    bench.opener.may_answer.clear()
    bench.opener.phases = ("pull",)
    slow = variant(start=0.02, pull=BOUND)
    async with bench.pool as pool:
        waiter = asyncio.create_task(pool.lease(slow, slow.key()))
        _, late = await asyncio.wait([waiter], timeout=0.1)
        assert late
        assert pool.rows()[0].reason == "pull"
        bench.opener.may_answer.set()
        (await waiter).release()


async def test_a_crash_backs_off_with_exit_code_and_stderr_and_the_next_due_lease_restarts() -> None:
    """A16: crash, restart with back-off. R41"""
    bench = Bench()
    bench.opener.said = "Segmentation fault"
    async with bench.pool as pool:
        lease = await pool.lease(TIME, KEY)
        bench.opener.lives[0].crash(3)
        crashed = await bench.recorder.saw("crashed")
        assert crashed.data["exit_code"] == 3
        assert crashed.data["reason"] == "the server exited with code 3"
        with pytest.raises(BackingOff, match=r"exited with code 3; next try in 1 s") as told:
            await pool.lease(TIME, KEY)
        assert told.value.details["stderr"] == "Segmentation fault"
        row = pool.rows()[0]
        assert (row.state, row.exit_code, row.leases) == ("backoff", 3, 0)
        bench.clock.skipped += 1.1
        again = await pool.lease(TIME, KEY)
        assert again.connection is not lease.connection
        lease.release()
        assert pool.rows()[0].leases == 1
        assert pool.rows()[0].restarts == 1


async def test_the_first_crash_after_a_steady_minute_is_restarted_by_the_very_next_call() -> None:
    """A16"""
    bench = Bench()
    async with bench.pool as pool:
        for _ in range(2):
            (await pool.lease(TIME, KEY)).release()
            bench.clock.skipped += 61
            bench.opener.lives[-1].crash(-9)
        (await pool.lease(TIME, KEY)).release()
        assert len(bench.opener.lives) == 3
        assert not bench.opener.doubled
        assert pool.rows()[0].last_error == "the server was ended by signal 9"


async def test_an_instance_that_went_down_with_its_keeper_starts_again_at_the_very_next_call() -> None:
    """A16: it is told, and held against nobody: no back-off, no failure counted."""
    bench = Bench()
    one = variant()
    async with bench.pool as pool:
        (await pool.lease(one, one.key())).release()
        bench.opener.lives[0].launched.exited.set_result(None)
        await bench.recorder.saw("crashed")
        (row,) = pool.rows()
        assert row.reason == "the server was ended together with what kept it"
        (await pool.lease(one, one.key())).release()
        assert len(bench.opener.lives) == 2
        bench.opener.lives[1].crash()
        await bench.recorder.saw("crashed", 2)
        (row,) = pool.rows()
        assert row.retry_at is not None
        assert row.retry_at - time.time() <= 1.0, "the first of its own failures"


async def test_a_crash_is_seen_by_a_lease_in_the_same_step() -> None:
    bench = Bench()
    async with bench.pool as pool:
        await pool.lease(TIME, KEY)
        bench.opener.lives[0].connection.closed.set_result("gone")
        assert pool.ready(KEY) is None
        with pytest.raises(BackingOff, match="gone"):
            await pool.lease(TIME, KEY)


async def test_a_remote_that_closes_has_no_exit_code_and_is_not_waited_for() -> None:
    bench = Bench()
    async with bench.pool as pool:
        await pool.lease(TIME, KEY)
        life = bench.opener.lives[0]
        life.launched.pid = None
        life.connection.closed.set_result("the remote ended the session")
        crashed = await bench.recorder.saw("crashed")
        assert crashed.data["reason"] == "the remote ended the session"
        assert crashed.data["exit_code"] is None


async def test_pending_requests_fail_when_the_server_dies_and_the_pool_survives() -> None:
    """A16: pending calls fail at once."""
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        lease = await pool.lease(TIME, KEY)
        life = bench.opener.lives[0]
        life.connection.replies["tools/call"] = lambda _: asyncio.Event().wait()  # type: ignore[assignment]
        call = asyncio.create_task(lease.connection.request("tools/call", b"{}"))
        await until(lambda: bool(life.connection.asked))
        life.crash()
        with pytest.raises(Crashed):
            await call
        await bench.recorder.saw("backoff")


async def test_a_server_that_dies_as_it_gets_ready_gives_every_waiter_one_outcome() -> None:
    """R13: detects early exit at once."""
    bench = Bench()
    bench.opener.may_answer.clear()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        waits = [asyncio.create_task(pool.lease(TIME, KEY)) for _ in range(4)]
        await bench.recorder.saw("starting")
        original = bench.opener._start

        async def start(*args):
            life = await original(*args)
            life.crash(2)
            return life

        bench.opener._start = start  # type: ignore[method-assign]
        pool.stop(KEY)
        stopped = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(error, Unavailable) and "stopped on request" in str(error) for error in stopped)
        bench.opener.may_answer.set()
        told = await asyncio.gather(*(pool.lease(TIME, KEY) for _ in range(4)), return_exceptions=True)
        assert all(isinstance(error, BackingOff) for error in told), told


async def test_a_variant_that_cannot_be_started_says_why_and_starts_nothing() -> None:
    """R12"""
    bench = Bench()
    off = variant(unavailable="switched off (enabled = false)")
    async with bench.pool as pool:
        with pytest.raises(Unavailable, match="time: switched off"):
            await pool.lease(off, off.key())
        assert bench.opener.entries == 0
        assert pool.rows() == []


async def test_the_callers_demand_reaches_the_opener_also_at_a_restart() -> None:
    bench = Bench()
    demand = Demand(b'{"elicitation":{}}', "legacy", FakeListener())
    key = TIME.key("s:0123456789abcdef")
    async with bench.pool as pool:
        await pool.lease(TIME, key, demand)
        pool.restart("time")
        await pool.lease(TIME, key)
        assert [life.birth.demand for life in bench.opener.lives] == [demand, demand]
        assert pool.rows()[0].scope == "s:012345"
        assert all("0123456789" not in repr(event) for event in bench.recorder.seen)


async def test_rows_tell_the_truth_about_a_running_instance() -> None:
    """R41: state, pid, uptime, last activity, users, last error."""
    bench = Bench()
    async with bench.pool as pool:
        lease = await pool.lease(TIME, KEY)
        bench.clock.skipped += 5
        row = pool.rows()[0]
        assert (row.server, row.variant, row.state, row.pid, row.era) == ("time", "time", "ready", 1001, "legacy")
        assert row.uptime == pytest.approx(5, abs=1)
        assert (row.idle, row.leases) == (None, 1)
        lease.release()
        bench.clock.skipped += 7
        assert pool.rows()[0].idle == pytest.approx(7, abs=1)
        pool.stop(KEY)
        await bench.recorder.saw("stopped")
        await until(lambda: pool.rows()[0].pid is None)
        row = pool.rows()[0]
        assert (row.state, row.reason, row.uptime) == ("stopped", "stopped on request", None)


async def test_an_opener_whose_inner_task_dies_counts_as_a_crash() -> None:
    """A task group inside the opener cancels the owner task; that is a crash, not a shutdown."""
    from contextlib import asynccontextmanager

    bench = Bench()
    die = asyncio.Event()

    async def reader() -> None:
        await die.wait()
        raise ValueError("bad frame")

    @asynccontextmanager
    async def opener(*args):
        async with asyncio.TaskGroup() as tasks, bench.opener(*args) as running:
            tasks.create_task(reader())
            yield running

    from mooring.instances.pool import Pool
    from mooring.observe.events import Events

    async with Pool(opener, Events((bench.recorder,)), listed=bench._listed) as pool:
        await pool.lease(TIME, KEY)
        die.set()
        crashed = await bench.recorder.saw("crashed")
        assert crashed.data["reason"] == "bad frame"
        with pytest.raises(BackingOff):
            await pool.lease(TIME, KEY)


async def test_errors_of_a_start_are_mooring_errors_whatever_the_opener_raises() -> None:
    bench = Bench()
    async with bench.pool as pool:
        for raised in (KeyError("x"), asyncio.CancelledError(), TimeoutError(), OSError(24, "too many files")):
            bench.opener.failing = raised
            with pytest.raises(MooringError):
                async with asyncio.timeout(BOUND):
                    await pool.lease(TIME, KEY)
            bench.clock.skipped += 60
