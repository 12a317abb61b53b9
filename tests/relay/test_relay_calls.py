"""Calls through the relay: routing, refusals, at most once, what belongs to a session."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from relay_bench import BOUND, LEGACY, MODERN, FakeServer, benched, failed, ok, planned, until

from mooring.errors import Crashed, Refused
from mooring.nouns import Facts
from mooring.relay.refusals import ERROR_KEY
from mooring.wire.jsonrpc import Answer


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_a_tool_is_called_under_its_upstream_name_with_all_other_members_kept() -> None:
    """R27, A17: nothing but the name is rewritten."""
    async with benched({"a": FakeServer("t.x")}) as bench:
        params = {"name": "a_t_x", "arguments": {"n": 2**70}, "vendor": [1]}
        result = await bench.session().do("tools/call", params)
        assert result["got"] == {**params, "name": "t.x"}


async def test_an_unknown_tool_and_a_forbidden_one_get_the_same_words() -> None:
    """R24: a denial is a well-formed tool error, and tells nothing of what exists."""
    async with benched({"a": FakeServer("t", "u")}) as bench:
        some = bench.session(tools=("a_u",))
        forbidden, unknown = await some.call("a_t"), await some.call("a_nothing")
        assert forbidden == unknown
        assert forbidden["isError"]
        assert forbidden["_meta"][ERROR_KEY] == {"kind": "refused"}
        denied = [event.data["reason"] for event in bench.events if event.name == "policy.denied"]
        assert denied == ["the key's tool filter does not cover it", "no such tool"]
        assert bench.servers["a"].asked("tools/call") == []


async def test_a_key_may_call_what_it_may_not_list() -> None:
    server = FakeServer("t")
    server.items["prompts"] = [{"name": "p"}]
    async with benched({"a": server}) as bench:
        session = bench.session(scopes=("call",))
        assert await session.tools() == []
        assert "isError" not in await session.call("a_t")
        assert "code" not in await session.do("prompts/get", {"name": "a_p"})


async def test_a_key_that_may_only_list_is_refused_every_call() -> None:
    """Invariant 5: a list is never the only guard."""
    async with benched({"a": FakeServer("t")}) as bench:
        bench.servers["a"].items["resources"] = [{"uri": "x://1", "name": "x"}]
        session = bench.session(scopes=("list",))
        assert await session.tools() == ["a_t"]
        assert (await session.call("a_t"))["isError"]
        assert (await session.do("resources/read", {"uri": "x://1"}))["code"] == -32602
        assert (await session.do("resources/subscribe", {"uri": "x://1"}))["code"] == -32602


async def test_a_key_for_one_variant_learns_nothing_of_the_others() -> None:
    async with benched(
        {"a": FakeServer("t"), "b": FakeServer("u", facts=Facts("legacy", "x", b'{"tools":{}}', instructions="of b"))}
    ) as bench:
        bench.servers["c"] = FakeServer("v")
        bench.servers["c"].failing = failed("c is broken")
        bench.plan = planned("a", "b", "c")
        await bench.app.reload()
        await bench.app.looks.done()
        session = bench.session(variant="a")
        listed = await session.do("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["a_t"]
        assert "_meta" not in listed
        assert "instructions" not in await session.do("initialize")
        assert text(await session.call("c_v")) == text(await session.call("a_nothing"))


async def test_a_call_that_was_not_written_moves_to_the_next_instance_once() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        server, tries = bench.servers["a"], []

        def vanish(params: bytes, caller: object) -> Answer:
            tries.append(params)
            if len(tries) == 1:
                raise Crashed("went away", server="a", written=False)
            return ok({"content": []})

        server.replies["tools/call"] = vanish
        assert await bench.session().call("a_t") == {"content": []}
        assert len(tries) == 2


async def test_a_call_that_was_written_is_never_repeated() -> None:
    """At most once: the server may have done it."""
    async with benched({"a": FakeServer("t")}) as bench:
        server = bench.servers["a"]

        async def hang() -> Answer:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        server.replies["tools/call"] = lambda *_: hang()
        task = asyncio.ensure_future(bench.session().call("a_t"))
        await until(lambda: server.asked("tools/call"))
        server.last.closed.set_result("exited")
        result = await task
        assert result["_meta"][ERROR_KEY]["kind"] == "crashed"
        assert len(server.asked("tools/call")) == 1


async def test_a_failed_start_is_told_with_kind_server_and_next_try() -> None:
    """R12: the caller gets the reason."""
    server = FakeServer("t")
    server.failing = failed("no such program")
    async with benched({"a": server}) as bench:
        result = await bench.session().call("a_t")
        assert "no such program" in text(result)
        assert result["_meta"][ERROR_KEY]["server"] == "a"
        assert result["_meta"][ERROR_KEY]["retry_at"] > 0
        modern = await bench.session(era="modern", id="m").call("a_t")
        assert modern["resultType"] == "complete"


async def test_an_error_of_the_server_passes_unchanged() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        error = b'{"code":-5,"message":"mine","data":{"x":1.10}}'
        bench.servers["a"].replies["tools/call"] = lambda *_: Answer(error=error)
        request = bench.session().request("tools/call", {"name": "a_t"})
        answer = await bench.app.relay.handle(request)
        assert answer.error == error
        finished = [event for event in bench.events if event.name == "call.finished"]
        assert finished[-1].data["outcome"] == "error"


async def test_a_broken_request_is_an_error_and_not_a_crash() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        session = bench.session()
        assert (await session.do("tools/call", {"name": 5}))["isError"]
        request = session.request("tools/call")
        request.params = b"[1]"
        answer = await bench.app.relay.handle(request)
        assert answer.error is not None
        assert msgspec.json.decode(answer.error)["code"] == -32602


async def test_a_removed_workspace_is_refused() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        session = bench.session()
        bench.plan = planned("a", workspaces={"other": ("a",)})
        await bench.app.reload()
        with pytest.raises(Refused):
            await session.do("tools/list")


async def test_a_link_that_a_tool_returned_can_be_read() -> None:
    async with benched({"a": FakeServer("t"), "b": FakeServer("t")}) as bench:
        link = {"content": [{"type": "resource_link", "uri": "hidden://1", "name": "h"}]}
        bench.servers["b"].replies["tools/call"] = lambda *_: ok(link)
        session = bench.session()
        assert (await session.do("resources/read", {"uri": "hidden://1"}))["code"] == -32602
        await session.call("b_t")
        await session.do("resources/read", {"uri": "hidden://1"})
        assert len(bench.servers["b"].asked("resources/read")) == 1


async def test_prompts_and_completions_are_renamed_too() -> None:
    server = FakeServer("t")
    server.items["prompts"] = [{"name": "p.1"}]
    server.items["resourceTemplates"] = [{"uriTemplate": "x://{id}", "name": "x"}]
    server.replies["prompts/get"] = server.replies["completion/complete"] = server.replies["tools/call"]
    async with benched({"a": server}) as bench:
        session = bench.session()
        assert (await session.do("prompts/get", {"name": "a_p_1"}))["got"] == {"name": "p.1"}
        done = await session.do("completion/complete", {"ref": {"type": "ref/prompt", "name": "a_p_1", "x": 1}})
        assert done["got"]["ref"] == {"type": "ref/prompt", "name": "p.1", "x": 1}
        ref = {"type": "ref/resource", "uri": "x://{id}"}
        assert (await session.do("completion/complete", {"ref": ref}))["got"]["ref"] == ref
        assert (await session.do("completion/complete", {"ref": {"type": "ref/prompt", "name": "z"}}))["code"] == -32602
        assert (await session.do("prompts/get", {"name": "z"}))["code"] == -32602


async def test_what_a_session_has_to_itself_ends_with_it() -> None:
    """R10, A21: one instance a session, and none is left over."""
    async with benched({"a": FakeServer("t")}, planned("a", sharing="session", idle_timeout=0.0)) as bench:
        one, two = bench.session(id="one"), bench.session(id="two", era="modern")
        for session in (one, one, two):
            await session.call("a_t")
        scopes = [each.key.scope for each in bench.servers["a"].conversations]
        assert scopes == ["look:a", "s:one", "s:two"]
        one.close()
        two.close()
        await until(lambda: all(each.closed.done() for each in bench.servers["a"].conversations))


async def test_workspaces_do_not_share_what_belongs_to_one() -> None:
    """A21: sharing = "workspace"."""
    plan = planned("a", sharing="workspace", workspaces={"w": ("a",), "v": ("a",)})
    async with benched({"a": FakeServer("t")}, plan) as bench:
        for workspace in ("w", "v", "w"):
            await bench.session(workspace, id=workspace).call("a_t")
        assert [each.key.scope for each in bench.servers["a"].conversations] == ["look:a", "w:w", "w:v"]


async def test_a_first_look_starts_nothing_shared_where_mounts_do_not_share() -> None:
    plan = planned("a")
    room = plan.workspaces["w"]
    mount = msgspec.structs.replace(room.mounts[0], sharing="session")
    plan.workspaces["w"] = msgspec.structs.replace(room, mounts=(mount,))
    async with benched({"a": FakeServer("t")}, plan) as bench:
        assert [each.key.scope for each in bench.servers["a"].conversations] == ["look:a"]
        await until(lambda: bench.servers["a"].last.closed.done())


async def test_a_legacy_client_calls_a_modern_server() -> None:
    async with benched({"a": FakeServer("t", facts=MODERN)}) as bench:
        bench.servers["a"].replies["tools/call"] = lambda *_: ok({"content": [], "resultType": "complete"})
        assert await bench.session().call("a_t") == {"content": []}
        meta = msgspec.json.decode(bench.servers["a"].asked("tools/call")[0])["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


@pytest.mark.parametrize("facts", [LEGACY, MODERN])
async def test_a_result_that_is_no_object_is_the_server_s_fault_not_the_caller_s(facts: Facts) -> None:
    server = FakeServer("t", facts=facts)
    server.replies["tools/call"] = lambda *_: ok(["not", "a", "result"])
    async with benched({"a": server}) as bench:
        session = bench.session(era="modern" if facts is LEGACY else "legacy")
        assert (await session.do("tools/call", {"name": "a_t"}))["code"] == -32603


async def test_headers_repeat_the_arguments_that_are_sent_also_when_a_guard_changed_them() -> None:
    """A server refuses a request whose headers say something else than its body."""
    server = FakeServer(facts=MODERN)
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server.items["tools"] = [{"name": "t", "inputSchema": schema}]
    made: list[Any] = []

    def called(params: bytes, caller: Any) -> Answer:
        made.append(caller.headers)
        return ok({})

    server.replies["tools/call"] = called
    async with benched({"a": server}) as bench:
        session = bench.session(era="modern")
        await session.call("a_t")
        request = session.request("tools/call", {"name": "a_t", "arguments": {"region": "eu"}})
        route = bench.app.views.table("w").tools["a_t"]
        forward = bench.app.relay.methods.extensions._forward
        await forward(request, route, b'{"name":"t","arguments":{"region":"us"}}')
        assert made == [{}, {"Mcp-Param-Region": "us"}]


async def test_a_cancelled_call_gives_its_lease_back_and_is_told() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        server = bench.servers["a"]
        server.replies["tools/call"] = lambda *_: asyncio.sleep(BOUND, Answer(result=b"{}"))
        task = asyncio.ensure_future(bench.session().call("a_t"))
        await until(lambda: bench.leases("a") == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.leases("a") == 0
        assert [e.data["outcome"] for e in bench.events if e.name == "call.finished"] == ["cancelled"]


async def test_a_client_that_is_asked_within_a_call_is_the_one_that_called() -> None:
    """Invariant 8, A18."""
    async with benched({"a": FakeServer("t")}) as bench:

        async def asking(caller: Any) -> Answer:
            return await caller.ask("elicitation/create", b"{}")

        bench.servers["a"].replies["tools/call"] = lambda _, caller: asking(caller)
        session, other = bench.session(), bench.session(id="other")
        mine = session.request("tools/call", {"name": "a_t"})
        answer = await bench.app.relay.handle(mine)
        assert answer.result == b'{"action":"decline"}'
        assert mine.questions == ["elicitation/create"]
        assert not other.sent
