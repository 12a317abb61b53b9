"""Listing at ready and after changes; the ping after a timed-out call."""

from __future__ import annotations

import asyncio

import pytest
from fake_opener import BOUND, MODERN, Bench, FakeConnection, until, variant

from mooring.errors import Unavailable
from mooring.instances.health import alive
from mooring.wire.jsonrpc import METHOD_NOT_FOUND, Answer, failure

TIME = variant()
KEY = TIME.key()


async def never() -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


async def test_an_instance_is_listed_at_ready_and_callers_do_not_wait_for_it() -> None:
    bench = Bench()
    may_list = asyncio.Event()
    bench.list = lambda _: may_list.wait()  # type: ignore[assignment, return-value]
    async with bench.pool as pool, asyncio.timeout(BOUND):
        (await pool.lease(TIME, KEY)).release()
        await until(lambda: bench.listings == [KEY])
        waiter = asyncio.create_task(pool.listed(KEY))
        await asyncio.sleep(0)
        assert not waiter.done()
        may_list.set()
        await waiter


async def test_a_burst_of_list_changes_is_listed_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A16: list-changed refetch with debounce."""
    monkeypatch.setattr("mooring.instances.chores.DEBOUNCE", 0.03)
    bench = Bench()
    async with bench.pool as pool:
        await pool.lease(TIME, KEY)
        await until(lambda: len(bench.listings) == 1)
        for _ in range(10):
            pool.relist(KEY)
            await asyncio.sleep(0)
        await until(lambda: len(bench.listings) == 2)
        await asyncio.sleep(0.1)
        assert len(bench.listings) == 2
        pool.relist(KEY)
        await until(lambda: len(bench.listings) == 3)


async def test_a_limit_that_a_reload_changed_holds_for_what_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.instances.chores.DEBOUNCE", 0.01)
    bench = Bench()
    bench.list = lambda _: asyncio.sleep(0.2)
    hasty, patient = variant(discover=0.05), variant(discover=BOUND)
    async with bench.pool as pool, asyncio.timeout(BOUND):
        pool.apply({"time": hasty})
        await pool.lease(hasty, KEY)
        with pytest.raises(Unavailable, match=r"within 0.05 s"):
            await pool.listed(KEY)
        pool.apply({"time": patient})
        pool.relist(KEY)
        await until(lambda: not pool.rows()[0].last_error)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_listing_that_fails_leaves_the_instance_in_service(hangs: bool) -> None:
    """R12"""
    bench = Bench()
    patient = variant(discover=0.05)

    async def fail(connection: FakeConnection) -> None:
        if hangs:
            await never()
        raise ValueError("bad page")

    bench.list = fail  # type: ignore[assignment]
    async with bench.pool as pool, asyncio.timeout(BOUND):
        lease = await pool.lease(patient, KEY)
        expected = "within 0.05 s" if hangs else "bad page"
        with pytest.raises(Unavailable, match=expected):
            await pool.listed(KEY)
        assert expected in pool.rows()[0].last_error
        assert pool.ready(KEY) is not None
        lease.release()


async def test_a_listing_ends_with_its_instance_and_so_does_the_wait_for_it() -> None:
    bench = Bench()
    ended = asyncio.Event()

    async def hang(connection: FakeConnection) -> None:
        try:
            await never()
        finally:
            ended.set()

    bench.list = hang  # type: ignore[assignment]
    async with bench.pool as pool, asyncio.timeout(BOUND):
        await pool.lease(TIME, KEY)
        waiter = asyncio.create_task(pool.listed(KEY))
        await until(lambda: bench.listings == [KEY])
        pool.stop(KEY)
        with pytest.raises(Unavailable, match="ended before it was listed"):
            await waiter
        await ended.wait()
        with pytest.raises(Unavailable, match="not running"):
            await pool.listed(variant("other").key())


async def test_listing_pins_nothing() -> None:
    """R14"""
    bench = Bench()
    bench.list = lambda _: never()  # type: ignore[assignment, return-value]
    idler = variant(idle_timeout=0.03)
    async with bench.pool as pool:
        (await pool.lease(idler, KEY)).release()
        await bench.recorder.saw("stopped")


async def test_a_server_that_answers_no_ping_after_a_timed_out_call_is_stopped_and_restarts_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R13: health is whether MCP is answered."""
    monkeypatch.setattr("mooring.instances.health.alive.__defaults__", (alive.__defaults__[0], 0.05))
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        old = await pool.lease(TIME, KEY)
        life = bench.opener.lives[0]
        life.connection.replies["ping"] = lambda _: never()
        pool.suspect(KEY)
        pool.suspect(KEY)
        stopped = await bench.recorder.saw("stopped")
        assert stopped.data["reason"] == "did not answer a ping after a timed-out call"
        assert [method for method, _ in life.connection.asked] == ["ping"]
        new = await pool.lease(TIME, KEY)
        assert new.connection is not old.connection
        row = pool.rows()[0]
        assert (row.restarts, row.last_error) == (1, "did not answer a ping after a timed-out call")


async def test_a_server_that_answers_the_ping_stays() -> None:
    bench = Bench()
    async with bench.pool as pool, asyncio.timeout(BOUND):
        await pool.lease(TIME, KEY)
        pool.suspect(KEY)
        await until(lambda: bool(bench.opener.lives[0].connection.asked))
        await asyncio.sleep(0.01)
        assert bench.state(KEY) == "ready"
        pool.suspect(variant("other").key())


async def test_any_answer_is_a_sign_of_life_and_a_closed_conversation_is_none() -> None:
    connection = FakeConnection()
    connection.replies["ping"] = lambda _: failure(METHOD_NOT_FOUND, "what?")
    assert await alive(connection)
    connection.closed.set_result("gone")
    assert not await alive(connection)


async def test_a_modern_server_is_asked_to_discover_with_complete_params() -> None:
    connection = FakeConnection(MODERN)
    connection.replies["server/discover"] = lambda _: Answer(result=b"{}")
    assert await alive(connection, lambda facts, params: b'{"_meta":{"v":"' + facts.version.encode() + b'"}}')
    assert connection.asked == [("server/discover", b'{"_meta":{"v":"2026-07-28"}}')]
