"""First looks, listings and changes of the plan, over the real parts."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from relay_bench import BOUND, FakeServer, benched, failed, ok, planned, until, variant

from mooring.config.plan import REGISTRY, Mount, Plan, Workspace
from mooring.nouns import Facts, Item, Listing
from mooring.relay import first_look, subscriptions
from mooring.relay.listings import Listings, changed_kinds
from mooring.relay.refusals import ERROR_KEY
from mooring.relay.view import MISSING_KEY
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.wire.jsonrpc import Answer, failure

CHANGED = "notifications/tools/list_changed"
FACTS = Facts("legacy", "2025-11-25")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "PATIENCE", 0.1)
    monkeypatch.setattr(subscriptions, "DEBOUNCE", 0.05)


def missing(result: dict[str, Any]) -> dict[str, str]:
    return {entry["server"]: entry["reason"] for entry in result.get("_meta", {}).get(MISSING_KEY, [])}


async def test_a_server_that_cannot_be_listed_hides_no_other_and_is_named() -> None:
    """R12, A32: one failing server, and the reason."""
    broken = FakeServer("t")
    broken.failing = failed("no such program")
    async with benched({"a": FakeServer("t"), "b": broken}) as bench:
        result = await bench.session().do("tools/list")
        assert [tool["name"] for tool in result["tools"]] == ["a_t"]
        assert "no such program" in missing(result)["b"]


async def test_lists_wait_once_for_a_slow_server_and_hear_of_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "PATIENCE", 1.0)
    slow = FakeServer("t")
    slow.starting = asyncio.Event()
    async with benched({"a": FakeServer("t"), "b": slow}) as bench:
        session = bench.session()
        clock = asyncio.get_running_loop().time
        began = clock()
        assert missing(await session.do("tools/list")) == {"b": "starting"}
        assert clock() - began >= 0.9
        began = clock()
        await session.do("tools/list")
        assert clock() - began < 0.9
        session.sent.clear()
        slow.starting.set()
        await until(lambda: (CHANGED, None) in session.sent)
        assert await session.tools() == ["a_t", "b_t"]


async def test_greetings_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "PATIENCE", 10.0)
    slow = FakeServer("t")
    slow.starting = asyncio.Event()
    async with benched({"a": slow}) as bench:
        session = bench.session()
        async with asyncio.timeout(5):
            hello = await session.do("initialize")
            discovered = await session.do("server/discover", era="modern")
        assert set(hello["capabilities"]) == {"tools", "prompts", "resources", "completions", "logging"}
        assert discovered["supportedVersions"][0] == "2026-07-28"


async def test_a_list_that_failed_is_not_kept_as_no_tools_and_is_tried_again() -> None:
    """A32: a failed list is retried, not cached as "no tools"."""
    server = FakeServer("t")
    server.replies["tools/list"] = server.replies["prompts/list"] = lambda *_: failure(-32603, "not today")
    async with benched({"a": server}) as bench:
        session = bench.session()
        assert "not today" in missing(await session.do("tools/list"))["a"]
        assert bench.app.listings.get(bench.plan.variants["a"]) is None
        del server.replies["tools/list"]
        bench.app.pool.restart("a")
        await until(lambda: (CHANGED, None) in session.sent)
        result = await session.do("tools/list")
        assert ([tool["name"] for tool in result["tools"]], missing(result)) == (["a_t"], {})


async def test_a_list_that_fails_later_keeps_the_last_good_one() -> None:
    server = FakeServer("t")
    async with benched({"a": server}) as bench:
        server.replies["tools/list"] = lambda *_: failure(-32603, "not today")
        bench.announce("a", CHANGED)
        await until(lambda: len(server.asked("tools/list")) == 2)
        assert await bench.session().tools() == ["a_t"]


async def test_a_failed_look_is_not_repeated_by_every_list() -> None:
    server = FakeServer("t")
    server.failing = failed()
    async with benched({"a": server}) as bench:
        session = bench.session()
        starts = bench.names().count("instance.starting")
        for _ in range(5):
            await session.do("tools/list")
        assert bench.names().count("instance.starting") == starts == 1


async def test_a_call_for_an_unlisted_server_waits_a_little_and_says_that_it_is_starting() -> None:
    slow = FakeServer("t")
    slow.starting = asyncio.Event()
    async with benched({"a": slow}) as bench:
        result = await bench.session().call("a_t")
        assert result["_meta"][ERROR_KEY]["kind"] == "unavailable"
        assert "still starting" in result["content"][0]["text"]
        slow.starting.set()
        assert "isError" not in await bench.session().call("a_t")


async def test_a_burst_of_changes_is_told_once_to_every_session_of_the_workspace_only() -> None:
    """A16: list-changed refetch with debounce."""
    plan = planned("a", "b", workspaces={"w": ("a",), "v": ("b",)})
    async with benched({"a": FakeServer("t"), "b": FakeServer("t")}, plan) as bench:
        one, two, foreign = bench.session(), bench.session(id="2"), bench.session("v", id="3")
        await asyncio.sleep(0.1)  # what the first looks announced is over
        for session in (one, two, foreign):
            session.sent.clear()
        bench.servers["a"].items["tools"].append({"name": "u"})
        for _ in range(5):
            bench.announce("a", CHANGED)
        await until(lambda: one.sent)
        await asyncio.sleep(0.1)
        assert one.sent == two.sent == [(CHANGED, None)]
        assert foreign.sent == []
        assert await one.tools() == ["a_t", "a_u"]


async def test_a_reload_that_changes_nothing_tells_nobody() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        session = bench.session()
        await asyncio.sleep(0.1)
        session.sent.clear()
        report = await bench.app.reload()
        await asyncio.sleep(0.1)
        assert report.applied
        assert (report.added, report.removed, report.changed, session.sent) == ((), (), (), [])


async def test_a_broken_configuration_changes_nothing_until_it_is_mended() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        bench.broken = "mooring.toml:3: what is this"
        report = await bench.app.reload()
        assert (report.applied, report.error) == (False, bench.broken)
        assert bench.app.config_error == bench.broken
        assert "config.rejected" in bench.names()
        assert await bench.session().tools() == ["a_t"]
        bench.broken = ""
        assert (await bench.app.reload()).applied
        assert bench.app.config_error == ""


async def test_what_needs_a_restart_is_said_until_it_is_done() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        gateway = msgspec.structs.replace(bench.plan.gateway, listen=(("127.0.0.1", 1),))
        bench.plan = msgspec.structs.replace(bench.plan, gateway=gateway)
        for _ in range(2):
            assert (await bench.app.reload()).needs_restart == ("gateway.listen",)


async def test_a_changed_definition_gets_the_next_call_and_the_old_one_drains() -> None:
    """R8 as section 10 has it: the variant stays, the instance is new."""
    async with benched({"a": FakeServer("t")}) as bench:
        server, session = bench.servers["a"], bench.session()
        release = asyncio.Event()

        async def slow() -> Answer:
            await release.wait()
            return Answer(result=b'{"content":[]}')

        usual = server.replies["tools/call"]
        server.replies["tools/call"] = lambda *_: slow()
        running = asyncio.ensure_future(session.call("a_t"))
        await until(lambda: bench.leases("a") == 1)
        server.replies["tools/call"] = usual
        bench.plan = planned("a", digest="d2")
        assert (await bench.app.reload()).changed == ("a",)
        await bench.app.looks.done()
        assert "isError" not in await session.call("a_t")
        assert [each.key.digest for each in server.conversations] == ["d1", "d2"]
        assert not server.conversations[0].closed.done()
        release.set()
        assert await running == {"content": []}
        await until(lambda: server.conversations[0].closed.done())


async def test_what_a_definition_of_yesterday_offers_stands_in_until_that_of_today_is_listed() -> None:
    server = FakeServer("t")
    one, two = asyncio.Event(), asyncio.Event()

    async def listed(when: asyncio.Event) -> Answer:
        await when.wait()
        return ok({"tools": [{"name": "t"}]})

    server.starting = asyncio.Event()
    async with benched({"a": server}) as bench:
        server.replies["tools/list"] = lambda *_: listed(one)
        server.starting.set()
        session = bench.session()
        await until(lambda: len(server.asked("tools/list")) == 1)
        server.replies["tools/list"] = lambda *_: listed(two)
        bench.plan = planned("a", digest="d2")
        await bench.app.reload()
        await until(lambda: len(server.asked("tools/list")) == 2)
        assert missing(await session.do("tools/list")) == {"a": "starting"}
        session.sent.clear()
        one.set()
        await until(lambda: (CHANGED, None) in session.sent)
        assert await session.tools() == ["a_t"]
        assert [each.key.digest for each in server.conversations] == ["d1", "d2"]
        two.set()
        assert "isError" not in await session.call("a_t")


async def test_a_call_in_the_moment_between_a_listing_and_the_change_of_the_views_waits_for_it() -> None:
    server = FakeServer("t")
    server.starting = asyncio.Event()
    async with benched({"a": server}) as bench:
        assert missing(await bench.session().do("tools/list")) == {"a": "starting"}
        listing = Listing(FACTS, tools=(Item("t", b'{"name":"t"}'),))
        await bench.app.listings.put(bench.plan.variants["a"], listing)
        server.starting.set()
        assert "isError" not in await bench.session(id="2").call("a_t")


async def test_a_mended_definition_is_not_blamed_for_the_old_one() -> None:
    server = FakeServer("t")
    server.failing = failed("no such program")
    async with benched({"a": server}) as bench:
        server.failing, server.starting = None, asyncio.Event()
        bench.plan = planned("a", digest="d2")
        await bench.app.reload()
        assert missing(await bench.session().do("tools/list")) == {"a": "starting"}
        server.starting.set()
        await bench.app.looks.done()
        assert await bench.session().tools() == ["a_t"]


async def test_a_removed_server_takes_its_tools_away_and_ends() -> None:
    async with benched({"a": FakeServer("t"), "b": FakeServer("t")}) as bench:
        session = bench.session()
        bench.plan = planned("a")
        assert (await bench.app.reload()).removed == ("b",)
        assert await session.tools() == ["a_t"]
        assert (await session.call("b_t"))["_meta"][ERROR_KEY] == {"kind": "refused"}
        await until(lambda: bench.servers["b"].last.closed.done())


async def test_log_levels_and_pings_belong_to_the_legacy_era() -> None:
    async with benched({"a": FakeServer("t")}) as bench:
        session = bench.session()
        assert await session.do("ping") == {}
        assert (await session.do("ping", era="modern"))["code"] == -32601
        assert await session.do("logging/setLevel", {"level": "error"}) == {}
        assert session.log_level == "error"
        assert (await session.do("logging/setLevel", {"level": "loud"}))["code"] == -32602
        assert (await session.do("logging/setLevel", {"level": "info"}, era="modern"))["code"] == -32601
        assert (await session.do("initialize"))["protocolVersion"] == "2025-11-25"


async def test_listings_survive_a_restart_by_definition() -> None:
    """Invariant 10: written first, then known."""
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        one, two = planned("a").variants["a"], planned("a", digest="d2").variants["a"]
        listing = Listing(FACTS, tools=(Item("t", b'{"name":"t"}'),), taken_at=5.0)
        assert await known.put(one, listing) == {"tools"}
        assert await known.put(one, listing) == frozenset()
        fresh = Listings(store)
        fresh.load([one, two])
        assert (fresh.get(one), fresh.get(two)) == (listing, None)
        later = Listings(store)
        await later.fetch([one])
        assert later.of({"a": one}) == {"a": listing}


def test_kinds_that_differ_are_named() -> None:
    item = (Item("x", b"{}"),)
    assert changed_kinds(None, Listing(FACTS)) == frozenset()
    assert changed_kinds(Listing(FACTS), Listing(FACTS, prompts=item, templates=item)) == {"prompts", "resources"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "b_p"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "b_p"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x://{id}"}, "argument": {}}),
        ("resources/read", {"uri": "x://r"}),
        ("resources/subscribe", {"uri": "x://r"}),
    ],
)
async def test_prompts_resources_and_completions_wait_for_a_first_look_as_tools_do(method: str, params: Any) -> None:
    slow = FakeServer("t")
    slow.items["prompts"] = [{"name": "p"}]
    slow.items["resources"] = [{"uri": "x://r", "name": "r"}]
    slow.items["resourceTemplates"] = [{"uriTemplate": "x://{id}", "name": "t"}]
    slow.starting = asyncio.Event()
    async with benched({"a": FakeServer("t"), "b": slow}) as bench:
        session = bench.session()
        asked = asyncio.create_task(session.do(method, params))
        await asyncio.sleep(0.01)
        slow.starting.set()
        assert await asked == {}
        assert slow.asked(method)


async def test_registry_exec_reaches_the_inner_tool_before_the_registry_was_listed() -> None:
    registry, other = FakeServer("exec"), FakeServer("t")
    registry.starting = asyncio.Event()
    mounts = (Mount("w", "registry", REGISTRY, REGISTRY), Mount("w", "a", "a", "a"))
    plan = Plan(variants={id: variant(id) for id in (REGISTRY, "a")}, workspaces={"w": Workspace("w", mounts)})
    async with benched({REGISTRY: registry, "a": other}, plan) as bench:
        asked = asyncio.create_task(bench.session().call("registry_exec", tool_name="a_t", arguments={}))
        await asyncio.sleep(0.01)
        registry.starting.set()
        assert not (await asked).get("isError")
        assert [msgspec.json.decode(params)["name"] for params in other.asked("tools/call")] == ["t"]
        assert registry.asked("tools/call") == []


async def test_a_uri_that_nobody_knows_is_named_in_the_refusal() -> None:
    async with benched({"a": FakeServer("t"), "b": FakeServer("t")}) as bench:
        refused = await bench.session().do("resources/read", {"uri": "x://none"})
        assert (refused["code"], refused["data"]) == (-32602, {"uri": "x://none"})


async def test_a_server_that_ends_while_its_listing_is_written_is_listed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = FakeServer("t")
    server.starting = asyncio.Event()
    writing, go = asyncio.Event(), asyncio.Event()
    async with benched({"a": server}) as bench:
        run = bench.app.store.run

        async def slow(query: str, *then: Any, **parameters: Any) -> None:
            async def written() -> None:
                if query == "put_listing":
                    writing.set()
                    await go.wait()
                await run(query, *then, **parameters)

            await asyncio.shield(asyncio.ensure_future(written()))

        monkeypatch.setattr(bench.app.store, "run", slow)
        session = bench.session()
        assert missing(await session.do("tools/list")) == {"a": "starting"}
        await until(lambda: session.sent)  # of the boot
        session.sent.clear()
        server.starting.set()
        async with asyncio.timeout(BOUND):
            await writing.wait()
            server.last.closed.set_result("gone")
            await bench.app.looks.done()
        go.set()
        await until(lambda: (CHANGED, None) in session.sent)
        assert await session.tools() == ["a_t"]
