"""Two workspaces with a server in common: whatever one tries with all it knows of the other, it gets nothing, and the
other notices nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from relay_bench import BOUND, LEGACY, MODERN, Bench, FakeServer, FakeSession, benched, ok, planned, until

from mooring.config.plan import Plan, ToolRules
from mooring.nouns import Era

META = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
ROOMS = {"a": ("shared", "mine"), "b": ("shared", "other")}
TASK = "task-of-a"
SECRETS = ("a://secret", "a://hidden")


def stage() -> tuple[dict[str, FakeServer], Plan]:
    """Every call of "mine" has to be agreed to; "shared" hands out tasks."""
    mine = FakeServer("t", facts=MODERN)
    mine.items["prompts"] = [{"name": "p"}]
    mine.items["resources"] = [{"uri": SECRETS[0], "name": "s"}]
    link = {"type": "resource_link", "uri": SECRETS[1], "name": "h"}
    mine.replies["tools/call"] = lambda *_: ok({"content": [link], "resultType": "complete"})
    shared = FakeServer("t", facts=MODERN)
    shared.replies["tools/call"] = lambda *_: ok({"resultType": "task", "taskId": TASK, "status": "working"})
    other = FakeServer("t", facts=MODERN)
    plan = planned("shared", "mine", "other", workspaces=ROOMS)
    guarded = msgspec.structs.replace(plan.variants["mine"], tools=ToolRules(confirm=("*",)))
    return {"mine": mine, "shared": shared, "other": other}, msgspec.structs.replace(
        plan, variants={**plan.variants, "mine": guarded}
    )


NAMES = st.sampled_from(["mine_t", "mine_p", "t", "p", "mine", "other_t\0", "a/mine_t", "MINE_T", "shared_t_"])
URIS = st.sampled_from(SECRETS)
ATTEMPTS = st.one_of(
    st.tuples(st.just("tools/call"), st.fixed_dictionaries({"name": NAMES})),
    st.tuples(st.just("resume"), st.fixed_dictionaries({"action": st.sampled_from(["accept", "decline"])})),
    st.tuples(st.just("prompts/get"), st.fixed_dictionaries({"name": NAMES})),
    st.tuples(
        st.sampled_from(["resources/read", "resources/subscribe", "resources/unsubscribe"]),
        st.fixed_dictionaries({"uri": URIS}),
    ),
    st.tuples(
        st.sampled_from(["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"]), st.just({"taskId": TASK})
    ),
    st.tuples(st.sampled_from(["tasks/list", "vendor/everything"]), st.just({})),
    st.tuples(
        st.just("completion/complete"),
        st.fixed_dictionaries({"ref": URIS.map(lambda uri: {"type": "ref/resource", "uri": uri})}),
    ),
)
ERAS = st.sampled_from(["legacy", "modern"])


def calling(tool: str, **more: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": {}, "_meta": META, **more}


async def attempt(stranger: FakeSession, method: str, params: dict[str, Any], state: str, era: Era) -> Any:
    if method == "resume":
        answer = {"q1": {"action": params["action"]}}
        method, params = "tools/call", calling("mine_t", requestState=state, inputResponses=answer)
    return await stranger.do(method, {"_meta": META, **params}, era)


def refused(answer: dict[str, Any]) -> bool:
    return bool(answer.get("isError")) or "code" in answer


def asked(bench: Bench) -> list[tuple[str, bytes]]:
    """What the other workspace's own server was asked, and what any server was asked about its task."""
    mine = [each for connection in bench.servers["mine"].conversations for each in connection.asked]
    shared = [each for connection in bench.servers["shared"].conversations for each in connection.asked]
    return mine + [each for each in shared if each[0].startswith("tasks/")]


async def separated(attempts: list[tuple[str, dict[str, Any]]], era: Era, known: str) -> None:
    servers, plan = stage()
    async with benched(servers, plan) as bench:
        owner = bench.session("a", "modern", "owner")
        # The stranger has even guessed the owner's session id; the key is what tells them apart.
        stranger = bench.session("b", era, known)
        stranger.principal = msgspec.structs.replace(stranger.principal, key_id="k_stranger")
        first = await owner.do("tools/call", calling("mine_t"))
        answers = {"q1": {"action": "accept"}}
        resumed = calling("mine_t", requestState=first["requestState"], inputResponses=answers)
        done = await owner.do("tools/call", resumed)
        assert done["content"][0]["uri"] == SECRETS[1]
        assert (await owner.do("tools/call", calling("shared_t")))["taskId"] == TASK
        parked = (await owner.do("tools/call", calling("mine_t")))["requestState"]
        before = asked(bench)
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "initialize"):
            assert "mine" not in str(await stranger.do(method, {}, era))
            assert "a://" not in str(await stranger.do(method, {}, era))
        for method, params in attempts:
            answer = await attempt(stranger, method, params, parked, era)
            assert refused(answer) or answer == {}, (method, params, answer)
        assert asked(bench) == before
        again = await owner.do("tools/call", calling("mine_t", requestState=parked, inputResponses=answers))
        assert again == done
        await owner.do("tasks/get", {"taskId": TASK, "_meta": META})
        assert [method for method, _ in asked(bench)[len(before) :]] == ["tools/call", "tasks/get"]


@settings(max_examples=40, deadline=None)
@given(st.lists(ATTEMPTS, max_size=8), ERAS, st.sampled_from(["owner", "stranger"]))
def test_a_workspace_reaches_nothing_of_another_with_all_it_may_know(
    attempts: list[tuple[str, dict[str, Any]]], era: Era, known: str
) -> None:
    """R19, R24: lists, calls, prompts, resources, subscriptions, tasks, parked calls, in both eras."""

    async def bounded() -> None:
        async with asyncio.timeout(BOUND * 4):
            await separated(attempts, era, known)

    asyncio.run(bounded())


async def test_what_is_updated_for_one_is_not_told_to_the_other() -> None:
    servers, plan = stage()
    servers["mine"].facts = LEGACY
    async with benched(servers, plan) as bench:
        owner, stranger = bench.session("a", id="owner"), bench.session("b", id="stranger")
        assert await owner.do("resources/subscribe", {"uri": SECRETS[0]}) == {}
        assert (await stranger.do("resources/subscribe", {"uri": SECRETS[0]}))["code"] == -32602
        bench.announce("mine", "notifications/resources/updated", b'{"uri":"a://secret"}')
        await until(lambda: owner.sent)
        assert owner.sent == [("notifications/resources/updated", b'{"uri":"a://secret"}')]
        assert stranger.sent == []
