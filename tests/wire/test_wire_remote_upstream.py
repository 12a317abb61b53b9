"""How a conversation with a remote begins: era, waiting, refusals, the old transport."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from http_bench import ERAS, LIMIT, Ear, HttpBench, call

from mooring.errors import Busy, Crashed, MooringError, StartFailed, TimedOut, Unavailable, UpstreamProtocol
from mooring.nouns import Era
from mooring.testing import wait_for
from mooring.wire import remote_upstream
from raw_http_server import Exchange


@pytest.mark.parametrize(
    ("era", "spoken", "steps"),
    [
        ("legacy", "legacy", ["discover", "initialize"]),
        ("modern", "modern", ["discover"]),
        ("dual", "modern", ["discover"]),
    ],
)
async def test_the_era_is_found_out(http_bench: HttpBench, era: str, spoken: str, steps: list[str]) -> None:
    """R27, A16: modern first; what does not understand that is asked as a legacy server."""
    server = await http_bench.serve(era)
    connection = await http_bench.connect(server)
    assert connection.facts.era == spoken
    assert json.loads(connection.facts.server_info)["name"] == "raw"
    assert http_bench.phases == steps
    assert (await call(connection, a=1))["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("era", ERAS)
async def test_every_request_carries_the_headers_of_its_era(http_bench: HttpBench, era: Era) -> None:
    """And those of the configuration; non-ASCII names in their base64 form."""
    server = await http_bench.serve(era)
    connection = await http_bench.connect(server, headers={"X-Team": "docs"})
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
async def test_whatever_is_no_modern_error_means_legacy(http_bench: HttpBench, status: int, body: bytes) -> None:
    server = await http_bench.serve("legacy")

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") != "server/discover":
            return False
        await it.reply(status, body)
        return True

    server.override = refuse
    assert (await http_bench.connect(server)).facts.era == "legacy"


async def test_a_version_that_the_server_names_is_tried(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")

    async def refuse(it: Exchange) -> bool:
        if len(server.seen) > 1:
            return False
        await it.error(400, -32022, "Unsupported protocol version", {"supported": ["2026-07-28"]})
        return True

    server.override = refuse
    assert (await http_bench.connect(server)).facts.era == "modern"
    assert server.methods()[:2] == ["server/discover", "server/discover"]


@pytest.mark.parametrize(("remembered", "first"), [("legacy", "initialize"), ("modern", "server/discover")])
async def test_what_it_spoke_last_time_is_tried_first(http_bench: HttpBench, remembered: Era, first: str) -> None:
    server = await http_bench.serve("dual")
    connection = await http_bench.connect(server, era=remembered)
    assert (connection.facts.era, server.methods()[0]) == (remembered, first)


async def test_a_memory_that_is_out_of_date_is_corrected(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    assert (await http_bench.connect(server, era="legacy")).facts.era == "modern"


async def test_a_server_that_is_not_there_cannot_be_opened(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")
    await server.stop()
    with pytest.raises(StartFailed, match=r"cannot be reached at http://127\.0\.0\.1:\d+/mcp: Connection refused"):
        await http_bench.connect(f"http://user:pass@127.0.0.1:{server.port}/mcp?key=secret")


@pytest.mark.parametrize("answer", ["nothing", "503", "reset"])
async def test_a_server_that_is_starting_is_waited_for(http_bench: HttpBench, answer: str) -> None:
    """R10: ready is when MCP answers, whatever answered before that."""
    server = await http_bench.serve("dual")

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
    assert (await http_bench.connect(server, starting=True)).facts.era == "modern"


async def test_the_end_of_a_starting_process_is_noticed_at_once(http_bench: HttpBench) -> None:
    """R10: nobody waits for one that is gone."""
    server = await http_bench.serve("dual")
    await server.stop()
    asyncio.get_running_loop().call_later(0.1, http_bench.exited.set_result, 3)
    with pytest.raises(StartFailed, match=r"ended before it answered \(exit code 3\)"):
        await http_bench.connect(server, starting=True, timeout=3600.0)


async def test_the_end_of_a_process_that_has_just_answered_is_left_to_others(
    http_bench: HttpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word of it may be on its way already when nobody waits for the answer any more."""
    server, wrong = await http_bench.serve("modern"), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    attempt = remote_upstream._attempt

    async def ends(*args: Any) -> Any:
        connection = await attempt(*args)
        http_bench.exited.set_result(0)
        return connection

    monkeypatch.setattr(remote_upstream, "_attempt", ends)
    await call(await http_bench.connect(server, starting=True))
    assert not wrong


async def test_one_that_never_answers_is_given_up(http_bench: HttpBench) -> None:
    server = await http_bench.serve("dual")

    async def hang(it: Exchange) -> bool:
        await it.over.wait()
        return True

    server.override = hang
    with pytest.raises(TimedOut):
        await http_bench.connect(server, timeout=0.3)


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
    http_bench: HttpBench, era: Era, status: int, kind: type[MooringError], match: str
) -> None:
    server = await http_bench.serve(era)
    connection = await http_bench.connect(server)

    async def refuse(it: Exchange) -> bool:
        if it.message.get("method") != "tools/call":
            return False
        await it.reply(status, b"<html></html>", "text/html")
        return True

    server.override = refuse
    with pytest.raises(kind, match=match):
        await call(connection)
    assert not connection.closed.done()


async def test_a_login_is_asked_for_at_the_start(http_bench: HttpBench) -> None:
    """A server that wants credentials is not taken for a legacy one."""
    server = await http_bench.serve("dual")

    async def refuse(it: Exchange) -> bool:
        await it.reply(401, b"", www_authenticate="Bearer")
        return True

    server.override = refuse
    with pytest.raises(Unavailable, match="check the token in its auth or headers"):
        await http_bench.connect(server)
    assert server.methods() == ["server/discover"]


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_the_old_transport_is_spoken_and_found_out(http_bench: HttpBench, transport: str) -> None:
    """A server that refuses POST with 405 is tried with HTTP+SSE."""
    server = await http_bench.serve("sse")
    connection = await http_bench.connect(server, transport=transport)
    assert connection.facts.version == "2024-11-05"
    results = await asyncio.gather(*(call(connection, n=n) for n in range(5)))
    assert [result["structuredContent"]["n"] for result in results] == list(range(5))
    await server.announce("notifications/tools/list_changed")
    assert (await http_bench.listener.next())[0] == "notifications/tools/list_changed"
    server.outside[0].drop()
    await asyncio.wait_for(connection.closed, LIMIT)
    with pytest.raises(Crashed):
        await call(connection)


async def test_a_request_that_is_taken_with_its_answer_holds_nothing_up(http_bench: HttpBench) -> None:
    """R27: some servers of the old transport answer the POST when the call is over, and may ask something before."""
    server = await http_bench.serve("sse")
    answered = asyncio.Event()

    async def synchronous(it: Exchange) -> bool:
        message = it.message
        if message.get("id") == "q1":
            answered.set()
        if message.get("params", {}).get("name") != "slow":
            return False
        stream = server.outside[0]
        await stream.event({"jsonrpc": "2.0", "id": "q1", "method": "roots/list", "params": {}})
        await answered.wait()
        await stream.event({"jsonrpc": "2.0", "id": message["id"], "result": {"slow": True}})
        await it.reply(200)
        return True

    server.override = synchronous
    connection, ear = await http_bench.connect(server, transport="sse"), Ear()
    ear.hold.clear()
    slow = asyncio.create_task(call(connection, "slow", ear))
    await wait_for(lambda: ear.questions)
    assert (await call(connection, n=1))["structuredContent"] == {"n": 1}
    ear.hold.set()
    assert (await slow)["slow"]


async def test_the_old_transport_posts_nowhere_else(http_bench: HttpBench) -> None:
    """The headers of the configuration are not for another origin."""
    server, other = await http_bench.serve("sse"), await http_bench.serve("sse")

    async def lure(it: Exchange) -> bool:
        if it.verb != "GET":
            return False
        await it.event(f"{other.url}/messages", kind="endpoint")
        await it.over.wait()
        return True

    server.override = lure
    with pytest.raises(UpstreamProtocol, match="another origin"):
        await http_bench.connect(server, transport="sse")
    assert other.seen == []


@pytest.mark.parametrize("place", ["http://[::1/messages", "http://127.0.0.1:many/messages"])
async def test_the_old_transport_says_so_when_it_is_told_no_url_to_post_to(http_bench: HttpBench, place: str) -> None:
    server = await http_bench.serve("sse")

    async def confused(it: Exchange) -> bool:
        if it.verb != "GET":
            return False
        await it.event(place, kind="endpoint")
        await it.over.wait()
        return True

    server.override = confused
    with pytest.raises(UpstreamProtocol, match="no URL"):
        await http_bench.connect(server, transport="sse", timeout=5.0)


async def test_the_refusal_of_the_new_transport_is_told_when_there_is_no_old_one(http_bench: HttpBench) -> None:
    server = await http_bench.serve("modern")

    async def nothing(it: Exchange) -> bool:
        await it.reply(404, b"nothing here")
        return True

    server.override = nothing
    with pytest.raises(UpstreamProtocol, match=r"refused initialize: .*HTTP 404"):
        await http_bench.connect(server)
