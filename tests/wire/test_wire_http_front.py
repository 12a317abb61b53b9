"""Both eras of MCP over HTTP, on raw sockets, against a stub relay."""

from __future__ import annotations

import asyncio
import json

import pytest
from test_wire_http_kit import LIMIT, MODERN, Wire, message, modern_meta, serving

from mooring.nouns import Principal


async def until(condition) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


# Who may come in.


async def test_foreign_hosts_and_origins_are_refused_on_every_path():
    """DNS rebinding gets nowhere."""
    async with serving() as served, Wire(served.port) as wire:
        for path in ("/mcp", "/w/alice/mcp", "/healthz", "/nothing"):
            assert (await wire.ask("GET", path, Host="evil.example")).status == 421
            assert (await wire.ask("GET", path, Origin="http://evil.example")).status == 403
        for name in ("localhost", "127.0.0.1", "[::1]"):
            origin = f"http://{name}:{served.port}"
            assert (await wire.ask("GET", "/healthz", Host=f"{name}:{served.port}", Origin=origin)).status == 200


async def test_other_paths_are_pages_or_a_json_404():
    async with serving() as served, Wire(served.port) as wire:
        assert (await wire.ask("GET", "/healthz", Authorization=None)).json == {"ok": True}
        for path in (
            "/",
            "/.well-known/oauth-authorization-server",
            "/.well-known/oauth-protected-resource/mcp",
            "/mcp/.well-known/openid-configuration",
            "/mcp/x",
            "/w/mcp",
            "/w//mcp",
            "/w/a/b/mcp",
            "/sse",
        ):
            answer = await wire.ask("GET", path, Authorization=None)
            assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
            assert "/mcp" in answer.json["error"]


async def test_without_a_key_there_is_only_401():
    async with serving() as served, Wire(served.port) as wire:
        for data in (wire.request("GET", Authorization=None), wire.legacy("initialize", {}, Authorization=None)):
            wire.send(data)
            answer = await wire.answer()
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "key" in answer.json["error"]["message"]
        answer = await wire.ask(Authorization="Bearer bad")
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        wire.send(wire.request(Authorization=None, Content_Length="60000000"))
        assert (await wire.answer()).status == 401
        assert await wire.closed()


async def test_the_path_names_the_workspace_and_a_key_of_another_is_refused():
    async with serving() as served, Wire(served.port) as wire:
        assert (await wire.call("initialize", {"protocolVersion": "2025-11-25"}, path="/w/alice/mcp")).status == 200
        assert (await wire.call("initialize", {"protocolVersion": "2025-11-25"}, path="/w/bob/mcp")).status == 403


# Legacy.


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_initialize_opens_a_session_in_the_version_asked_for(version):
    async with serving() as served, Wire(served.port) as wire:
        answer = await wire.initialize(version)
        assert answer.json["result"]["protocolVersion"] == version
        assert len(wire.session) == 43
        assert (await wire.call("notifications/initialized", id=None)).status == 202
        assert (await wire.tool("echo")).json["result"]["content"][0]["text"] == "echo"
        assert [session.id for session in served.relay.sessions] == [wire.session]
        assert served.relay.notifications == [("notifications/initialized", b"{}")]


async def test_an_unknown_version_in_initialize_gets_the_newest_legacy_one():
    async with serving() as served, Wire(served.port) as wire:
        assert (await wire.initialize("2099-01-01")).json["result"]["protocolVersion"] == "2025-11-25"
        assert (await wire.call("initialize", {})).json["error"]["code"] == -32602


async def test_a_session_is_needed_and_belongs_to_its_key():
    async with serving() as served, Wire(served.port) as wire:
        assert (await wire.tool("echo")).status == 400
        await wire.initialize()
        session = wire.session
        for key in ("alice-2", "bob-1"):
            async with Wire(served.port, key) as other:
                other.session = session
                assert (await other.tool("echo")).status == 404
                assert (await other.ask("DELETE")).status == 404
                assert (await other.ask("GET")).status == 404
        wire.session = "nonsense"
        assert (await wire.tool("echo")).status == 404
        wire.session = session
        assert (await wire.tool("echo")).status == 200


async def test_the_version_header_may_be_missing_or_any_legacy_one():
    """Gemini CLI never sends it; Codex probes with 2024-11-05."""
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        for version in (None, "2025-11-25", "2024-11-05"):
            assert (await wire.call("ping", MCP_Protocol_Version=version)).json["result"] == {}
        assert (await wire.ask("GET", MCP_Protocol_Version="2024-11-05", Mcp_Session_Id=None)).status == 405


async def test_delete_ends_the_session_once():
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        closed = []
        served.relay.sessions[0].on_close.append(lambda: closed.append(1))
        assert (await wire.ask("DELETE")).status == 200
        assert (await wire.ask("DELETE")).status == 404
        assert (await wire.tool("echo")).status == 404
        assert closed == [1]
        wire.session = None
        assert (await wire.ask("DELETE")).status == 400


async def test_other_methods_are_405():
    async with serving() as served, Wire(served.port) as wire:
        for method in ("PUT", "OPTIONS", "PATCH"):
            answer = await wire.ask(method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE")


async def test_what_is_said_before_the_answer_turns_it_into_a_stream():
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        assert (await wire.tool("echo")).headers["content-type"] == "application/json"
        answer = await wire.tool("progress", id="a")
        assert answer.headers["content-type"] == "text/event-stream"
        assert [event.get("method", event.get("id")) for event in answer.events] == ["notifications/progress"] * 2 + [
            "a"
        ]
        assert (await wire.tool("echo")).status == 200


@pytest.mark.parametrize(("declared", "number"), [(True, int), (True, str), (False, int)])
async def test_questions_within_a_call_go_to_its_stream_if_the_client_can_answer(declared, number):
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as side:
        await wire.initialize(capabilities={"elicitation": {}} if declared else {})
        if not declared:
            assert "-32601" in (await wire.tool("ask")).body.decode()
            return
        wire.send(wire.legacy("tools/call", {"name": "ask"}, id=5))
        await wire.head()
        asked = await wire.event()
        assert asked["method"] == "elicitation/create"
        side.session = wire.session
        reply = {"jsonrpc": "2.0", "id": number(asked["id"]), "result": {"action": "accept"}}
        assert (await side.ask(body=json.dumps(reply).encode())).status == 202
        assert (await side.ask(body=json.dumps(reply).encode())).status == 202
        answer = await wire.event()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (5, '{"action": "accept"}')
        assert await wire.event() is None


async def test_what_a_session_says_outside_calls_goes_to_exactly_one_get_stream():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as older, Wire(served.port) as newer:
        await wire.initialize(capabilities={"roots": {}})
        session = served.relay.sessions[0]
        session.send("notifications/tools/list_changed", None)
        assert b"not listening" in (await session.ask("roots/list", b"{}")).error
        for stream in (older, newer):
            stream.session = wire.session
            stream.send(stream.request("GET", Accept="text/event-stream"))
            status, headers = await stream.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
        session.send("notifications/tools/list_changed", None)
        assert await newer.event() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        asking = asyncio.create_task(session.ask("roots/list", b"{}"))
        asked = await newer.event()
        refusal = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}}
        assert (await wire.ask(body=json.dumps(refusal).encode())).status == 202
        assert json.loads((await asyncio.wait_for(asking, LIMIT)).error)["code"] == -1
        newer.writer.close()
        await until(lambda: len(session.streams) == 1)
        session.send("notifications/prompts/list_changed", None)
        assert (await older.event())["method"] == "notifications/prompts/list_changed"
        assert (await wire.ask("DELETE")).status == 200
        assert await older.event() is None


async def test_an_abandoned_question_is_cancelled_at_the_client():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as stream:
        await wire.initialize(capabilities={"roots": {}})
        stream.session = wire.session
        stream.send(stream.request("GET", Accept="text/event-stream"))
        await stream.head()
        asking = asyncio.create_task(served.relay.sessions[0].ask("roots/list", b"{}"))
        asked = await stream.event()
        asking.cancel()
        cancelled = await stream.event()
        assert (cancelled["method"], cancelled["params"]) == ("notifications/cancelled", {"requestId": asked["id"]})


async def test_a_lost_connection_cancels_no_legacy_call():
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        async with Wire(served.port) as caller:
            caller.session = wire.session
            caller.send(caller.legacy("tools/call", {"name": "hold"}))
            await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        await until(lambda: len(served.server.connections) == 1)
        served.relay.release.set()
        await asyncio.wait_for(served.relay.finished.wait(), LIMIT)
        assert not served.relay.cancelled.is_set()


async def test_a_cancelled_notification_cancels_the_call_and_nothing_is_answered():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as side:
        await wire.initialize()
        side.session = wire.session
        wire.send(wire.legacy("tools/call", {"name": "hold"}, id="x"))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        for other in ("y", 7, None):
            assert (await side.call("notifications/cancelled", {"requestId": other}, id=None)).status == 202
        assert not served.relay.cancelled.is_set()
        assert (await side.call("notifications/cancelled", {"requestId": "x"}, id=None)).status == 202
        answer = await wire.answer()
        assert (answer.status, answer.body) == (202, b"")
        assert served.relay.cancelled.is_set()
        assert served.relay.notifications == []
        assert (await wire.tool("echo", id="x")).status == 200


async def test_a_second_request_with_the_same_running_id_is_an_error_and_the_first_is_unharmed():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as side:
        await wire.initialize()
        side.session = wire.session
        wire.send(wire.legacy("tools/call", {"name": "hold"}, id=1))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        assert (await side.tool("echo", id=1)).json["error"]["code"] == -32600
        assert (await side.tool("echo", id="1")).json["id"] == "1"
        served.relay.release.set()
        assert (await wire.answer()).json["id"] == 1


async def test_batches_exist_in_one_revision_only():
    batch = b"[" + b",".join((message("ping", id=1), message("tools/call", {"name": "echo"}, id=2))) + b"]"
    note = message("notifications/initialized", id=None)
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize("2025-06-18")
        answer = await wire.ask(body=batch)
        assert answer.status == 400
        assert "2025-03-26" in answer.json["error"]["message"]
        await wire.initialize("2025-03-26")
        answer = await wire.ask(body=batch[:-1] + b"," + note + b"]")
        assert [each["id"] for each in answer.json] == [1, 2]
        assert len(served.relay.notifications) == 1
        assert (await wire.ask(body=b"[" + note + b"]")).status == 202
        streamed = await wire.ask(body=b"[" + message("tools/call", {"name": "progress"}, id=3) + b"," + batch[1:])
        assert {event["id"] for event in streamed.events if "id" in event} == {1, 2, 3}
        for bad in (b"[]", b"[1]", b"[", b"[" + b",".join([note] * 101) + b"]"):
            assert (await wire.ask(body=bad)).status == 400


async def test_idle_sessions_end_but_not_those_with_an_open_stream():
    async with serving(session_idle=0.3) as served, Wire(served.port) as wire, Wire(served.port) as listening:
        await wire.initialize()
        closed = []
        served.relay.sessions[0].on_close.append(lambda: closed.append(1))
        await listening.initialize()
        async with Wire(served.port) as stream:
            stream.session = listening.session
            stream.send(stream.request("GET", Accept="text/event-stream"))
            await stream.head()
            await until(lambda: closed)
            assert (await wire.tool("echo")).status == 404
            assert (await listening.tool("echo")).status == 200


async def test_too_many_sessions_end_the_oldest_idle_one():
    async with serving(max_sessions=2) as served, Wire(served.port) as first, Wire(served.port) as second:
        await first.initialize()
        await second.initialize()
        first.send(first.legacy("tools/call", {"name": "hold"}))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        async with Wire(served.port) as third:
            assert (await third.initialize()).status == 200
            assert (await second.tool("echo")).status == 404
            third.send(third.legacy("tools/call", {"name": "hold"}))
            await until(lambda: len([r for r in served.relay.requests if r.method == "tools/call"]) == 2)
            assert (await second.initialize()).status == 503
            served.relay.release.set()
            assert (await first.answer()).status == 200


async def test_ended_sessions_are_404_and_their_running_calls_finish():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port, "bob-1") as bob:
        await wire.initialize()
        await bob.initialize()
        wire.send(wire.legacy("tools/call", {"name": "hold"}))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        assert served.front.end_sessions(lambda session: session.principal.workspace == "alice") == 1
        served.relay.release.set()
        assert (await wire.answer()).status == 200
        assert (await wire.tool("echo")).status == 404
        assert (await bob.tool("echo")).status == 200


# Both.


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'"text"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000, -32700),
    ],
)
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_is_no_message_is_a_400_with_the_reason(body, code, version):
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        answer = await wire.ask(body=body, MCP_Protocol_Version=version)
        assert (answer.status, answer.json["error"]["code"]) == (400, code)
        assert "id" not in answer.json
        assert (await wire.tool("echo")).status == 200


async def test_media_types_are_checked_with_tolerance():
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        body = message("ping")
        assert (await wire.ask(body=body, Accept=None, Content_Type=None)).status == 200
        assert (await wire.ask(body=body, Accept="text/html")).status == 406
        assert (await wire.ask(body=body, Content_Type="text/plain")).status == 415
        assert (await wire.ask("GET", Accept="application/json")).status == 406


@pytest.mark.parametrize("id", [10**30, "ü", "", -1])
async def test_ids_come_back_as_they_were(id):
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        assert (await wire.call("ping", id=id)).json["id"] == id
        assert (await wire.call_modern("tools/list", id=id)).json["id"] == id


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_failures_of_the_relay_become_errors_with_their_facts(era, caplog):
    async with serving() as served, Wire(served.port) as wire:
        await wire.initialize()
        send = wire.call if era == "legacy" else wire.call_modern
        down = (await send("tools/call", {"name": "unavailable"})).json["error"]
        assert (down["code"], down["message"]) == (-32603, "down")
        assert down["data"] == {"kind": "unavailable", "server": "s01", "phase": "start", "retry_at": 7.0}
        refused = (await send("tools/call", {"name": "refused"})).json["error"]
        assert (refused["code"], refused["data"]["kind"]) == (-32602, "refused")
        broken = (await send("tools/call", {"name": "broken"})).json["error"]
        assert (broken["code"], "a bug" in broken["message"]) == (-32603, False)
        assert "a bug" in caplog.text


async def test_a_client_that_does_not_read_its_stream_is_cut_off():
    async with serving() as served, Wire(served.port) as wire:
        wire.send(wire.modern("tools/call", {"name": "flood"}))
        wire.writer.transport.pause_reading()
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        await until(lambda: not served.server.connections)


# Modern.


async def test_a_modern_post_stands_alone():
    async with serving() as served, Wire(served.port) as wire:
        answer = await wire.call_modern("tools/call", {"name": "echo"}, Mcp_Session_Id="stray", Last_Event_ID="7")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert "mcp-session-id" not in answer.headers
        request = served.relay.requests[-1]
        assert (request.era, request.version, request.session.id) == ("modern", MODERN, "key:alice-1:alice")
        assert request.raw_id == b"1"
        assert request.meta.capabilities == b"{}"
        assert served.relay.sessions == []


async def test_clients_with_one_key_share_a_session_object_and_may_use_the_same_ids():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as side:
        wire.send(wire.modern("tools/call", {"name": "hold"}, id=1))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        assert (await side.call_modern("tools/call", {"name": "echo"}, id=1)).status == 200
        served.relay.release.set()
        assert (await wire.answer()).json["id"] == 1
        first, second = served.relay.requests
        assert first.session is second.session


async def test_modern_errors_have_their_own_status():
    async with serving() as served, Wire(served.port) as wire:
        cases = [
            (wire.modern("tools/list", meta={}), 400, -32602),
            (wire.modern("tools/list", Mcp_Method="tools/call"), 400, -32020),
            (wire.modern("tools/call", {"name": "echo"}, Mcp_Name="other"), 400, -32020),
            (wire.modern("tools/list", MCP_Protocol_Version="2099-01-01"), 400, -32020),
            (wire.modern("no/such"), 404, -32601),
            (wire.modern("tools/list", meta=modern_meta("2099-01-01"), MCP_Protocol_Version="2099-01-01"), 400, -32022),
            (wire.legacy("initialize", {}, MCP_Protocol_Version="2099-01-01"), 400, -32022),
        ]
        for data, status, code in cases:
            wire.send(data)
            answer = await wire.answer()
            assert (answer.status, answer.json["error"]["code"], answer.json["id"]) == (status, code, 1)
            if code == -32022:
                assert MODERN in answer.json["error"]["data"]["supported"]


async def test_modern_get_and_delete_are_405():
    async with serving() as served, Wire(served.port) as wire:
        for method in ("GET", "DELETE"):
            answer = await wire.ask(method, MCP_Protocol_Version=MODERN)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_modern_notifications_are_accepted_and_responses_are_not():
    async with serving() as served, Wire(served.port) as wire:
        assert (await wire.call_modern("notifications/cancelled", {"requestId": 1}, id=None)).status == 202
        response = b'{"jsonrpc":"2.0","id":1,"result":{}}'
        assert (await wire.ask(body=response, MCP_Protocol_Version=MODERN)).status == 400
        unknown = await wire.call("notifications/x", id=None, MCP_Protocol_Version="2099-01-01")
        assert (unknown.status, unknown.json["error"]["code"]) == (400, -32022)


async def test_a_modern_answer_streams_when_something_is_said_first():
    async with serving() as served, Wire(served.port) as wire:
        answer = await wire.call_modern("tools/call", {"name": "progress"}, id=3)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        assert [event.get("id") for event in answer.events] == [None, None, 3]


async def test_servers_cannot_ask_modern_clients():
    async with serving() as served, Wire(served.port) as wire:
        assert "-32601" in (await wire.call_modern("tools/call", {"name": "ask"})).body.decode()


async def test_a_lost_connection_cancels_a_modern_call():
    async with serving() as served:
        async with Wire(served.port) as wire:
            wire.send(wire.modern("tools/call", {"name": "hold"}))
            await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        await asyncio.wait_for(served.relay.cancelled.wait(), LIMIT)


async def test_listen_streams_until_the_client_leaves(monkeypatch):
    monkeypatch.setattr("mooring.wire.http_connection.KEEP_ALIVE", 0.05)
    async with serving() as served:
        async with Wire(served.port) as wire:
            wire.send(wire.modern("subscriptions/listen", {"notifications": {}}, id=9))
            await wire.head()
            assert (await wire.event())["method"] == "notifications/subscriptions/acknowledged"
            served.relay.changes.put_nowait("notifications/tools/list_changed")
            assert (await wire.event())["method"] == "notifications/tools/list_changed"
            assert await wire.chunk() == b": keep-alive\n\n"
            (session,) = {request.session for request in served.relay.requests}
            assert session.in_use
        await until(lambda: not session.in_use)


async def test_ending_the_sessions_of_a_key_ends_its_listening():
    async with serving() as served, Wire(served.port) as wire:
        wire.send(wire.modern("subscriptions/listen", {"notifications": {}}, id=9))
        await wire.head()
        assert (await wire.event())["method"] == "notifications/subscriptions/acknowledged"
        assert served.front.end_sessions(lambda session: session.principal.workspace == "alice") == 1
        assert await wire.event() is None
        assert (await wire.call_modern("tools/list")).status == 200


async def test_a_large_answer_arrives_whole_in_both_forms():
    async with serving() as served, Wire(served.port) as wire:
        for name in ("large", "large-stream"):
            answer = await wire.call_modern("tools/call", {"name": name})
            whole = answer.events[-1] if name == "large-stream" else answer.json
            assert len(whole["result"]["content"][0]["text"]) == 3_000_000


async def test_line_breaks_in_a_payload_do_not_break_the_event():
    async with serving() as served, Wire(served.port) as wire, Wire(served.port) as stream:
        await wire.initialize()
        stream.session = wire.session
        stream.send(stream.request("GET", Accept="text/event-stream"))
        await stream.head()
        served.relay.sessions[0].send("notifications/x", b'{\r\n"a":\n1,\r"b":2}')
        assert (await stream.event())["params"] == {"a": 1, "b": 2}


def at_a_variant(authorization, workspace, variant, peer):
    """One key for the endpoints of several variants, such as that of agents in another process."""
    return Principal("k", "alice", variant=variant, bare=variant is not None)


async def test_a_call_at_the_endpoint_of_one_variant_knows_nothing_of_those_at_another():
    async with serving(login=at_a_variant) as served, Wire(served.port) as one, Wire(served.port) as two:
        one.send(one.modern("tools/call", {"name": "hold"}, path="/s/one/mcp"))
        await asyncio.wait_for(served.relay.started.wait(), LIMIT)
        assert (await two.call_modern("tools/call", {"name": "echo"}, path="/s/two/mcp")).status == 200
        assert [request.session.principal.variant for request in served.relay.requests] == ["one", "two"]
        served.relay.release.set()
        assert (await one.answer()).status == 200


async def test_a_session_is_of_the_endpoint_of_its_variant():
    async with serving(login=at_a_variant) as served, Wire(served.port) as wire:
        opened = await wire.call("initialize", {"protocolVersion": "2025-11-25"}, path="/s/one/mcp")
        wire.session = opened.headers["mcp-session-id"]
        assert (await wire.call("ping", path="/s/one/mcp")).status == 200
        assert (await wire.call("ping", path="/s/two/mcp")).status == 404
