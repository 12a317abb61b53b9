"""Policies on the way of a call: hidden and refused alike, confirmed, counted, and kept to a size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from relay_bench import BOUND, MODERN, FakeRequest, FakeServer, FakeSession, benched, ok, planned, variant

from mooring.config.plan import Plan, Policy, Rate, Rule, ToolRules, Workspace
from mooring.nouns import Era
from mooring.relay import confirm
from mooring.relay.refusals import ERROR_KEY
from mooring.relay.stewards import Proceed
from mooring.relay.table import Route
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

META = "io.modelcontextprotocol/"


def governed(*names: str, key: Policy | None = None, trusted: bool = False, **members: Any) -> Plan:
    """A plan with a policy in its one workspace, and one for the key "bot"."""
    plan = planned(*names, trusted=trusted)
    room = plan.workspaces["w"]
    room = msgspec.structs.replace(room, policy=Policy("the policy", **members), keys={"bot": key} if key else {})
    return msgspec.structs.replace(plan, workspaces={"w": room})


def hinted(*names: str, **annotations: bool) -> FakeServer:
    server = FakeServer()
    server.items["tools"] = [{"name": name, "annotations": annotations} for name in names]
    return server


def kind(result: dict[str, Any]) -> str:
    return result["_meta"][ERROR_KEY]["kind"]


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_a_denied_tool_is_hidden_and_refused_like_one_that_is_not_there() -> None:
    """R23, R24: the reason is in the events, with the rule."""
    async with benched({"a": FakeServer("rm", "ls")}, governed("a", deny=(Rule("a", "rm"),))) as bench:
        session = bench.session()
        assert await session.tools() == ["a_ls"]
        assert await session.call("a_rm") == await session.call("a_nothing")
        reasons = [event.data["reason"] for event in bench.events if event.name == "policy.denied"]
        assert reasons == ["deny[0] of the policy", "no such tool"]
        assert bench.servers["a"].asked("tools/call") == []


@pytest.mark.parametrize("prefix", ["", "a"])
async def test_a_call_has_one_meaning_only(prefix: str) -> None:
    """R23: what was decided about is what the server is told, also by a client that says a member twice, or once more
    in capitals, which some servers take for the same."""
    plan = governed("a", deny=(Rule("a", "rm"),))
    room = plan.workspaces["w"]
    mounts = (msgspec.structs.replace(room.mounts[0], prefix=prefix),)
    plan = msgspec.structs.replace(plan, workspaces={"w": msgspec.structs.replace(room, mounts=mounts)})
    name = b'"%b"' % (f"{prefix}_ls" if prefix else "ls").encode()
    async with benched({"a": FakeServer("rm", "ls")}, plan) as bench:
        session, server = bench.session(), bench.servers["a"]

        async def sent(method: str, params: bytes) -> Answer:
            return await bench.app.relay.handle(FakeRequest(session, method, params, "legacy"))

        twice = await sent("tools/call", b'{"name":"rm","arguments":{"x":1},"name":%b,"arguments":{}}' % name)
        assert twice.error is None
        assert server.asked("tools/call") == [b'{"name":"ls","arguments":{}}']
        for params in (b'{"name":%b,"Name":"rm"}' % name, b'{"name":%b,"arguments":{},"Arguments":{"x":1}}' % name):
            answer = await sent("tools/call", params)
            assert bytes(jsonrpc.members(answer.error or b"")["code"]) == b"-32602"
        await sent("resources/read", b'{"uri":"x://1","uri":"x://2"}')
        await sent("resources/read", b'{"uri":"x://2","URI":"x://1"}')
        await sent("completion/complete", b'{"ref":{"type":"ref/resource","uri":"x://1","uri":"x://2"}}')
        await sent("completion/complete", b'{"ref":{"type":"ref/resource","uri":"x://2","Uri":"x://1"}}')
        assert server.asked("resources/read") == [b'{"uri":"x://2"}']
        assert server.asked("completion/complete") == [b'{"ref":{"type":"ref/resource","uri":"x://2"}}']
        assert len(server.asked("tools/call")) == 1


@pytest.mark.parametrize(("trusted", "offered"), [(True, ["a_look", "b_look"]), (False, [])])
async def test_hints_count_only_from_trusted_servers_and_in_every_instance(trusted: bool, offered: list[str]) -> None:
    """R23"""
    servers = {"a": hinted("look", readOnlyHint=True), "b": hinted("look", readOnlyHint=True)}
    plan = governed("a", "b", trusted=trusted, allow=(Rule(read_only=True),))
    async with benched(servers, plan) as bench:
        session = bench.session()
        assert await session.tools() == offered
        assert ("isError" in await session.call("a_look")) is not trusted


async def test_the_policy_of_a_key_holds_besides_that_of_its_workspace() -> None:
    plan = governed("a", key=Policy("the policy of the key", deny=(Rule(tool="u"),)), deny=(Rule(tool="v"),))
    async with benched({"a": FakeServer("t", "u", "v")}, plan) as bench:
        assert await bench.session(name="bot").tools() == ["a_t"]
        assert await bench.session(id="other", name="other").tools() == ["a_t", "a_u"]


async def test_a_denied_server_gives_no_prompts_and_no_resources() -> None:
    server = FakeServer("t")
    server.items["prompts"] = [{"name": "p"}]
    server.items["resources"] = [{"uri": "x://1", "name": "x"}]
    async with benched({"a": server, "b": FakeServer("t")}, governed("a", "b", allow=(Rule("b"),))) as bench:
        session = bench.session()
        assert await session.tools() == ["b_t"]
        assert (await session.do("prompts/list"))["prompts"] == []
        assert (await session.do("resources/list"))["resources"] == []
        for method, params in (
            ("prompts/get", {"name": "a_p"}),
            ("resources/read", {"uri": "x://1"}),
            ("resources/subscribe", {"uri": "x://1"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a_p"}, "argument": {}}),
        ):
            assert (await session.do(method, params))["code"] == -32602


async def test_policies_close_the_way_for_methods_that_nobody_knows() -> None:
    async with benched({"a": FakeServer("t")}, governed("a", deny=(Rule("a", "x"),))) as bench:
        assert (await bench.session().do("vendor/secret"))["code"] == -32601


async def test_a_reload_with_another_policy_holds_for_open_sessions() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        session = bench.session()
        assert "isError" not in await session.call("a_t")
        bench.plan = governed("a", deny=(Rule("a"),))
        await bench.app.reload()
        assert await session.tools() == []
        assert kind(await session.call("a_t")) == "refused"


async def test_who_calls_too_often_is_told_when_to_come_again() -> None:
    async with benched({"a": FakeServer("t")}, governed("a", rate=Rate(2, 600.0))) as bench:
        session = bench.session()
        results = [await session.call("a_t") for _ in range(3)]
        assert [result.get("isError", False) for result in results] == [False, False, True]
        assert kind(results[2]) == "busy"
        assert "Only 2 calls in 600 s by the policy" in text(results[2])
        assert "next try" in text(results[2])
        assert (await session.do("resources/read", {"uri": "x://1"}))["data"]["kind"] == "busy"


async def test_calls_at_the_same_time_are_limited_together() -> None:
    gate = asyncio.Event()

    async def slow(params: bytes, _: object) -> Answer:
        await gate.wait()
        return ok({"content": []})

    server = FakeServer("t")
    server.replies["tools/call"] = slow
    async with benched({"a": server}, governed("a", concurrency=1)) as bench:
        first = asyncio.create_task(bench.session().call("a_t"))
        while not server.asked("tools/call"):
            await asyncio.sleep(0)
        assert kind(await bench.session(id="other").call("a_t")) == "busy"
        gate.set()
        assert "isError" not in await first
        assert "isError" not in await bench.session(id="third").call("a_t")


async def test_a_result_over_the_budget_is_left_out_and_its_size_named() -> None:
    server = FakeServer("t")
    server.replies["tools/call"] = lambda *_: ok({"content": [{"type": "text", "text": "x" * 5000}]})
    server.replies["resources/read"] = lambda *_: ok({"contents": [{"uri": "x://1", "text": "x" * 5000}]})
    server.items["resources"] = [{"uri": "x://1", "name": "x"}]
    plan = governed("a", key=Policy("the key's policy", max_result=100_000), max_result=1000)
    async with benched({"a": server}, plan) as bench:
        session = bench.session(name="bot")
        result = await session.call("a_t")
        size = len(jsonrpc.text({"content": [{"type": "text", "text": "x" * 5000}]}))
        assert result["_meta"][ERROR_KEY] == {"kind": "too_large", "size": size, "limit": 1000}
        assert f"The result has {size} bytes; the policy allows 1000" in text(result)
        error = await session.do("resources/read", {"uri": "x://1"})
        assert (error["code"], error["data"]["limit"]) == (-32603, 1000)


async def test_a_result_within_the_budget_is_the_very_same_bytes() -> None:
    server = FakeServer("t")
    exact = b'{"content":[],  "x":1.10}'
    server.replies["tools/call"] = lambda *_: Answer(result=exact)
    async with benched({"a": server}, governed("a", max_result=len(exact))) as bench:
        request = bench.session().request("tools/call", {"name": "a_t"})
        assert (await bench.app.relay.handle(request)).result == exact


def answering(session: FakeSession, action: str) -> list[str]:
    """Let the session's user answer that; the questions."""
    asked: list[str] = []

    async def ask(method: str, params: bytes) -> Answer:
        assert method == "elicitation/create"
        asked.append(msgspec.json.decode(params)["message"])
        return Answer(result=b'{"action":"%b"}' % action.encode())

    session.ask = ask  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("where", ["policy", "server", "mount"])
async def test_a_call_waits_for_a_person_who_agrees(where: str) -> None:
    """R23: the approval path."""
    plan = governed("a", confirm=(Rule("a", "rm"),)) if where == "policy" else planned("a")
    rules = ToolRules(confirm=("rm",))
    if where == "server":
        plan = msgspec.structs.replace(plan, variants={"a": variant("a", tools=rules)})
    if where == "mount":
        room = plan.workspaces["w"]
        mounts = tuple(msgspec.structs.replace(mount, tools=rules) for mount in room.mounts)
        plan = msgspec.structs.replace(plan, workspaces={"w": msgspec.structs.replace(room, mounts=mounts)})
    async with benched({"a": FakeServer("rm", "ls")}, plan) as bench:
        session = bench.session()
        asked = answering(session, "accept")
        assert await session.tools() == ["a_rm", "a_ls"]
        assert "isError" not in await session.call("a_rm", path="/tmp/x\u202e")
        assert asked == ['Allow this call of a_rm (server a)?\n{"path":"/tmp/x\\u202e"}']
        await session.call("a_ls")
        assert len(asked) == 1


@pytest.mark.parametrize("action", ["decline", "cancel", "other"])
async def test_a_call_that_nobody_agrees_to_is_not_made(action: str) -> None:
    async with benched({"a": FakeServer("rm")}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session()
        answering(session, action)
        result = await session.call("a_rm")
        assert kind(result) == "declined"
        assert bench.servers["a"].asked("tools/call") == []
        actions = [event.data["action"] for event in bench.events if event.name == "dialogue.answered"]
        assert actions == [action]


async def test_a_question_that_is_not_answered_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "QUESTION_LIMIT", 0.05)
    async with benched({"a": FakeServer("rm")}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session()

        async def never(method: str, params: bytes) -> Answer:
            return await asyncio.get_running_loop().create_future()

        session.ask = never  # type: ignore[method-assign]
        result = await session.call("a_rm")
        assert (kind(result), "in time" in text(result)) == ("declined", True)
        assert "dialogue.expired" in bench.names()


@pytest.mark.parametrize("declared", [b"{}", b'{"elicitation":{"url":{}}}'])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_cannot_be_asked_learns_what_can_be_done(era: Era, declared: bytes) -> None:
    async with benched({"a": FakeServer("rm")}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session(era=era)
        session.capabilities = declared
        meta = {META + "clientCapabilities": msgspec.Raw(declared)}
        result = await session.do("tools/call", {"name": "a_rm", "_meta": meta})
        assert kind(result) == "unconfirmed"
        assert "does not offer elicitation" in text(result)
        assert "`confirm` for a" in text(result)
        assert bench.servers["a"].asked("tools/call") == []


def asked_modern(**more: Any) -> dict[str, Any]:
    meta = {META + "clientCapabilities": {"elicitation": {"form": {}}}}
    return {"name": "a_rm", "arguments": {"path": "x"}, "_meta": meta, **more}


def again(result: dict[str, Any], action: str = "accept", **more: Any) -> dict[str, Any]:
    responses = {name: {"action": action} for name in result.get("inputRequests", {})}
    state = {"requestState": result["requestState"]} if "requestState" in result else {}
    return asked_modern(inputResponses=responses, **state, **more)


async def test_a_modern_client_comes_back_with_its_users_answer() -> None:
    async with benched({"a": FakeServer("rm", facts=MODERN)}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session(era="modern")
        first = await session.do("tools/call", asked_modern())
        assert first["resultType"] == "input_required"
        (question,) = first["inputRequests"].values()
        assert question["method"] == "elicitation/create"
        assert "a_rm" in question["params"]["message"]
        assert bench.servers["a"].asked("tools/call") == []
        assert "got" in await session.do("tools/call", again(first))
        assert (await session.do("tools/call", again(first)))["code"] == -32602  # it worked once
        second = await session.do("tools/call", asked_modern())
        assert kind(await session.do("tools/call", again(second, "decline"))) == "declined"
        assert len(bench.servers["a"].asked("tools/call")) == 1


async def test_an_agreement_is_for_one_caller_and_one_call() -> None:
    """R23: a handle in strange hands is worth nothing, and the owner's stays good."""
    async with benched({"a": FakeServer("rm", facts=MODERN)}, governed("a", confirm=(Rule(),))) as bench:
        session, stranger = bench.session(era="modern"), bench.session(era="modern", id="stranger")
        first = await session.do("tools/call", asked_modern())
        assert (await stranger.do("tools/call", again(first)))["code"] == -32602
        assert (await session.do("tools/call", {**again(first), "arguments": {"path": "y"}}))["code"] == -32602
        assert bench.servers["a"].asked("tools/call") == []
        assert "got" in await session.do("tools/call", again(first))


@pytest.mark.parametrize("state", [{"requestState": "server-1"}, {}])
async def test_a_call_that_was_agreed_to_is_not_asked_about_again_while_it_lasts(state: dict[str, str]) -> None:
    """The server itself asks in the middle of the call: that round belongs to the same agreement."""
    server = FakeServer("rm", facts=MODERN)
    wants = {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": {}}}}

    def reply(params: bytes, _: object) -> Answer:
        return ok({"got": 1} if b"inputResponses" in params else {**wants, **state})

    server.replies["tools/call"] = reply
    async with benched({"a": server}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session(era="modern")
        first = await session.do("tools/call", asked_modern())
        second = await session.do("tools/call", again(first))
        assert second.get("requestState") == state.get("requestState")
        assert await session.do("tools/call", again(second)) == {"got": 1}
        third = await session.do("tools/call", asked_modern())
        assert third["requestState"].startswith("mooring-parked:")


async def test_what_is_shown_of_long_arguments_says_so() -> None:
    async with benched({"a": FakeServer("rm")}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session()
        asked = answering(session, "accept")
        await session.call("a_rm", text="x" * 9000)
        assert asked[0].endswith("... (9011 characters in all)")


async def test_agreed_calls_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "REMEMBERED", 1)
    server = FakeServer("rm", facts=MODERN)
    server.replies["tools/call"] = lambda *_: ok({"resultType": "input_required", "requestState": "s"})
    async with benched({"a": server}, governed("a", confirm=(Rule(),))) as bench:
        session = bench.session(era="modern")
        for path in ("x", "y"):
            first = await session.do("tools/call", {**asked_modern(), "arguments": {"path": path}})
            async with asyncio.timeout(BOUND):
                await session.do("tools/call", {**again(first), "arguments": {"path": path}})
        old = await session.do("tools/call", {**asked_modern(requestState="s"), "arguments": {"path": "x"}})
        assert old["requestState"].startswith("mooring-parked:")


def deciding(session: FakeSession, change: Callable[[], Awaitable[Any]]) -> None:
    """The session's user agrees, but not before ``change`` has happened."""

    async def ask(method: str, params: bytes) -> Answer:
        await change()
        return Answer(result=b'{"action":"accept"}')

    session.ask = ask  # type: ignore[method-assign]


def moved(plan: Plan) -> Plan:
    """The same names, of another server."""
    room = plan.workspaces["w"]
    mounts = tuple(msgspec.structs.replace(mount, variant="b", server="b") for mount in room.mounts)
    room = msgspec.structs.replace(room, mounts=mounts)
    return msgspec.structs.replace(plan, variants={**plan.variants, "b": variant("b")}, workspaces={"w": room})


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (governed("a", deny=(Rule("a"),)), "deny[0] of the policy"),
        (Plan(variants={"a": variant("a")}, workspaces={"w": Workspace("w", ())}), "no such tool"),
        (moved(planned("a")), "no such tool"),
    ],
)
async def test_what_is_taken_away_while_a_person_is_asked_is_not_called(after: Plan, reason: str) -> None:
    """R23: an agreement does not outlive the rules it was asked for by."""
    servers = {"a": FakeServer("rm"), "b": FakeServer("rm")}
    async with benched(servers, governed("a", confirm=(Rule(),))) as bench:
        bench.plan = after
        session = bench.session()
        deciding(session, bench.app.reload)
        assert kind(await session.call("a_rm")) == "refused"
        assert [server.asked("tools/call") for server in servers.values()] == [[], []]
        (told,) = [event.data for event in bench.events if event.name == "call.finished"]
        assert (told["decision"], told["reason"]) == ("denied", reason)


async def test_what_is_taken_away_while_a_steward_looks_is_not_called() -> None:
    class Slow:
        async def attended(self, request: Request, route: Route, confirm: bool, proceed: Proceed) -> Answer:
            await bench.app.reload()
            return await proceed(request)

        def listing(self, request: Request) -> None: ...

    async with benched({"a": FakeServer("rm")}) as bench:
        bench.app.relay.stewards["w"] = Slow()
        assert "isError" not in await bench.session().call("a_rm")
        bench.plan = governed("a", deny=(Rule("a"),))
        assert kind(await bench.session(id="2").call("a_rm")) == "refused"
        assert len(bench.servers["a"].asked("tools/call")) == 1


async def test_what_is_shared_otherwise_since_a_person_was_asked_is_called_where_it_belongs_now() -> None:
    async with benched({"a": FakeServer("rm")}, governed("a", confirm=(Rule(),))) as bench:
        bench.plan = planned("a", sharing="workspace")
        session = bench.session()
        deciding(session, bench.app.reload)
        assert "isError" not in await session.call("a_rm")
        (called,) = [each for each in bench.servers["a"].conversations if "tools/call" in dict(each.asked)]
        assert called.key.scope == "w:w"
