"""Conversations over streamable HTTP with a raw server: eras, streams, sessions, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mooring.errors import Busy, Crashed, MooringError, StartFailed, TimedOut, Unavailable, UpstreamProtocol
from mooring.launch.base import Url
from mooring.nouns import Era
from mooring.testing import wait_for
from mooring.wire import http_client, http_upstream, upstream_listening
from mooring.wire.connection import Connection
from mooring.wire.eras import to_modern_params
from mooring.wire.jsonrpc import Answer
from mooring.wire.remote_upstream import Terms, connect
from raw_http_server import Exchange, RawServer

LIMIT = 20.0  # seconds that anything here may take on a busy machine


class Ear:
    """A caller and a listener that remember what they heard, and answer what they are asked."""

    def __init__(self) -> None:
        self.alone = False
        self.headers: dict[str, str] = {}
        self.said: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.questions: list[str] = []
        self.answer = Answer(result=b'{"action":"accept"}')
        self.hold = asyncio.Event()
        self.hold.set()
        self.cancelled = asyncio.Event()

    def heard(self, method: str, params: bytes) -> None:
        self.said.put_nowait((method, json.loads(params)))

    announced = heard

    async def ask(self, method: str, params: bytes) -> Answer:
        self.questions.append(method)
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.answer

    asked = ask

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.said.get(), LIMIT)


class Bench:
    """Opens conversations that end with the test."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.listener = Ear()
        self.phases: list[str] = []
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def serve(self, *args: Any, **more: Any) -> RawServer:
        return await self.stack.enter_async_context(RawServer(*args, **more))

    async def connect(
        self,
        server: RawServer | str,
        *,
        transport: str = "http",
        headers: dict[str, str] | None = None,
        capabilities: bytes = b"{}",
        timeout: float = LIMIT,
        **more: Any,
    ) -> Connection:
        url = server if isinstance(server, str) else server.url
        self.phases.clear()
        terms = Terms("raw", self.exited, self.listener, capabilities, timeout, self.phases.append, **more)
        return await self.stack.enter_async_context(connect(Url(url, headers or {}, transport), terms))


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(upstream_listening, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(http_upstream, "PAUSE", 0.02)
    bench = Bench()
    async with asyncio.timeout(LIMIT * 3), bench.stack:
        yield bench


async def ask(connection: Connection, method: str, params: dict[str, Any], caller: Ear | None = None) -> Answer:
    raw = json.dumps(params).encode()
    if connection.facts.era == "modern":
        raw = to_modern_params(raw, version="2026-07-28", capabilities=b"{}", client_info=b"{}")
    async with asyncio.timeout(LIMIT):
        return await connection.request(method, raw, caller)


async def call(connection: Connection, tool: str = "echo", caller: Ear | None = None, **arguments: Any) -> Any:
    answer = await ask(connection, "tools/call", {"name": tool, "arguments": arguments}, caller)
    return json.loads(answer.result or answer.error or b"")


ERAS: tuple[Era, ...] = ("legacy", "modern")


@pytest.mark.parametrize(
    ("era", "spoken", "steps"),
    [
        ("legacy", "legacy", ["discover", "initialize"]),
        ("modern", "modern", ["discover"]),
        ("dual", "modern", ["discover"]),
    ],
)
async def test_the_era_is_found_out(bench: Bench, era: str, spoken: str, steps: list[str]) -> None:
    """R27, A16: modern first; what does not understand that is asked as a legacy server."""
    server = await bench.serve(era)
    connection = await bench.connect(server)
    assert connection.facts.era == spoken
    assert json.loads(connection.facts.server_info)["name"] == "raw"
    assert bench.phases == steps
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("era", ERAS)
async def test_every_request_carries_the_headers_of_its_era(bench: Bench, era: Era) -> None:
    """And those of the configuration; non-ASCII names in their base64 form."""
    server = await bench.serve(era)
    connection = await bench.connect(server, headers={"X-Team": "docs"})
    await call(connection, "é")
    sent = server.last("tools/call").headers
    assert sent["x-team"] == "docs"
    assert sent["accept"] == "application/json, text/event-stream"
    assert sent["content-type"] == "application/json"
    if era == "modern":
        mirrored = {name: sent[name] for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
        assert mirrored == {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "=?base64?w6k=?=",
        }
        assert server.seen[0].headers["mcp-method"] == "server/discover"
    else:
        assert (sent["mcp-protocol-version"], sent["mcp-session-id"]) == ("2025-11-25", "s1")
        assert "mcp-protocol-version" not in server.last("initialize").headers
        assert server.methods().index("notifications/initialized") < server.methods().index("tools/call")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b""),
        (404, b"<html>not here</html>"),
        (405, b""),
        (406, b'{"oops":true}'),
        (500, b"Traceback"),
        (202, b""),
        (200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown"}}'),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Unsupported protocol version"}}'),
    ],
)
async def test_whatever_is_no_modern_error_means_legacy(bench: Bench, status: int, body: bytes) -> None:
    server = await bench.serve("legacy")

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") != "server/discover":
            return False
        await it.reply(status, body)
        return True

    server.override = refuse
    assert (await bench.connect(server)).facts.era == "legacy"


async def test_a_version_that_the_server_names_is_tried(bench: Bench) -> None:
    server = await bench.serve("modern")

    async def refuse(it: Exchange) -> bool:
        if len(server.seen) > 1:
            return False
        await it.error(400, -32022, "Unsupported protocol version", {"supported": ["2026-07-28"]})
        return True

    server.override = refuse
    assert (await bench.connect(server)).facts.era == "modern"
    assert server.methods()[:2] == ["server/discover", "server/discover"]


@pytest.mark.parametrize(("remembered", "first"), [("legacy", "initialize"), ("modern", "server/discover")])
async def test_what_it_spoke_last_time_is_tried_first(bench: Bench, remembered: Era, first: str) -> None:
    server = await bench.serve("dual")
    connection = await bench.connect(server, era=remembered)
    assert (connection.facts.era, server.methods()[0]) == (remembered, first)


async def test_a_memory_that_is_out_of_date_is_corrected(bench: Bench) -> None:
    server = await bench.serve("modern")
    assert (await bench.connect(server, era="legacy")).facts.era == "modern"


@pytest.mark.parametrize("era", ERAS)
async def test_payloads_keep_their_bytes(bench: Bench, era: Era) -> None:
    """A17: numbers of thirty digits, lone surrogates, fields nobody knows; in JSON and on a stream."""
    server = await bench.serve(era)
    odd = '{"n":123456789012345678901234567890,"s":"\\ud800","x-vendor":[1.10]}'

    async def plain(it: Exchange, arguments: Any) -> None:
        await it.reply(200, b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (it.message["id"], odd.encode()))

    async def streamed(it: Exchange, arguments: Any) -> None:
        await it.event(f'{{"jsonrpc":"2.0","result":{odd},"id":{it.message["id"]}}}')
        await it.end()

    server.tools |= {"plain": plain, "streamed": streamed}
    connection = await bench.connect(server)
    for tool in ("plain", "streamed"):
        answer = await ask(connection, "tools/call", {"name": tool})
        assert answer.result == odd.encode()


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_said_during_a_call_reaches_its_caller_alone(bench: Bench, era: Era) -> None:
    """R27, A15, A18: parallel calls with one progress token between them, each with its own messages."""
    server = await bench.serve(era)
    both = asyncio.Barrier(2)

    async def talk(it: Exchange, arguments: Any) -> Any:
        token = it.message["params"]["_meta"]["progressToken"]
        await both.wait()
        await it.note("notifications/progress", progressToken=token, progress=arguments["n"], note="é")
        await it.note("notifications/message", level="info", data=arguments["n"])
        await both.wait()
        return {"n": arguments["n"]}

    server.tools["talk"] = talk
    connection = await bench.connect(server)
    callers = [Ear(), Ear()]
    params = [{"name": "talk", "arguments": {"n": n}, "_meta": {"progressToken": "same"}} for n in range(2)]
    answers = await asyncio.gather(*(ask(connection, "tools/call", params[n], callers[n]) for n in range(2)))
    for n in range(2):
        assert json.loads(answers[n].result or b"")["n"] == n
        assert await callers[n].next() == (
            "notifications/progress",
            {"progressToken": "same", "progress": n, "note": "é"},
        )
        assert await callers[n].next() == ("notifications/message", {"level": "info", "data": n})
        assert callers[n].said.empty()
    assert bench.listener.said.empty()


async def test_progress_on_the_wrong_stream_still_finds_its_caller(bench: Bench) -> None:
    """Older servers send it outside the call; the token says whose it is."""
    server = await bench.serve("legacy")

    async def talk(it: Exchange, arguments: Any) -> Any:
        await wait_for(lambda: server.outside)
        await server.announce("notifications/progress", progressToken=it.message["params"]["_meta"]["progressToken"])
        return {}

    server.tools["talk"] = talk
    connection, caller = await bench.connect(server), Ear()
    await ask(connection, "tools/call", {"name": "talk", "_meta": {"progressToken": 1.5}}, caller)
    assert await caller.next() == ("notifications/progress", {"progressToken": 1.5})


@pytest.mark.parametrize("era", ERAS)
async def test_cancelling_a_call_reaches_the_server(bench: Bench, era: Era) -> None:
    """R27: modern by closing the stream, legacy by a message as well; the conversation goes on."""
    server = await bench.serve(era)
    begun = asyncio.Event()

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.stream()
        begun.set()
        await it.over.wait()

    server.tools["forever"] = forever
    connection = await bench.connect(server)
    task = asyncio.create_task(call(connection, "forever"))
    await begun.wait()
    exchange = server.last("tools/call")
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await asyncio.wait_for(exchange.over.wait(), LIMIT)
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}
    if era == "legacy":
        await wait_for(lambda: "notifications/cancelled" in server.methods())
        assert server.last("notifications/cancelled").message["params"]["requestId"] == exchange.message["id"]
    else:
        assert "notifications/cancelled" not in server.methods()


async def test_a_question_within_a_call_is_answered_by_its_caller(bench: Bench) -> None:
    """A18: by POST, in the session; a ping is answered on the spot."""
    server = await bench.serve("legacy")

    async def curious(it: Exchange, arguments: Any) -> Any:
        pong = await it.ask("ping", {})
        answer = await it.ask("elicitation/create", {"message": "who?"})
        odd = await it.ask("vendor/ask", {})
        return {"said": [pong.get("result"), answer.get("result"), odd.get("result")]}

    server.tools["curious"] = curious
    connection, caller = await bench.connect(server, capabilities=b'{"elicitation":{}}'), Ear()
    assert (await call(connection, "curious", caller))["said"] == [{}, {"action": "accept"}, {"action": "accept"}]
    assert caller.questions == ["elicitation/create", "vendor/ask"]
    assert bench.listener.questions == []
    assert next(it for it in server.seen if "result" in it.message).headers["mcp-session-id"] == "s1"


async def test_a_question_ends_with_its_call(bench: Bench) -> None:
    """R18: nobody is left with a dialogue that leads nowhere."""
    server = await bench.serve("legacy")

    async def impatient(it: Exchange, arguments: Any) -> Any:
        waiting = asyncio.ensure_future(it.ask("elicitation/create", {}))
        await wait_for(lambda: caller.questions)
        waiting.cancel()
        return {}

    server.tools["impatient"] = impatient
    connection, caller = await bench.connect(server), Ear()
    caller.hold.clear()
    await call(connection, "impatient", caller)
    await asyncio.wait_for(caller.cancelled.wait(), LIMIT)


async def test_a_question_beside_the_only_call_is_answered_by_its_caller(bench: Bench) -> None:
    """A18: SDKs ask on the GET stream unless a tool's author takes care to ask within the call."""
    server = await bench.serve("legacy")

    async def careless(it: Exchange, arguments: Any) -> Any:
        await wait_for(lambda: server.outside)
        answer = await server.outside[0].ask("elicitation/create", {"message": "who?"})
        return {"said": answer.get("result")}

    server.tools["careless"] = careless
    connection, caller = await bench.connect(server), Ear()
    assert (await call(connection, "careless", caller))["said"] == {"action": "accept"}
    assert (caller.questions, bench.listener.questions) == (["elicitation/create"], [])


async def test_a_question_that_fits_no_single_call_goes_to_the_listener(bench: Bench) -> None:
    """A18: with two calls under way, or one that was just cancelled, it could be another caller's."""
    server = await bench.serve("legacy")
    begun: list[Exchange] = []

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.stream()
        begun.append(it)
        await it.over.wait()

    server.tools["forever"] = forever
    connection, ears = await bench.connect(server), (Ear(), Ear())
    tasks = [asyncio.create_task(call(connection, "forever", ear)) for ear in ears]
    await wait_for(lambda: len(begun) == 2 and server.outside)
    await server.outside[0].ask("roots/list", {})
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    await server.outside[0].ask("roots/list", {})
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert bench.listener.questions == ["roots/list"] * 2
    assert [ear.questions for ear in ears] == [[], []]


async def test_a_question_outside_any_call_goes_to_the_listener(bench: Bench) -> None:
    server = await bench.serve("legacy")
    await bench.connect(server)
    await wait_for(lambda: server.outside)
    answer = await server.outside[0].ask("roots/list", {})
    assert answer["result"] == {"action": "accept"}
    assert bench.listener.questions == ["roots/list"]


@pytest.mark.parametrize("era", ERAS)
async def test_announcements_are_heard_and_their_stream_is_opened_again(bench: Bench, era: Era) -> None:
    """A16: by GET or by listening; after a break the lists count as changed."""
    server = await bench.serve(era)
    await bench.connect(server)
    await wait_for(lambda: server.outside)
    await server.announce("notifications/tools/list_changed")
    assert await bench.listener.next() == ("notifications/tools/list_changed", {})
    server.outside.pop().drop()
    await wait_for(lambda: server.outside)
    changed = {(await bench.listener.next())[0] for _ in range(2)}
    assert changed == {"notifications/tools/list_changed", "notifications/resources/list_changed"}
    await server.announce("notifications/resources/updated", uri="x://y")
    assert await bench.listener.next() == ("notifications/resources/updated", {"uri": "x://y"})


async def test_a_server_without_such_a_stream_is_asked_once(bench: Bench) -> None:
    server = await bench.serve("legacy", streams=False)
    connection = await bench.connect(server)
    await wait_for(lambda: "GET" in server.methods())
    await call(connection)
    await asyncio.sleep(0.1)
    assert server.methods().count("GET") == 1


async def test_a_modern_server_that_tells_nothing_is_not_listened_to(bench: Bench) -> None:
    server = await bench.serve("modern")
    server.capabilities = {"tools": {}}
    connection = await bench.connect(server)
    await call(connection)
    assert "subscriptions/listen" not in server.methods()


@pytest.mark.parametrize("refusal", ["404", "400"])
async def test_a_forgotten_session_is_taken_up_again_without_the_caller_noticing(bench: Bench, refusal: str) -> None:
    """R27: once for parallel calls; each is carried out once; subscriptions and the log level stand again."""
    server = await bench.serve("legacy")
    connection = await bench.connect(server)
    await wait_for(lambda: server.outside)
    await ask(connection, "resources/subscribe", {"uri": "x://y"})
    await ask(connection, "logging/setLevel", {"level": "info"})
    server.known.clear()

    async def refuse(it: Exchange) -> bool:
        if refusal == "400" and it.headers.get("mcp-session-id") == "s1":
            await it.error(400, -32000, "Bad Request: No valid session ID provided")
            return True
        return False

    server.override = refuse
    results = await asyncio.gather(*(call(connection, n=n) for n in range(5)))
    assert [result["structuredContent"]["n"] for result in results] == list(range(5))
    assert server.methods().count("initialize") == 2
    assert not connection.closed.done()
    await wait_for(lambda: server.methods().count("logging/setLevel") == 2)
    assert server.last("resources/subscribe").headers["mcp-session-id"] == "s2"
    assert (await bench.listener.next())[0].endswith("/list_changed")


async def test_a_session_that_is_forgotten_at_once_is_not_taken_up_for_ever(bench: Bench) -> None:
    server = await bench.serve("legacy", streams=False)
    connection = await bench.connect(server)

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") == "tools/call":
            await it.reply(404)
            return True
        return False

    server.override = refuse
    with pytest.raises(UpstreamProtocol):
        await call(connection)
    assert server.methods().count("tools/call") == 2


async def test_a_lost_session_is_noticed_on_the_stream(bench: Bench) -> None:
    server = await bench.serve("legacy")
    await bench.connect(server)
    await wait_for(lambda: server.outside)
    server.known.clear()
    server.outside.pop().drop()
    await wait_for(lambda: server.methods().count("initialize") == 2)
    await wait_for(lambda: server.outside)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_breaks_off_is_not_asked_for_again(bench: Bench, era: Era) -> None:
    """R11: the call may have been carried out; only that one fails."""
    server = await bench.serve(era)

    async def broken(it: Exchange, arguments: Any) -> None:
        await it.note("notifications/message", data=1)
        it.drop()

    async def unsaid(it: Exchange, arguments: Any) -> None:
        it.drop()

    server.tools |= {"broken": broken, "unsaid": unsaid}
    connection = await bench.connect(server)
    for tool in ("broken", "unsaid"):
        with pytest.raises(Crashed) as raised:
            await call(connection, tool)
        assert raised.value.details["written"] is True
    assert server.methods().count("tools/call") == 2
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


async def test_a_stream_with_event_ids_is_resumed(bench: Bench) -> None:
    """The server closes the connection and is polled, as it asks for; then one breaks; nothing is asked twice."""
    server = await bench.serve("legacy")
    asked: list[str] = []

    async def polled(it: Exchange, arguments: Any) -> None:
        await it.event("", id="e1", retry=10)
        await it.end()

    async def resumed(it: Exchange) -> bool:
        if it.verb != "GET" or "last-event-id" not in it.headers:
            return False
        asked.append(it.headers["last-event-id"])
        original = server.last("tools/call").message["id"]
        match asked[-1]:
            case "e1":
                await it.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 1}}, id="e2")
                it.drop()
            case "e2" if len(asked) == 2:
                await it.reply(200, b"", "text/event-stream")
            case _:
                await it.event({"jsonrpc": "2.0", "id": original, "result": {"late": True}}, id="e3")
                await it.end()
        return True

    server.tools["polled"] = polled
    server.override = resumed
    connection, caller = await bench.connect(server), Ear()
    assert await call(connection, "polled", caller) == {"late": True}
    assert asked == ["e1", "e2", "e2"]
    assert await caller.next() == ("notifications/message", {"n": 1})
    assert server.methods().count("tools/call") == 1


async def test_the_session_is_given_back(bench: Bench) -> None:
    server = await bench.serve("legacy")
    await bench.connect(server)
    assert server.known == {"s1"}
    await bench.stack.pop_all().aclose()
    assert "DELETE" in server.methods()
    assert server.last("DELETE").headers["mcp-session-id"] == "s1"


async def test_a_server_that_ignores_the_goodbye_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(http_upstream, "GOODBYE", 0.05)
    server = await bench.serve("legacy")

    async def hang(it: Exchange) -> bool:
        if it.verb == "DELETE":
            await it.over.wait()
        return False

    server.override = hang
    connection = await bench.connect(server)

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.over.wait()

    server.tools["forever"] = forever
    pending = asyncio.create_task(call(connection, "forever"))
    await wait_for(lambda: "tools/call" in server.methods())
    async with asyncio.timeout(LIMIT):
        await bench.stack.pop_all().aclose()
    await asyncio.wait([pending])
    assert isinstance(pending.exception(), Crashed)


async def test_a_server_that_is_gone_ends_the_conversation(bench: Bench) -> None:
    """R14: the call was not sent, so another instance may take it."""
    server = await bench.serve("modern")
    connection = await bench.connect(server)
    await server.stop()
    with pytest.raises(Crashed, match="cannot be reached") as raised:
        await call(connection)
    assert raised.value.details["written"] is False
    assert "Connection refused" in await asyncio.wait_for(connection.closed, LIMIT)
    with pytest.raises(Crashed, match="was not sent"):
        await call(connection)


async def test_a_server_that_is_not_there_cannot_be_opened(bench: Bench) -> None:
    server = await bench.serve("modern")
    await server.stop()
    with pytest.raises(StartFailed, match=r"cannot be reached at http://127\.0\.0\.1:\d+/mcp: Connection refused"):
        await bench.connect(f"http://user:pass@127.0.0.1:{server.port}/mcp?key=secret")


@pytest.mark.parametrize("answer", ["nothing", "503", "reset"])
async def test_a_server_that_is_starting_is_waited_for(bench: Bench, answer: str) -> None:
    """R10: ready is when MCP answers, whatever answered before that."""
    server = await bench.serve("dual")

    async def refuse(it: Exchange) -> bool:
        if len(server.seen) > 3:
            return False
        if answer == "503":
            await it.reply(503, b"warming up")
        else:
            it.drop()
        return True

    if answer == "nothing":
        await server.stop()
        asyncio.get_running_loop().call_later(0.3, lambda: asyncio.ensure_future(server.start()))
    else:
        server.override = refuse
    assert (await bench.connect(server, starting=True)).facts.era == "modern"


async def test_the_end_of_a_starting_process_is_noticed_at_once(bench: Bench) -> None:
    """R10: nobody waits for one that is gone."""
    server = await bench.serve("dual")
    await server.stop()
    asyncio.get_running_loop().call_later(0.1, bench.exited.set_result, 3)
    with pytest.raises(StartFailed, match=r"ended before it answered \(exit code 3\)"):
        await bench.connect(server, starting=True, timeout=3600.0)


async def test_one_that_never_answers_is_given_up(bench: Bench) -> None:
    server = await bench.serve("dual")

    async def hang(it: Exchange) -> bool:
        await it.over.wait()
        return True

    server.override = hang
    with pytest.raises(TimedOut):
        await bench.connect(server, timeout=0.3)


@pytest.mark.parametrize(
    ("status", "kind", "match"),
    [
        (401, Unavailable, "wants a login"),
        (403, Unavailable, "wants a login"),
        (429, Busy, "429"),
        (503, Busy, "503"),
        (500, UpstreamProtocol, "500"),
        (200, UpstreamProtocol, "no message"),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_a_status_without_a_message_is_an_error_with_a_reason(
    bench: Bench, era: Era, status: int, kind: type[MooringError], match: str
) -> None:
    server = await bench.serve(era)
    connection = await bench.connect(server)

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") != "tools/call":
            return False
        await it.reply(status, b"<html></html>", "text/html")
        return True

    server.override = refuse
    with pytest.raises(kind, match=match):
        await call(connection)
    assert not connection.closed.done()


async def test_a_login_is_asked_for_at_the_start(bench: Bench) -> None:
    """A server that wants credentials is not taken for a legacy one."""
    server = await bench.serve("dual")

    async def refuse(it: Exchange) -> bool:
        await it.reply(401, b"", www_authenticate="Bearer")
        return True

    server.override = refuse
    with pytest.raises(Unavailable, match="check the token in its auth or headers"):
        await bench.connect(server)
    assert server.methods() == ["server/discover"]


async def test_errors_of_the_server_pass_unchanged(bench: Bench) -> None:
    server = await bench.serve("modern")
    connection = await bench.connect(server)
    answer = await ask(connection, "vendor/thing", {})
    assert json.loads(answer.error or b"") == {"code": -32601, "message": "unknown method"}


async def test_a_modern_server_that_becomes_a_legacy_one_is_asked_anew(bench: Bench) -> None:
    server = await bench.serve("modern")
    connection = await bench.connect(server)
    server.era = "legacy"
    with pytest.raises(Crashed) as raised:
        await call(connection)
    assert raised.value.details["written"] is False
    assert connection.closed.done()


async def test_redirects_stay_at_the_same_origin(bench: Bench) -> None:
    server, other = await bench.serve("modern"), await bench.serve("modern")

    async def redirect(it: Exchange) -> bool:
        if it.path == "/mcp" or it.path == "/away":
            base = "" if it.path == "/mcp" else other.url
            await it.reply(307, b"", location=f"{base}/" if base else "/mcp/")
            return True
        return False

    server.override = redirect
    connection = await bench.connect(server, headers={"Authorization": "Bearer token"})
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}
    assert server.last("tools/call").path == "/mcp/"
    with pytest.raises(UpstreamProtocol, match="a redirect to"):
        await bench.connect(f"http://127.0.0.1:{server.port}/away", headers={"Authorization": "Bearer token"})
    assert other.seen == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_has_a_longest_length(bench: Bench, monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    monkeypatch.setattr(http_client, "BODY", 10_000)
    monkeypatch.setattr("mooring.wire.sse.Events.__init__.__defaults__", (10_000,))
    server = await bench.serve("modern")

    async def huge(it: Exchange, arguments: Any) -> Any:
        if streamed:
            await it.stream()
        return {"x": "y" * 100_000}

    server.tools["huge"] = huge
    connection = await bench.connect(server)
    with pytest.raises(UpstreamProtocol, match=r"sent more|longer than"):
        await call(connection, "huge")
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


async def test_a_large_answer_arrives(bench: Bench) -> None:
    """R27: several megabytes, both ways."""
    server = await bench.serve("legacy")
    connection = await bench.connect(server)
    assert (await call(connection, text="x" * 5_000_000))["structuredContent"]["text"] == "x" * 5_000_000


async def test_connections_are_used_again(bench: Bench) -> None:
    server = await bench.serve("modern")
    server.capabilities = {"tools": {}}

    async def streamed(it: Exchange, arguments: Any) -> Any:
        await it.stream()
        return {}

    server.tools["streamed"] = streamed
    connection = await bench.connect(server)
    for _ in range(5):
        await call(connection)
        await call(connection, "streamed")
        await asyncio.sleep(0.01)  # the end of the stream follows its answer
    assert len(server._tasks) == 1


async def test_a_stream_may_hold_what_nobody_understands(bench: Bench) -> None:
    server = await bench.serve("modern")

    async def odd(it: Exchange, arguments: Any) -> Any:
        await it.raw(b": comment\n\nevent: ping\ndata: {}\n\ndata: no json\n\nunknown: x\n\n")
        return {"ok": True}

    async def begins(it: Exchange, arguments: Any) -> Any:
        await it.stream()
        return await odd(it, arguments)

    server.tools["odd"] = begins
    connection = await bench.connect(server)
    assert (await call(connection, "odd"))["ok"]


# the old transport


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_the_old_transport_is_spoken_and_found_out(bench: Bench, transport: str) -> None:
    """A server that refuses POST with 405 is tried with HTTP+SSE."""
    server = await bench.serve("sse")
    connection = await bench.connect(server, transport=transport)
    assert connection.facts.version == "2024-11-05"
    results = await asyncio.gather(*(call(connection, n=n) for n in range(5)))
    assert [result["structuredContent"]["n"] for result in results] == list(range(5))
    await server.announce("notifications/tools/list_changed")
    assert (await bench.listener.next())[0] == "notifications/tools/list_changed"
    server.outside[0].drop()
    await asyncio.wait_for(connection.closed, LIMIT)
    with pytest.raises(Crashed):
        await call(connection)


async def test_the_old_transport_posts_nowhere_else(bench: Bench) -> None:
    """The headers of the configuration are not for another origin."""
    server, other = await bench.serve("sse"), await bench.serve("sse")

    async def lure(it: Exchange) -> bool:
        if it.verb != "GET":
            return False
        await it.event(f"{other.url}/messages", kind="endpoint")
        await it.over.wait()
        return True

    server.override = lure
    with pytest.raises(UpstreamProtocol, match="another origin"):
        await bench.connect(server, transport="sse")
    assert other.seen == []


async def test_the_refusal_of_the_new_transport_is_told_when_there_is_no_old_one(bench: Bench) -> None:
    server = await bench.serve("modern")

    async def nothing(it: Exchange) -> bool:
        await it.reply(404, b"nothing here")
        return True

    server.override = nothing
    with pytest.raises(UpstreamProtocol, match=r"refused initialize: .*HTTP 404"):
        await bench.connect(server)


async def test_a_tool_that_wants_other_headers_is_listed_anew(bench: Bench) -> None:
    """Its schema may have changed which arguments are repeated as headers."""
    server = await bench.serve("modern")

    async def mismatch(it: Exchange, arguments: Any) -> None:
        await it.error(400, -32020, "Header mismatch")

    server.tools["strict"] = mismatch
    connection = await bench.connect(server)
    assert (await call(connection, "strict"))["code"] == -32020
    assert await bench.listener.next() == ("notifications/tools/list_changed", {})
