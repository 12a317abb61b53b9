"""One client on stdio inside the daemon: a socket pair, and a handler that does what its method says."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.errors import Refused
from mooring.nouns import Principal
from mooring.wire import stdio_front
from mooring.wire.jsonrpc import Answer, BadFrame

PRINCIPAL = Principal("local:0", "alice")
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


class Stub:
    """A handler whose methods are scripts for the front."""

    def __init__(self) -> None:
        self.session = None
        self.requests = []
        self.notes = []
        self.cancelled = []
        self.started = asyncio.Event()
        self.release = asyncio.Event()

    def opened(self, session) -> None:
        self.session = session
        session.on_close.append(lambda: self.notes.append(("closed", b"")))

    def notified(self, session, method, params) -> None:
        self.notes.append((method, params))
        if method == "notifications/explode":
            raise RuntimeError("boom")

    async def handle(self, request) -> Answer:
        self.requests.append(request)
        match request.method:
            case "wait" | "subscriptions/listen":
                self.started.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled.append(request.raw_id)
                    raise
            case "ask":
                self.started.set()
                try:
                    return await request.ask("elicitation/create", b'{"message":"who?"}')
                except asyncio.CancelledError:
                    self.cancelled.append(request.raw_id)
                    raise
            case "progress":
                request.heard("notifications/progress", b'{"progress":1}')
            case "refused":
                raise Refused
            case "bad":
                raise BadFrame("no such thing", -32602)
            case "broken":
                raise RuntimeError("secret detail")
            case "big":
                return Answer(result=b'{"text":"' + b"x" * 1_000_000 + b'"}')
            case _:
                pass
        return Answer(result=b'{"era":"%s","version":"%s"}' % (request.era.encode(), request.version.encode()))


class Client:
    """The far end of the socket pair."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *messages) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            self.writer.write(line + b"\n")

    async def receive(self) -> dict:
        line = await asyncio.wait_for(self.reader.readline(), 10)
        assert line.endswith(b"\n"), "the conversation ended"
        return json.loads(line)

    async def ask(self, method, params=None, number=1) -> dict:
        self.send({"id": number, "method": method, "params": params or {}})
        return await self.receive()

    async def shake_hands(self, **capabilities) -> dict:
        answer = await self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": capabilities}, 0)
        self.send({"method": "notifications/initialized"})
        return answer


@asynccontextmanager
async def conversation(handler=None, leftover=b""):
    """A running front and its client; on the way out both are gone."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    transport.pause_reading()
    handler = handler or Stub()
    task = asyncio.create_task(stdio_front.serve(transport, handler, PRINCIPAL, leftover=leftover))
    reader, writer = await asyncio.open_unix_connection(sock=theirs, limit=1 << 26)
    client = Client(reader, writer)
    client.front = task
    try:
        yield client, handler
    finally:
        writer.close()
        _, late = await asyncio.wait({task}, timeout=10)
        assert not late


async def test_legacy_requests_follow_the_handshake():
    async with conversation() as (client, handler):
        answer = await client.shake_hands(roots={})
        assert answer == {"jsonrpc": "2.0", "id": 0, "result": {"era": "legacy", "version": "2025-06-18"}}
        assert (await client.ask("tools/list"))["result"]["era"] == "legacy"
        assert handler.session.capabilities == b'{"roots": {}}'
        assert handler.session.principal is PRINCIPAL
        assert len(handler.session.id) >= 20


async def test_an_unknown_legacy_version_gets_the_newest():
    async with conversation() as (client, _):
        assert (await client.ask("initialize", {"protocolVersion": "1999"}))["result"]["version"] == "2025-11-25"


@pytest.mark.parametrize("escaped", [False, True])
async def test_both_eras_share_the_pipe_in_either_order(escaped):
    """A client that probes with server/discover may still send initialize, and the reverse."""
    async with conversation() as (client, _handler):
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": MODERN}})
        client.send((line.replace("/", "\\/") if escaped else line).encode())
        assert (await client.receive())["result"] == {"era": "modern", "version": "2026-07-28"}
        await client.shake_hands()
        assert (await client.ask("tools/list", {"_meta": MODERN}))["result"]["era"] == "modern"
        assert (await client.ask("tools/list"))["result"]["era"] == "legacy"
        assert (await client.ask("tools/list", {"arguments": {"protocolVersion": 1}}))["result"]["era"] == "legacy"


async def test_what_belongs_to_no_era_is_explained():
    async with conversation() as (client, handler):
        assert "initialize" in (await client.ask("tools/list"))["error"]["message"]
        assert (await client.ask("server/discover"))["error"]["code"] == -32602
        old = {**MODERN, "io.modelcontextprotocol/protocolVersion": "1900-01-01"}
        error = (await client.ask("tools/list", {"_meta": old}))["error"]
        assert error["code"] == -32022
        assert "2026-07-28" in error["data"]["supported"]
        assert (await client.ask("ping"))["result"]["era"] == "legacy"
        assert [request.method for request in handler.requests] == ["ping"]


@pytest.mark.parametrize(
    ("line", "code", "identity"),
    [
        (b"not json", -32700, None),
        (b'{"jsonrpc":"2.0","id":1', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b'{"jsonrpc":"2.0"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[1]}', -32602, 7),
        (b"[" * 100_000, -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000, -32700, None),
    ],
)
async def test_malformed_lines_get_an_error_and_the_conversation_goes_on(line, code, identity):
    async with conversation() as (client, _):
        client.send(line)
        answer = await client.receive()
        assert (answer["id"], answer["error"]["code"]) == (identity, code)
        await client.shake_hands()
        assert "result" in await client.ask("ping")


async def test_a_line_over_the_limit_is_refused_and_the_conversation_goes_on(monkeypatch):
    async with conversation() as (client, _):
        client.send(b"x" * (65 << 20))
        assert (await client.receive())["error"]["code"] == -32600
        assert "result" in await client.ask("ping")


async def test_failures_are_translated_once_and_tell_no_inner_detail():
    async with conversation() as (client, _):
        await client.shake_hands()
        assert (await client.ask("refused"))["error"] == {
            "code": -32602,
            "message": "Not available to this key.",
            "data": {"kind": "refused"},
        }
        assert (await client.ask("bad"))["error"]["code"] == -32602
        broken = (await client.ask("broken"))["error"]
        assert broken["code"] == -32603
        assert "secret" not in broken["message"]


async def test_an_id_in_use_is_refused_and_the_first_request_lives():
    async with conversation() as (client, handler):
        await client.shake_hands()
        client.send({"id": "a", "method": "wait"})
        await asyncio.wait_for(handler.started.wait(), 10)
        assert (await client.ask("ping", number="a"))["error"]["code"] == -32600
        handler.release.set()
        assert (await client.receive())["id"] == "a"
        assert "result" in await client.ask("ping", number="a")


async def test_too_many_requests_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(stdio_front, "MAX_RUNNING", 2)
    async with conversation() as (client, handler):
        await client.shake_hands()
        client.send({"id": 1, "method": "wait"}, {"id": 2, "method": "wait"})
        assert (await client.ask("ping", number=3))["error"]["code"] == -32603
        handler.release.set()


async def test_requests_run_at_the_same_time():
    async with conversation() as (client, handler):
        await client.shake_hands()
        client.send({"id": 1, "method": "wait"})
        assert (await client.ask("ping", number=2))["id"] == 2
        handler.release.set()
        assert (await client.receive())["id"] == 1


async def test_a_cancelled_request_ends_without_an_answer_and_frees_its_id():
    async with conversation() as (client, handler):
        await client.shake_hands()
        client.send({"id": 5, "method": "wait"})
        await asyncio.wait_for(handler.started.wait(), 10)
        client.send({"method": "notifications/cancelled", "params": {"requestId": 5}})
        assert (await client.ask("ping", number=5))["result"]["era"] == "legacy"
        assert handler.cancelled == [b"5"]
        client.send({"method": "notifications/cancelled", "params": {"requestId": "5"}})
        client.send({"method": "notifications/cancelled", "params": {"requestId": [5]}})
        client.send({"method": "notifications/cancelled"})
        assert "result" in await client.ask("ping")


async def test_a_question_within_a_request_reaches_the_client_and_its_answer_comes_back():
    async with conversation() as (client, _handler):
        await client.shake_hands(elicitation={})
        client.send({"id": 1, "method": "ask"})
        question = await client.receive()
        assert question["method"] == "elicitation/create"
        assert question["params"] == {"message": "who?"}
        client.send({"id": question["id"], "result": {"action": "accept"}})
        assert (await client.receive())["result"] == {"action": "accept"}
        client.send({"id": 2, "method": "ask"})
        again = await client.receive()
        assert again["id"] != question["id"]
        client.send({"id": again["id"], "error": {"code": -1, "message": "no"}})
        assert (await client.receive())["error"] == {"code": -1, "message": "no"}


async def test_a_cancelled_request_takes_its_question_back():
    async with conversation() as (client, _handler):
        await client.shake_hands(elicitation={})
        client.send({"id": 1, "method": "ask"})
        question = await client.receive()
        client.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        note = await client.receive()
        assert note["method"] == "notifications/cancelled"
        assert note["params"] == {"requestId": question["id"]}


async def test_nothing_is_asked_of_a_client_that_cannot_answer():
    async with conversation() as (client, handler):
        assert (await client.ask("ask", {"_meta": MODERN}))["error"]["code"] == -32601
        assert (await handler.session.ask("roots/list", b"{}")).error is not None
        await client.shake_hands()
        assert (await client.ask("ask"))["error"]["code"] == -32601


async def test_notifications_go_both_ways_and_never_follow_the_answer():
    async with conversation() as (client, handler):
        handler.session.send("notifications/tools/list_changed", None)
        await client.shake_hands()
        client.send({"id": 1, "method": "progress"})
        assert (await client.receive())["params"] == {"progress": 1}
        assert (await client.receive())["id"] == 1
        handler.requests[-1].heard("notifications/progress", b"{}")
        handler.session.send("notifications/tools/list_changed", None)
        assert (await client.receive())["method"] == "notifications/tools/list_changed"
        client.send({"method": "notifications/explode"}, {"method": "notifications/vendor", "params": {"a": 1}})
        assert "result" in await client.ask("ping")
        assert handler.notes[0][0] == "notifications/initialized"
        assert handler.notes[2] == ("notifications/vendor", b'{"a": 1}')


async def test_payload_bytes_pass_unchanged():
    async with conversation() as (client, handler):
        await client.shake_hands()
        raw = b'{"x" : 1.10,"n":123456789012345678901234567890,"s":"\\ud800"}'
        client.send(b'{"jsonrpc":"2.0","params":%s,"method":"ping","id":"\\u00e9"}' % raw)
        assert (await client.receive())["id"] == "é"
        assert handler.requests[-1].params == raw


async def test_what_came_after_the_attach_line_is_not_lost():
    first = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n{"jsonrpc":"2.0","id":2,"met'
    async with conversation(leftover=first) as (client, _):
        assert (await client.receive())["id"] == 1
        client.send(b'hod":"ping"}')
        assert (await client.receive())["id"] == 2


async def test_after_the_end_of_input_running_requests_are_answered_and_endless_ones_end():
    async with conversation() as (client, handler):
        await client.shake_hands(elicitation={})
        client.send(
            {"id": 1, "method": "wait"}, {"id": 2, "method": "subscriptions/listen", "params": {"_meta": MODERN}}
        )
        client.send({"id": 3, "method": "ask"})
        assert (await client.receive())["method"] == "elicitation/create"
        client.writer.write_eof()
        assert (await client.receive())["id"] == 3
        handler.release.set()
        assert (await client.receive())["id"] == 1
        assert await asyncio.wait_for(client.reader.read(), 10) == b""
        await asyncio.wait_for(asyncio.shield(client.front), 10)
        assert handler.cancelled == [b"2"]
        assert handler.notes[-1][0] == "closed"


async def test_a_client_that_goes_away_takes_its_requests_along():
    handler = Stub()
    async with conversation(handler) as (client, _):
        await client.shake_hands()
        client.send({"id": 1, "method": "wait"})
        await asyncio.wait_for(handler.started.wait(), 10)
        client.writer.transport.abort()
        await asyncio.wait_for(asyncio.shield(client.front), 10)
        assert handler.notes[-1][0] == "closed"


async def test_cancelling_the_conversation_ends_its_requests():
    handler = Stub()
    async with conversation(handler) as (client, _):
        await client.shake_hands()
        client.send({"id": 1, "method": "wait"})
        await asyncio.wait_for(handler.started.wait(), 10)
        client.front.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.front
        assert handler.cancelled == [b"1"]
        assert await asyncio.wait_for(client.reader.read(), 10) == b""


async def test_a_client_that_does_not_read_is_read_no_more_and_gets_everything_in_the_end(monkeypatch):
    monkeypatch.setattr(stdio_front, "UNREAD_LIMIT", 1 << 20)
    async with conversation() as (client, handler):
        await client.shake_hands()
        client.reader._transport.pause_reading()
        client.send(*({"id": number, "method": "big"} for number in range(10)))
        await asyncio.sleep(0.1)
        client.send(*({"id": number, "method": "ping"} for number in range(10, 20)))
        await asyncio.sleep(0.1)
        assert "ping" not in [request.method for request in handler.requests]
        handler.session.send("notifications/dropped", None)
        client.reader._transport.resume_reading()
        answers = [await client.receive() for _ in range(20)]
        assert [answer["id"] for answer in answers] == list(range(20))


class Door(asyncio.Protocol):
    """The control socket in short: reads the attach line, then hands the connection over."""

    def __init__(self, handler, pause: bool) -> None:
        self.handler, self.pause, self.data = handler, pause, b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data) -> None:
        self.data += data
        line, newline, rest = self.data.partition(b"\n")
        if newline:
            assert json.loads(line) == {"attach": "stdio", "workspace": "alice"}
            if self.pause:
                self.transport.pause_reading()
            self.transport.write(b'{"attached":true}\n')
            serving = stdio_front.serve(self.transport, self.handler, PRINCIPAL, leftover=rest)
            self.handler.task = asyncio.get_running_loop().create_task(serving)


class Tiny(Stub):
    """Enough of a server for a real client."""

    async def handle(self, request) -> Answer:
        tools = b'"tools":[{"name":"hi","inputSchema":{"type":"object"}}]'
        hints = b'"resultType":"complete","ttlMs":0,"cacheScope":"private"'
        info = b'"serverInfo":{"name":"tiny","version":"1"}'
        results = {
            "initialize": b'{"protocolVersion":"%s","capabilities":{},%s}' % (request.version.encode(), info),
            "server/discover": b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},%s}' % hints,
            "tools/list": b"{%s,%s}" % (tools, hints),
            "tools/call": b'{"content":[{"type":"text","text":"%s"}],"resultType":"complete"}' % request.era.encode(),
        }
        return Answer(result=results.get(request.method, b"{}"))


@pytest.mark.parametrize("pause", [True, False])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_client_talks_through_shim_and_front(mode, pause):
    from mcp import Client, StdioServerParameters

    with tempfile.TemporaryDirectory(prefix="mrg") as home:
        handler = Tiny()
        (Path(home) / "run").mkdir()
        door = await asyncio.get_running_loop().create_unix_server(
            lambda: Door(handler, pause), f"{home}/run/control.sock"
        )
        main = "import sys; from mooring.cli.shim import main; sys.exit(main(sys.argv[1:]))"
        shim = StdioServerParameters(
            command=sys.executable, args=["-c", main, "-w", "alice"], env={"MOORING_HOME": home}
        )
        async with asyncio.timeout(20), Client(shim, mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["hi"]
            era = "legacy" if mode == "legacy" else "modern"
            assert (await client.call_tool("hi", {})).content[0].text == era
        await asyncio.wait_for(handler.task, 10)
        door.close()


texts = st.text(max_size=5) | st.just("\ud800")
ids = st.integers(-(2**70), 2**70) | texts | st.none() | st.booleans() | st.lists(st.integers(), max_size=2)
methods = st.sampled_from(["initialize", "ping", "progress", "notifications/cancelled", "server/discover", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
members = {"jsonrpc": st.just("2.0"), "id": ids, "method": methods | values, "params": values, "result": values}
messages = st.fixed_dictionaries({}, optional=members)
lines = st.one_of(
    st.binary(max_size=60),
    messages.map(lambda message: json.dumps(message).encode()),
    st.tuples(messages, st.integers(0, 80)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]]),
)


@settings(max_examples=150, deadline=None)
@given(fuzz=st.lists(lines, max_size=8), cuts=st.lists(st.integers(0, 300), max_size=4))
def test_whatever_lines_come_each_is_answered_or_ignored_and_the_conversation_goes_on(fuzz, cuts):
    async def run() -> None:
        async with conversation() as (client, _):
            stream = b"".join(line + b"\n" for line in fuzz)
            edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
            for start, end in itertools.pairwise(edges):
                client.writer.write(stream[start:end])
                await asyncio.sleep(0)
            client.send({"id": "the last one", "method": "ping"})
            while (answer := await client.receive()).get("id") != "the last one":
                assert answer["jsonrpc"] == "2.0"
            assert "result" in answer or fuzz

    asyncio.run(run())
