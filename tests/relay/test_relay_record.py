"""What the events tell of each request: who, what, on which instance, how it ended, and why not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from relay_bench import BOUND, LEGACY, Bench, FakeServer, FakeSession, benched, ok, planned, until

from mooring.config.plan import Policy, Rule
from mooring.observe.audit import record
from mooring.observe.events import Event
from mooring.wire.jsonrpc import Answer

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def offering() -> FakeServer:
    server = FakeServer("t", facts=LEGACY)
    server.items["prompts"] = [{"name": "p"}]
    server.items["resources"] = [{"uri": "x://1", "name": "r"}]
    return server


def told(bench: Bench, name: str = "call.finished") -> list[Event]:
    return [event for event in bench.events if event.name == name]


async def last(bench: Bench, session: FakeSession, method: str, params: dict[str, Any]) -> Event:
    await session.do(method, params)
    return bench.events[-1]


REQUESTS = [
    ("tools/call", {"name": "a_t"}, "a_t"),
    ("prompts/get", {"name": "a_p"}, "a_p"),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a_p"}, "argument": {}}, "a_p"),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x://1"}, "argument": {}}, "x://1"),
    ("resources/read", {"uri": "x://1"}, "x://1"),
    ("resources/subscribe", {"uri": "x://1"}, "x://1"),
    ("resources/unsubscribe", {"uri": "x://1"}, "x://1"),
]


@pytest.mark.parametrize(("method", "params", "target"), REQUESTS)
async def test_every_request_to_a_server_is_told_with_its_instance(
    method: str, params: dict[str, Any], target: str
) -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session()
        event = await last(bench, session, method, {**params, "_meta": {"traceparent": TRACE, "tracestate": "k=v"}})
        row = record(event)
        assert row is not None
        assert (row.event, row.method, row.workspace, row.key) == ("call.finished", method, "w", "k_session-1")
        assert (row.tool or row.target, row.server, row.instance) == (target, "a", "a@d1")
        assert (row.decision, row.outcome, row.refused, row.trace) == ("allowed", "ok", False, TRACE)
        assert event.data["tracestate"] == "k=v"


@pytest.mark.parametrize(("method", "params", "target"), REQUESTS)
async def test_every_refusal_is_told_with_its_reason(method: str, params: dict[str, Any], target: str) -> None:
    plan = planned("a")
    denying = Policy('the policy of workspace "w"', deny=(Rule(server="a"),))
    room = msgspec.structs.replace(plan.workspaces["w"], policy=denying)
    async with benched({"a": offering()}, msgspec.structs.replace(plan, workspaces={"w": room})) as bench:
        row = record(await last(bench, bench.session(), method, params))
        assert row is not None
        assert (row.event, row.method, row.decision, row.refused) == ("policy.denied", method, "denied", True)
        assert (row.tool or row.target, row.server, row.instance) == (target, "a", "a")
        assert row.reason == 'deny[0] of the policy of workspace "w"'
        assert not told(bench)


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        ("tools/call", {"name": "b_t"}, "no such tool"),
        ("prompts/get", {"name": "b_p"}, "no such prompt"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "b_p"}}, "no such prompt"),
    ],
)
async def test_what_does_not_exist_is_told_as_a_refusal(method: str, params: dict[str, Any], reason: str) -> None:
    async with benched({"a": offering()}) as bench:
        event = await last(bench, bench.session(), method, params)
        assert (event.name, event.data["reason"], event.server) == ("policy.denied", reason, "")
        assert event.data["ground"] == "unknown"


async def test_an_uri_that_is_nobodys_is_told_as_a_refusal() -> None:
    async with benched({"a": offering(), "b": offering()}, planned("a", "b")) as bench:
        for method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
            event = await last(bench, bench.session(id=method), method, {"uri": "y://other"})
            assert (event.name, event.data["reason"]) == ("policy.denied", "no such resource")
            assert event.data["target"] == "y://other"


async def test_a_modern_client_that_watches_is_told_for_each_uri() -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session(era="modern")
        wanted = {"notifications": {"resourceSubscriptions": ["x://1", "y://other"], "toolsListChanged": True}}
        listening = asyncio.ensure_future(session.do("subscriptions/listen", wanted))
        await until(lambda: len(told(bench)) == 2)
        assert {event.data["target"] for event in told(bench)} == {"x://1", "y://other"}
        assert {event.data["method"] for event in told(bench)} == {"subscriptions/listen"}
        listening.cancel()


async def test_a_tool_that_says_it_failed_is_an_error_of_the_tool() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        server = bench.servers["a"]
        for result, outcome in (
            ({"content": [], "isError": True}, ("error", "tool_error")),
            ({"content": [], "isError": False}, ("ok", None)),
            (
                {"content": [{"type": "text", "text": '{"isError":true}'}], "structuredContent": {"isError": True}},
                ("ok", None),
            ),
        ):
            server.replies["tools/call"] = lambda *_, given=result: ok(given)
            event = await last(bench, bench.session(), "tools/call", {"name": "a_t"})
            assert (event.data["outcome"], event.data.get("error")) == outcome


async def test_an_error_of_the_server_is_told_by_its_code() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        bench.servers["a"].replies["tools/call"] = lambda *_: Answer(error=b'{"code":-32000,"message":"m"}')
        event = await last(bench, bench.session(), "tools/call", {"name": "a_t"})
        assert (event.data["outcome"], event.data["error"]) == ("error", "-32000")


async def test_a_failure_of_mooring_is_told_by_its_kind() -> None:
    async with benched({"a": offering()}) as bench:
        bench.servers["a"].replies["resources/read"] = lambda *_: asyncio.sleep(BOUND, Answer(result=b"{}"))
        session = bench.session()
        reading = asyncio.ensure_future(session.do("resources/read", {"uri": "x://1"}))
        await until(lambda: bench.leases("a") == 1)
        bench.servers["a"].last.closed.set_result("gone")
        assert (await reading)["code"] == -32603
        assert (bench.events[-1].name, told(bench)[-1].data["error"]) != ("", "")
        assert told(bench)[-1].data["outcome"] == "failed"


async def test_instances_for_one_workspace_or_session_are_told_apart_and_no_session_id_is_told() -> None:
    async with benched({"a": FakeServer("t")}, planned("a", sharing="session")) as bench:
        session = bench.session(id="0123456789abcdef")
        event = await last(bench, session, "tools/call", {"name": "a_t"})
        assert event.instance == "a@d1 s:012345"
        assert [row.instance for row in bench.app.pool.rows() if row.scope == "s:012345"] == [event.instance]
        assert event.data["session"] == "012345"


async def test_a_name_of_any_length_is_kept_short() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        event = await last(bench, bench.session(), "tools/call", {"name": "x" * 100_000})
        assert len(event.data["tool"]) == 1000
