"""Conversations over streamable HTTP with a raw server: headers, streams, sessions, limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from http_bench import ERAS, LIMIT, Ear, HttpBench, ask, call

from mooring.errors import Crashed, UpstreamProtocol
from mooring.nouns import Era
from mooring.testing import wait_for
from mooring.wire import http_client, http_upstream
from raw_http_server import Exchange


@pytest.mark.parametrize("era", ERAS)
async def test_payloads_keep_their_bytes(http_bench: HttpBench, era: Era) -> None:
    """A17: numbers of thirty digits, lone surrogates, fields nobody knows; in JSON and on a stream."""
    server = await http_bench.serve(era)
    odd = '{"n":123456789012345678901234567890,"s":"\\ud800","x-vendor":[1.10]}'

    async def plain(it: Exchange, arguments: Any) -> None:
        await it.reply(200, b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (it.message["id"], odd.encode()))

    async def streamed(it: Exchange, arguments: Any) -> None:
        await it.event(f'{{"jsonrpc":"2.0","result":{odd},"id":{it.message["id"]}}}')
        await it.end()

    server.tools |= {"plain": plain, "streamed": streamed}
    connection = await http_bench.connect(server)
    for tool in ("plain", "streamed"):
        answer = await ask(connection, "tools/call", {"name": tool})
        assert answer.result == odd.encode()


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_said_during_a_call_reaches_its_caller_alone(http_bench: HttpBench, era: Era) -> None:
    """R27, A15, A18: parallel calls with one progress token between them, each with its own messages."""
    server = await http_bench.serve(era)
    both = asyncio.Barrier(2)

    async def talk(it: Exchange, arguments: Any) -> Any:
        token = it.message["params"]["_meta"]["progressToken"]
        await both.wait()
        await it.note("notifications/progress", progressToken=token, progress=arguments["n"], note="é")
        await it.note("notifications/message", level="info", data=arguments["n"])
        await both.wait()
        return {"n": arguments["n"]}

    server.tools["talk"] = talk
    connection = await http_bench.connect(server)
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
    assert http_bench.listener.said.empty()


async def test_progress_on_the_wrong_stream_still_finds_its_caller(http_bench: HttpBench) -> None:
    """Older servers send it outside the call; the token says whose it is."""
    server = await http_bench.serve("legacy")

    async def talk(it: Exchange, arguments: Any) -> Any:
        await wait_for(lambda: server.outside)
        await server.announce("notifications/progress", progressToken=it.message["params"]["_meta"]["progressToken"])
        return {}

    server.tools["talk"] = talk
    connection, caller = await http_bench.connect(server), Ear()
    await ask(connection, "tools/call", {"name": "talk", "_meta": {"progressToken": 1.5}}, caller)
    assert await caller.next() == ("notifications/progress", {"progressToken": 1.5})


@pytest.mark.parametrize("era", ERAS)
async def test_cancelling_a_call_reaches_the_server(http_bench: HttpBench, era: Era) -> None:
    """R27: modern by closing the stream, legacy by a message as well; the conversation goes on."""
    server = await http_bench.serve(era)
    begun = asyncio.Event()

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.stream()
        begun.set()
        await it.over.wait()

    server.tools["forever"] = forever
    connection = await http_bench.connect(server)
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


async def test_a_question_within_a_call_is_answered_by_its_caller(http_bench: HttpBench) -> None:
    """A18: by POST, in the session; a ping is answered on the spot."""
    server = await http_bench.serve("legacy")

    async def curious(it: Exchange, arguments: Any) -> Any:
        pong = await it.ask("ping", {})
        answer = await it.ask("elicitation/create", {"message": "who?"})
        odd = await it.ask("vendor/ask", {})
        return {"said": [pong.get("result"), answer.get("result"), odd.get("result")]}

    server.tools["curious"] = curious
    connection, caller = await http_bench.connect(server, capabilities=b'{"elicitation":{}}'), Ear()
    assert (await call(connection, "curious", caller))["said"] == [{}, {"action": "accept"}, {"action": "accept"}]
    assert caller.questions == ["elicitation/create", "vendor/ask"]
    assert http_bench.listener.questions == []
    assert next(it for it in server.seen if "result" in it.message).headers["mcp-session-id"] == "s1"


async def test_a_question_ends_with_its_call(http_bench: HttpBench) -> None:
    """R18: nobody is left with a dialogue that leads nowhere."""
    server = await http_bench.serve("legacy")

    async def impatient(it: Exchange, arguments: Any) -> Any:
        waiting = asyncio.ensure_future(it.ask("elicitation/create", {}))
        await wait_for(lambda: caller.questions)
        waiting.cancel()
        return {}

    server.tools["impatient"] = impatient
    connection, caller = await http_bench.connect(server), Ear()
    caller.hold.clear()
    await call(connection, "impatient", caller)
    await asyncio.wait_for(caller.cancelled.wait(), LIMIT)


async def test_a_question_beside_the_only_call_is_answered_by_its_caller(http_bench: HttpBench) -> None:
    """A18: SDKs ask on the GET stream unless a tool's author takes care to ask within the call."""
    server = await http_bench.serve("legacy")

    async def careless(it: Exchange, arguments: Any) -> Any:
        await wait_for(lambda: server.outside)
        answer = await server.outside[0].ask("elicitation/create", {"message": "who?"})
        return {"said": answer.get("result")}

    server.tools["careless"] = careless
    connection, caller = await http_bench.connect(server), Ear()
    assert (await call(connection, "careless", caller))["said"] == {"action": "accept"}
    assert (caller.questions, http_bench.listener.questions) == (["elicitation/create"], [])


async def test_a_call_that_was_answered_does_not_hide_whose_a_question_is(http_bench: HttpBench) -> None:
    """A18: its stream may stay open for a moment."""
    server = await http_bench.serve("legacy")

    async def lingering(it: Exchange, arguments: Any) -> None:
        await it.event({"jsonrpc": "2.0", "id": it.message["id"], "result": {}})
        await it.over.wait()

    async def careless(it: Exchange, arguments: Any) -> Any:
        return {"said": (await server.outside[0].ask("elicitation/create", {"message": "who?"})).get("result")}

    server.tools |= {"lingering": lingering, "careless": careless}
    connection, first, second = await http_bench.connect(server), Ear(), Ear()
    await wait_for(lambda: server.outside)
    await call(connection, "lingering", first)
    assert (await call(connection, "careless", second))["said"] == {"action": "accept"}
    assert (first.questions, second.questions) == ([], ["elicitation/create"])
    assert http_bench.listener.questions == []


async def test_numbers_of_ours_may_come_back_as_strings(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy")

    async def worded(it: Exchange, arguments: Any) -> None:
        token = str(it.message["params"]["_meta"]["progressToken"])
        await it.note("notifications/progress", progressToken=token, progress=1)
        await it.event({"jsonrpc": "2.0", "id": str(it.message["id"]), "result": {"fine": True}})
        await it.end()

    server.tools["worded"] = worded
    connection, caller = await http_bench.connect(server), Ear()
    answer = await ask(connection, "tools/call", {"name": "worded", "_meta": {"progressToken": "t"}}, caller)
    assert answer.result == b'{"fine": true}'
    assert await caller.next() == ("notifications/progress", {"progressToken": "t", "progress": 1})


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_to_another_request_is_none(http_bench: HttpBench, streamed: bool) -> None:
    """Invariant 8: it may hold what is for somebody else. An error without an id of ours is that of this request."""
    server = await http_bench.serve("legacy")

    async def confused(it: Exchange, arguments: Any) -> None:
        stray = {"jsonrpc": "2.0", "id": it.message["id"] + 1000, "result": {"secret": True}}
        if not streamed:
            await it.reply(200, stray)
            return
        await it.event(stray)
        await it.event({**stray, "id": None})
        await it.finish({"mine": True})

    async def refusing(it: Exchange, arguments: Any) -> None:
        await it.reply(400, {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "no"}})

    server.tools |= {"confused": confused, "refusing": refusing}
    connection = await http_bench.connect(server)
    if streamed:
        assert await call(connection, "confused") == {"mine": True}
    else:
        with pytest.raises(UpstreamProtocol, match="no message"):
            await call(connection, "confused")
    assert (await call(connection, "refusing"))["code"] == -32600


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_answer_on_a_stream_that_is_none_fails_its_call_at_once(http_bench: HttpBench, era: Era) -> None:
    server = await http_bench.serve(era)
    over = asyncio.Event()

    async def empty(it: Exchange, arguments: Any) -> None:
        await it.event({"jsonrpc": "2.0", "id": it.message["id"] + 1000})
        await it.event({"jsonrpc": "2.0", "id": it.message["id"]})
        await over.wait()
        await it.end()

    server.tools["empty"] = empty
    connection = await http_bench.connect(server)
    with pytest.raises(UpstreamProtocol, match="answered tools/call with neither a result nor an error"):
        await call(connection, "empty")
    over.set()


async def test_a_question_that_fits_no_single_call_goes_to_the_listener(http_bench: HttpBench) -> None:
    """A18: with two calls under way, or one that was just cancelled, it could be another caller's."""
    server = await http_bench.serve("legacy")
    begun: list[Exchange] = []

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.stream()
        begun.append(it)
        await it.over.wait()

    server.tools["forever"] = forever
    connection, ears = await http_bench.connect(server), (Ear(), Ear())
    tasks = [asyncio.create_task(call(connection, "forever", ear)) for ear in ears]
    await wait_for(lambda: len(begun) == 2 and server.outside)
    await server.outside[0].ask("roots/list", {})
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    await server.outside[0].ask("roots/list", {})
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert http_bench.listener.questions == ["roots/list"] * 2
    assert [ear.questions for ear in ears] == [[], []]


async def test_a_question_outside_any_call_goes_to_the_listener(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy")
    await http_bench.connect(server)
    await wait_for(lambda: server.outside)
    answer = await server.outside[0].ask("roots/list", {})
    assert answer["result"] == {"action": "accept"}
    assert http_bench.listener.questions == ["roots/list"]


@pytest.mark.parametrize("era", ERAS)
async def test_announcements_are_heard_and_their_stream_is_opened_again(http_bench: HttpBench, era: Era) -> None:
    """A16: by GET or by listening; after a break the lists count as changed."""
    server = await http_bench.serve(era)
    await http_bench.connect(server)
    await wait_for(lambda: server.outside)
    await server.announce("notifications/tools/list_changed")
    assert await http_bench.listener.next() == ("notifications/tools/list_changed", {})
    server.outside.pop().drop()
    await wait_for(lambda: server.outside)
    changed = {(await http_bench.listener.next())[0] for _ in range(2)}
    assert changed == {"notifications/tools/list_changed", "notifications/resources/list_changed"}
    await server.announce("notifications/resources/updated", uri="x://y")
    assert await http_bench.listener.next() == ("notifications/resources/updated", {"uri": "x://y"})


async def test_a_server_without_such_a_stream_is_asked_once(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy", streams=False)
    connection = await http_bench.connect(server)
    await wait_for(lambda: "GET" in server.methods())
    await call(connection)
    await asyncio.sleep(0.1)
    assert server.methods().count("GET") == 1


async def test_a_modern_server_that_tells_nothing_is_not_listened_to(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    server.capabilities = {"tools": {}}
    connection = await http_bench.connect(server)
    await call(connection)
    assert "subscriptions/listen" not in server.methods()


@pytest.mark.parametrize("refusal", ["404", "400"])
async def test_a_forgotten_session_is_taken_up_again_without_the_caller_noticing(
    http_bench: HttpBench, refusal: str
) -> None:
    """R27: once for parallel calls; each is carried out once; subscriptions and the log level stand again."""
    server = await http_bench.serve("legacy")
    connection = await http_bench.connect(server)
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
    assert (await http_bench.listener.next())[0].endswith("/list_changed")


async def test_a_session_is_taken_up_again_whole_though_the_call_that_noticed_is_given_up(
    http_bench: HttpBench,
) -> None:
    """Subscriptions stand again and there is a stream, whoever had to wait for it."""
    server = await http_bench.serve("legacy")
    connection = await http_bench.connect(server)
    await wait_for(lambda: server.outside)
    await ask(connection, "resources/subscribe", {"uri": "x://y"})
    server.known.clear()
    told, go_on = asyncio.Event(), asyncio.Event()

    async def hold(it: Exchange) -> bool:
        if it.message.get("method") == "notifications/initialized":
            told.set()
            await go_on.wait()
        return False

    server.override = hold
    first = asyncio.create_task(call(connection))
    await told.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go_on.set()
    await call(connection)
    await wait_for(lambda: server.methods().count("resources/subscribe") == 2)
    assert server.last("resources/subscribe").headers["mcp-session-id"] == "s2"
    await wait_for(lambda: server.last("GET").headers["mcp-session-id"] == "s2")


async def test_a_session_that_is_forgotten_at_once_is_not_taken_up_for_ever(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy", streams=False)
    connection = await http_bench.connect(server)

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") == "tools/call":
            await it.reply(404)
            return True
        return False

    server.override = refuse
    with pytest.raises(UpstreamProtocol):
        await call(connection)
    assert server.methods().count("tools/call") == 2


async def test_a_lost_session_is_noticed_on_the_stream(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy")
    await http_bench.connect(server)
    await wait_for(lambda: server.outside)
    server.known.clear()
    server.outside.pop().drop()
    await wait_for(lambda: server.methods().count("initialize") == 2)
    await wait_for(lambda: server.outside)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_breaks_off_is_not_asked_for_again(http_bench: HttpBench, era: Era) -> None:
    """R11: the call may have been carried out; only that one fails."""
    server = await http_bench.serve(era)

    async def broken(it: Exchange, arguments: Any) -> None:
        await it.note("notifications/message", data=1)
        it.drop()

    async def unsaid(it: Exchange, arguments: Any) -> None:
        it.drop()

    server.tools |= {"broken": broken, "unsaid": unsaid}
    connection = await http_bench.connect(server)
    for tool in ("broken", "unsaid"):
        with pytest.raises(Crashed) as raised:
            await call(connection, tool)
        assert raised.value.details["written"] is True
    assert server.methods().count("tools/call") == 2
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


async def test_a_stream_with_event_ids_is_resumed(http_bench: HttpBench) -> None:
    """The server closes the connection and is polled, as it asks for; then one breaks; nothing is asked twice."""
    server = await http_bench.serve("legacy")
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
    connection, caller = await http_bench.connect(server), Ear()
    assert await call(connection, "polled", caller) == {"late": True}
    assert asked == ["e1", "e2", "e2"]
    assert await caller.next() == ("notifications/message", {"n": 1})
    assert server.methods().count("tools/call") == 1


async def test_a_server_that_wants_a_stream_resumed_at_once_is_not_asked_in_a_circle(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy", streams=False)

    async def polled(it: Exchange, arguments: Any) -> None:
        await it.event("", id="e1", retry=0)
        await it.end()

    async def nothing_yet(it: Exchange) -> bool:
        if "last-event-id" not in it.headers:
            return False
        await it.stream()
        await it.end()
        return True

    server.tools["polled"], server.override = polled, nothing_yet
    connection = await http_bench.connect(server)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await call(connection, "polled")
    assert 1 <= server.methods().count("GET") <= 8


async def test_the_session_is_given_back(http_bench: HttpBench) -> None:
    server = await http_bench.serve("legacy")
    await http_bench.connect(server)
    assert server.known == {"s1"}
    await http_bench.stack.pop_all().aclose()
    assert "DELETE" in server.methods()
    assert server.last("DELETE").headers["mcp-session-id"] == "s1"


async def test_a_server_that_ignores_the_goodbye_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, http_bench: HttpBench
) -> None:
    monkeypatch.setattr(http_upstream, "GOODBYE", 0.05)
    server = await http_bench.serve("legacy")

    async def hang(it: Exchange) -> bool:
        if it.verb == "DELETE":
            await it.over.wait()
        return False

    server.override = hang
    connection = await http_bench.connect(server)

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.over.wait()

    server.tools["forever"] = forever
    pending = asyncio.create_task(call(connection, "forever"))
    await wait_for(lambda: "tools/call" in server.methods())
    async with asyncio.timeout(LIMIT):
        await http_bench.stack.pop_all().aclose()
    await asyncio.wait([pending])
    assert isinstance(pending.exception(), Crashed)


async def test_a_server_that_is_gone_ends_the_conversation(http_bench: HttpBench) -> None:
    """R14: the call was not sent, so another instance may take it."""
    server = await http_bench.serve("modern")
    connection = await http_bench.connect(server)
    await server.stop()
    with pytest.raises(Crashed, match="cannot be reached") as raised:
        await call(connection)
    assert raised.value.details["written"] is False
    assert "Connection refused" in await asyncio.wait_for(connection.closed, LIMIT)
    with pytest.raises(Crashed, match="was not sent"):
        await call(connection)


async def test_errors_of_the_server_pass_unchanged(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    connection = await http_bench.connect(server)
    answer = await ask(connection, "vendor/thing", {})
    assert json.loads(answer.error or b"") == {"code": -32601, "message": "unknown method"}


async def test_a_modern_server_that_becomes_a_legacy_one_is_asked_anew(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    connection = await http_bench.connect(server)
    server.era = "legacy"
    with pytest.raises(Crashed) as raised:
        await call(connection)
    assert raised.value.details["written"] is False
    assert connection.closed.done()


async def test_redirects_stay_at_the_same_origin(http_bench: HttpBench) -> None:
    server, other = await http_bench.serve("modern"), await http_bench.serve("modern")

    async def redirect(it: Exchange) -> bool:
        if it.path == "/mcp" or it.path == "/away":
            base = "" if it.path == "/mcp" else other.url
            await it.reply(307, b"", location=f"{base}/" if base else "/mcp/")
            return True
        return False

    server.override = redirect
    connection = await http_bench.connect(server, headers={"Authorization": "Bearer token"})
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}
    assert server.last("tools/call").path == "/mcp/"
    with pytest.raises(UpstreamProtocol, match="a redirect to"):
        await http_bench.connect(f"http://127.0.0.1:{server.port}/away", headers={"Authorization": "Bearer token"})
    assert other.seen == []


@pytest.mark.parametrize("hops", [5, 6])
async def test_redirects_are_followed_five_times(http_bench: HttpBench, hops: int) -> None:
    server = await http_bench.serve("modern")

    async def redirect(it: Exchange) -> bool:
        path = it.path.removesuffix("/")
        if path.endswith(f"-{hops}"):
            return False
        hop = int(path.rpartition("-")[2]) if "-" in path else 0
        await it.reply(307, b"", location=f"/hop-{hop + 1}")
        return True

    server.override = redirect
    if hops == 5:
        assert (await call(await http_bench.connect(server), a=1))["structuredContent"] == {"a": 1}
    else:
        with pytest.raises(UpstreamProtocol, match="redirects in circles"):
            await http_bench.connect(server)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_has_a_longest_length(
    http_bench: HttpBench, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(http_client, "BODY", 10_000)
    monkeypatch.setattr("mooring.wire.sse.Events.__init__.__defaults__", (10_000,))
    server = await http_bench.serve("modern")

    async def huge(it: Exchange, arguments: Any) -> Any:
        if streamed:
            await it.stream()
        return {"x": "y" * 100_000}

    server.tools["huge"] = huge
    connection = await http_bench.connect(server)
    with pytest.raises(UpstreamProtocol, match=r"sent more|longer than"):
        await call(connection, "huge")
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


async def test_a_large_answer_arrives(http_bench: HttpBench) -> None:
    """R27: several megabytes, both ways."""
    server = await http_bench.serve("legacy")
    connection = await http_bench.connect(server)
    assert (await call(connection, text="x" * 5_000_000))["structuredContent"]["text"] == "x" * 5_000_000


async def test_connections_are_used_again(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    server.capabilities = {"tools": {}}

    async def streamed(it: Exchange, arguments: Any) -> Any:
        await it.stream()
        return {}

    server.tools["streamed"] = streamed
    connection = await http_bench.connect(server)
    for _ in range(5):
        await call(connection)
        await call(connection, "streamed")
        await asyncio.sleep(0.01)  # the end of the stream follows its answer
    assert len(server._tasks) == 1


async def test_a_stream_may_hold_what_nobody_understands(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")

    async def odd(it: Exchange, arguments: Any) -> Any:
        await it.raw(b": comment\n\nevent: ping\ndata: {}\n\ndata: no json\n\nunknown: x\n\n")
        return {"ok": True}

    async def begins(it: Exchange, arguments: Any) -> Any:
        await it.stream()
        return await odd(it, arguments)

    server.tools["odd"] = begins
    connection = await http_bench.connect(server)
    assert (await call(connection, "odd"))["ok"]


async def test_a_tool_that_wants_other_headers_is_listed_anew(http_bench: HttpBench) -> None:
    """Its schema may have changed which arguments are repeated as headers."""
    server = await http_bench.serve("modern")

    async def mismatch(it: Exchange, arguments: Any) -> None:
        await it.error(400, -32020, "Header mismatch")

    server.tools["strict"] = mismatch
    connection = await http_bench.connect(server)
    assert (await call(connection, "strict"))["code"] == -32020
    assert await http_bench.listener.next() == ("notifications/tools/list_changed", {})
