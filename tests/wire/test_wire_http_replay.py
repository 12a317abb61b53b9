"""Streams that outlive their connections: resumed over real sockets, bounded in memory."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_wire_http_kit import LIMIT, Wire, serving

from mooring.testing.waiting import wait_for
from mooring.wire import http_legacy, http_replay, http_watch
from mooring.wire.http_messages import Request
from mooring.wire.http_replay import OF_CALL, OUTSIDE, Journal, Outlet, found


def fields(event: bytes) -> dict[str, str]:
    return {
        name: value.removeprefix(" ") for name, _, value in (each.partition(":") for each in event.decode().split("\n"))
    }


async def resumed(wire: Wire, last: str) -> int:
    """Ask for what came after the event ``last``; the status."""
    wire.send(wire.request("GET", Accept="text/event-stream", Last_Event_ID=last))
    return (await wire.head())[0]


async def test_a_call_whose_connection_broke_is_answered_to_the_client_that_comes_back() -> None:
    """R27: the events after the last one seen, each once, and then the answer."""
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize(capabilities={"elicitation": {}})
        async with Wire(served.port) as lost:
            lost.session = wire.session
            lost.send(lost.legacy("tools/call", {"name": "ask"}, id=5))
            await lost.head()
            first = fields(await lost.raw_event())
            asked = json.loads(first["data"])
        for _ in range(2):  # and whoever loses that connection too may come again
            async with Wire(served.port) as back:
                back.session = wire.session
                assert await resumed(back, first["id"].rpartition("-")[0] + "-999") == 200
        async with Wire(served.port) as back:
            back.session = wire.session
            assert await resumed(back, first["id"]) == 200
            reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}
            assert (await wire.ask(body=json.dumps(reply).encode())).status == 202
            answer = await back.event()
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (5, '{"action": "accept"}')
            assert await back.event() is None
        async with Wire(served.port) as again:
            again.session = wire.session
            assert await resumed(again, first["id"]) == 200
            assert (await again.event())["id"] == 5
            assert await again.event() is None


async def test_a_question_that_went_out_on_another_stream_is_not_asked_again() -> None:
    """What was sent on one stream is never replayed on another; what was sent on none is not asked any more."""
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as listening:
        await wire.initialize(capabilities={"elicitation": {}})
        async with Wire(served.port) as lost:
            lost.session = wire.session
            lost.send(lost.legacy("tools/call", {"name": "ask"}, id=5))
            await lost.head()
            first = fields(await lost.raw_event())
        call = served.relay.requests[-1]
        await wait_for(lambda: not call._http.outlet.open, LIMIT)
        unheard = await asyncio.wait_for(call.ask("elicitation/create", b'{"message":"is anybody there?"}'), LIMIT)
        assert unheard.error is not None
        listening.session = wire.session
        listening.send(listening.request("GET", Accept="text/event-stream"))
        await listening.head()
        question = asyncio.create_task(call.ask("elicitation/create", b'{"message":"by the way"}'))
        asked = await listening.event()
        assert asked["params"]["message"] == "by the way"
        for number in (json.loads(first["data"])["id"], asked["id"]):
            reply = {"jsonrpc": "2.0", "id": number, "result": {"action": "accept"}}
            assert (await wire.ask(body=json.dumps(reply).encode())).status == 202
        await asyncio.wait_for(question, LIMIT)
        async with Wire(served.port) as back:
            back.session = wire.session
            assert await resumed(back, first["id"]) == 200
            assert (await back.event())["id"] == 5


async def test_a_silent_call_becomes_a_stream_that_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_watch, "SLOW", 0.05)
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        async with Wire(served.port) as lost:
            lost.session = wire.session
            lost.send(lost.legacy("tools/call", {"name": "hold"}, id=5))
            await lost.head()
            primed = fields(await lost.raw_event())
            assert (primed["data"], primed["retry"]) == ("", "1000")
        served.relay.release.set()
        async with asyncio.timeout(LIMIT):
            await served.relay.finished.wait()
        assert await resumed(wire, primed["id"]) == 200
        assert (await wire.event())["id"] == 5


async def test_clients_of_older_revisions_are_sent_no_event_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_watch, "SLOW", 0.02)
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as stream:
        await wire.initialize(version="2025-06-18")
        stream.session = wire.session
        stream.send(stream.request("GET", Accept="text/event-stream"))
        await stream.head()
        served.relay.sessions[0].send("notifications/tools/list_changed", None)
        assert json.loads(fields(await stream.raw_event())["data"])["method"] == "notifications/tools/list_changed"
        wire.send(wire.legacy("tools/call", {"name": "hold"}, id=5))
        await wire.head()
        assert await wire.raw_event() == b": keep-alive"
        served.relay.release.set()
        assert (await wire.event())["id"] == 5


async def test_a_silent_call_of_a_modern_client_becomes_a_stream_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes its bytes on, such as a proxy in between, would take its silence for death."""
    monkeypatch.setattr(http_watch, "SLOW", 0.02)
    async with serving() as served, Wire(served.port) as wire:
        wire.send(wire.modern("tools/call", {"name": "hold"}, id=5))
        await wire.head()
        assert await wire.raw_event() == b": keep-alive"
        served.relay.release.set()
        assert (await wire.event())["id"] == 5


async def test_what_happens_while_a_get_stream_is_away_is_told_when_it_comes_back() -> None:
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        session = served.relay.sessions[0]
        session.send("notifications/dropped", None)
        async with Wire(served.port) as lost:
            lost.session = wire.session
            lost.send(lost.request("GET", Accept="text/event-stream"))
            await lost.head()
            primed = fields(await lost.raw_event())
            session.send("notifications/one", None)
            await lost.event()
        await wait_for(lambda: not session.streams, LIMIT)
        session.send("notifications/two", None)
        async with Wire(served.port) as back, Wire(served.port) as newer:
            back.session = newer.session = wire.session
            assert await resumed(back, primed["id"]) == 200
            assert [(await back.event())["method"] for _ in range(2)] == ["notifications/one", "notifications/two"]
            session.send("notifications/three", None)
            assert (await back.event())["method"] == "notifications/three"
            assert await resumed(newer, primed["id"]) == 200  # takes over, though the other never went
            assert await back.event() is None


async def test_event_ids_work_in_their_own_session_only() -> None:
    """R26: another session of the same key gets nothing of it, nor does an id that was made up."""
    async with serving() as served, Wire(served.port) as mine, Wire(served.port) as other, Wire(served.port) as lost:
        await mine.initialize()
        await other.initialize()
        lost.session = mine.session
        lost.send(lost.legacy("tools/call", {"name": "progress"}, id=5))
        await lost.head()
        seen = fields(await lost.raw_event())["id"]
        for wrong in (seen, seen[:-3] + "x-1", OF_CALL.decode() + "0" * 24 + "-0"):
            assert await resumed(other, wrong) == 400
            await other.reader.readuntil(b"}}")
        assert await resumed(mine, "from-another-life") == 200  # a fresh stream
        assert fields(await mine.raw_event())["data"] == ""


async def test_what_a_cap_took_is_not_told_and_the_rest_comes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """R27: over the bound the oldest events go; a client that comes back gets the newest, and its answer."""
    monkeypatch.setattr(http_legacy, "Journal", partial(Journal, 2500))
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        session = served.relay.sessions[0]
        async with Wire(served.port) as lost:
            lost.session = wire.session
            lost.send(lost.legacy("tools/call", {"name": "hold"}, id=5))
            async with asyncio.timeout(LIMIT):
                await served.relay.started.wait()
            call = next(each for each in served.relay.requests if each.method == "tools/call")
            call.heard("notifications/message", b'{"data":0}')
            await lost.head()
            first = fields(await lost.raw_event())["id"]
        for number in range(1, 40):
            call.heard("notifications/message", b'{"data":%d}' % number)
        assert session.journal is not None
        assert session.journal.size <= 2500
        served.relay.release.set()
        async with Wire(served.port) as back:
            back.session = wire.session
            assert await resumed(back, first) == 200
            told = []
            while (event := await back.event()) is not None:
                told.append(event["params"]["data"] if "method" in event else event["id"])
        *numbers, answered = told
        assert answered == 5
        assert 0 < len(numbers) < 39
        assert numbers == list(range(40 - len(numbers), 40))


async def test_a_stream_that_a_cap_took_whole_is_refused_and_one_of_an_ended_session_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R27: never a stream that silently lacks its answer; and what a session kept goes with it."""
    monkeypatch.setattr(http_legacy, "Journal", partial(Journal, 900))
    async with serving(max_sessions=2) as served, Wire(served.port) as wire, Wire(served.port) as other:
        await wire.initialize()
        session = served.relay.sessions[0]
        wire.send(wire.legacy("tools/call", {"name": "progress"}, id=5))
        await wire.head()
        first = fields(await wire.raw_event())["id"]
        while await wire.raw_event():
            pass
        await other.initialize()
        other.send(other.legacy("tools/call", {"name": "progress", "arguments": {"x": "y" * 500}}, id=6))
        await other.head()
        kept = fields(await other.raw_event())["id"]
        while await other.raw_event():
            pass
        async with Wire(served.port) as back:
            back.session = wire.session
            assert await resumed(back, first) == 400
        async with Wire(served.port) as third:
            await third.initialize()  # in place of the longest unused one
            assert await resumed(other, kept) == 404
        assert session.journal is not None
        assert session.journal.size == 0


class Carrier:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def carries(self, stream: object) -> bool:
        return True

    def send(self, stream: object, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def begin(self, request: Request, headers: bytes, keep_alive: bytes):
        raise AssertionError

    def cancel(self, request: Request) -> None:
        raise AssertionError


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=40))
def test_what_is_kept_never_exceeds_its_bound(steps: list[tuple[int, int]]) -> None:
    journal, carrier = Journal(budget=1000), Carrier()
    room: dict[bytes, Outlet] = {}
    outlets = [Outlet(journal, room, http_replay.Stream(carrier, Request(carrier, ""), b""), OUTSIDE) for _ in range(4)]
    for which, size in steps:
        outlets[which].send(b"x" * size)
        assert journal.size == sum(each.size for each in outlets) <= 1000
    for outlet in outlets:
        outlet.abandon(0.0)
    journal.sweep(http_replay.RETENTION)
    assert all(found(outlet.id + b"-0", room) for outlet in outlets)
    journal.sweep(http_replay.RETENTION + 1)
    assert journal.size == 0
    assert not room
