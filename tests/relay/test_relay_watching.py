"""Those who are told: resource subscriptions in both eras, listen streams, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from relay_bench import BOUND, MODERN, Bench, FakeRequest, FakeServer, FakeSession, benched, planned, until

from mooring.config.plan import Plan
from mooring.relay import exchange, subscriptions, watching
from mooring.relay.listener import SessionListener
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer, failure

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
URI = "x://1"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "GRACE", 0.3)
    monkeypatch.setattr(watching, "PAUSE", 0.02)
    monkeypatch.setattr(subscriptions, "DEBOUNCE", 0.02)


def offering(**more: Any) -> FakeServer:
    server = FakeServer("t", **more)
    server.items["resources"] = [{"uri": URI, "name": "x"}]
    return server


def modern() -> FakeServer:
    """A modern server that acknowledges and keeps the stream open."""
    server = offering(facts=MODERN)

    async def listen(caller: Caller | None) -> Answer:
        assert caller is not None
        caller.heard(ACKNOWLEDGED, b"{}")
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    server.replies["subscriptions/listen"] = lambda _, caller: listen(caller)
    return server


def update(bench: Bench, uri: str = URI, server: str = "a") -> None:
    bench.announce(server, UPDATED, b'{"uri":"%s"}' % uri.encode())


def heard(session: FakeSession) -> list[str]:
    """URIs of the updates that a session was told of."""
    return [msgspec.json.decode(params or b"{}")["uri"] for method, params in session.sent if method == UPDATED]


@contextmanager
def listening(bench: Bench, session: FakeSession, **wanted: Any) -> Generator[FakeRequest]:
    request = session.request("subscriptions/listen", {"notifications": wanted}, "modern")
    task = asyncio.ensure_future(bench.app.relay.handle(request))
    yield request
    task.cancel()


@pytest.mark.parametrize("server", [offering, modern])
async def test_every_watcher_hears_an_update_and_one_subscription_serves_them_all(server: Any) -> None:
    """R27, A16."""
    async with benched({"a": server()}) as bench:
        one, two, other = bench.session(), bench.session(id="2"), bench.session(id="3")
        for session in (one, two):
            assert await session.do("resources/subscribe", {"uri": URI}) == {}
        update(bench)
        assert (heard(one), heard(two), heard(other)) == ([URI], [URI], [])
        method = "subscriptions/listen" if server is modern else "resources/subscribe"
        assert len(bench.servers["a"].asked(method)) == 1


async def test_a_subscription_pins_its_server_until_the_last_watcher_leaves() -> None:
    async with benched({"a": offering()}) as bench:
        one, two = bench.session(), bench.session(id="2")
        for session in (one, two):
            await session.do("resources/subscribe", {"uri": URI})
        assert bench.leases("a") == 1
        assert await one.do("resources/unsubscribe", {"uri": URI}) == {}
        update(bench)
        assert (heard(one), heard(two), bench.leases("a")) == ([], [URI], 1)
        two.close()
        await until(lambda: bench.leases("a") == 0)
        assert len(bench.servers["a"].asked("resources/unsubscribe")) == 1


async def test_a_part_of_what_is_watched_counts_and_a_neighbour_does_not() -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session()
        await session.do("resources/subscribe", {"uri": URI})
        for uri in (f"{URI}/part", f"{URI}?q", f"{URI}0", "y://1", ""):
            update(bench, uri)
        assert heard(session) == [f"{URI}/part", f"{URI}?q"]


async def test_a_crashed_server_is_subscribed_to_again() -> None:
    """A16: after a crash everything comes back."""
    async with benched({"a": offering()}) as bench:
        session, server = bench.session(), bench.servers["a"]
        await session.do("resources/subscribe", {"uri": URI})
        server.last.closed.set_result("exited")
        await until(lambda: len(server.asked("resources/subscribe")) == 2)
        update(bench)
        assert heard(session) == [URI]


async def test_a_refusal_of_the_server_is_passed_on_and_pins_nothing() -> None:
    async with benched({"a": offering()}) as bench:
        bench.servers["a"].replies["resources/subscribe"] = lambda *_: failure(-32002, "not that one")
        answer = await bench.session().do("resources/subscribe", {"uri": URI})
        assert answer["message"] == "not that one"
        await until(lambda: bench.leases("a") == 0)


@pytest.mark.parametrize("facts", ["legacy", "modern"])
async def test_a_server_that_does_not_answer_a_subscription_is_given_up(facts: str) -> None:
    """Every wait is bounded."""
    server = offering() if facts == "legacy" else offering(facts=MODERN)
    for method in ("resources/subscribe", "subscriptions/listen"):
        server.replies[method] = lambda *_: asyncio.sleep(BOUND, Answer(result=b"{}"))
    async with benched({"a": server}) as bench:
        answer = await bench.session().do("resources/subscribe", {"uri": URI})
        assert "did not take the subscription" in answer["message"]
        await until(lambda: bench.leases("a") == 0)


async def test_a_server_that_ends_its_streams_at_once_is_not_asked_in_a_circle() -> None:
    server = offering(facts=MODERN)
    server.replies["subscriptions/listen"] = lambda *_: Answer(result=b"{}")
    async with benched({"a": server}) as bench:
        await bench.session().do("resources/subscribe", {"uri": URI})
        await asyncio.sleep(0.1)
        assert 1 <= len(server.asked("subscriptions/listen")) <= 7


async def test_a_changed_definition_takes_over_the_subscription_and_the_old_one_ends() -> None:
    """A subscription has no deadline: without this the old instance would drain for ever."""
    async with benched({"a": offering()}) as bench:
        session, server = bench.session(), bench.servers["a"]
        await session.do("resources/subscribe", {"uri": URI})
        bench.plan = planned("a", digest="d2")
        await bench.app.reload()
        await until(lambda: len(server.asked("resources/subscribe")) == 2)
        await until(lambda: server.conversations[0].closed.done())
        update(bench)
        assert heard(session) == [URI]
        await bench.app.looks.done()
        await session.do("resources/unsubscribe", {"uri": URI})
        await until(lambda: bench.leases("a") == 0)


async def test_who_lost_the_server_hears_no_more_of_it() -> None:
    plan = planned("a", workspaces={"w": ("a",), "v": ("a",), "u": ("a",)})
    async with benched({"a": offering()}, plan) as bench:
        kept, unmounted, removed = bench.session(), bench.session("v", id="2"), bench.session("u", id="3")
        for session in (kept, unmounted, removed):
            await session.do("resources/subscribe", {"uri": URI})
        bench.plan = planned("a", workspaces={"w": ("a",), "v": ()})
        await bench.app.reload()
        update(bench)
        assert (heard(kept), heard(unmounted), heard(removed)) == ([URI], [], [])
        bench.plan = planned("b", workspaces={"w": ("b",)})
        bench.servers["b"] = offering()
        await bench.app.reload()
        await until(lambda: bench.servers["a"].last.closed.done())


async def test_a_modern_client_has_no_subscribe() -> None:
    async with benched({"a": offering()}) as bench:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await bench.session().do(method, {"uri": URI}, "modern"))["code"] == -32601


async def test_a_session_that_ended_watches_nothing() -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session()
        session.close()
        assert (await session.do("resources/subscribe", {"uri": URI}))["code"] == -32602
        assert bench.leases("a") == 0


async def test_an_unknown_uri_cannot_be_watched() -> None:
    async with benched({"a": offering(), "b": offering()}) as bench:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await bench.session().do(method, {"uri": "z://9"}))["code"] == -32602


@pytest.mark.parametrize("server", [offering, modern])
async def test_a_listen_stream_is_acknowledged_first_and_hears_what_it_asked_for(server: Any) -> None:
    async with benched({"a": server()}) as bench:
        session = bench.session(era="modern")
        wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": [URI, "z://9"]}
        bench.servers["b"] = offering()
        bench.plan = planned("a", "b")
        await bench.app.reload()
        await bench.app.looks.done()
        with listening(bench, session, **wanted) as request:
            await until(lambda: request.told)
            method, params = request.told[0]
            told = msgspec.json.decode(params)
            assert method == ACKNOWLEDGED
            assert told["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [URI]}
            assert told["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}
            update(bench)
            bench.servers["a"].items["tools"].append({"name": "u"})
            bench.announce("a", "notifications/tools/list_changed")
            await until(lambda: len(request.told) >= 3)
            assert {method for method, _ in request.told[1:]} == {UPDATED, "notifications/tools/list_changed"}
            assert bench.leases("a") == 1
        await until(lambda: bench.leases("a") == 0)


async def test_one_broken_server_does_not_keep_a_stream_from_the_others() -> None:
    """Invariant 9."""
    broken = offering()
    broken.items["resources"] = [{"uri": "y://1", "name": "y"}]
    broken.replies["resources/subscribe"] = lambda *_: asyncio.sleep(BOUND, Answer(result=b"{}"))
    async with benched({"a": offering(), "b": broken}) as bench:
        uris = ["y://1", "y://1", URI]
        with listening(bench, bench.session(era="modern"), resourceSubscriptions=uris) as request:
            await until(lambda: request.told)
            assert msgspec.json.decode(request.told[0][1])["notifications"] == {"resourceSubscriptions": [URI]}


async def test_a_legacy_client_cannot_listen_as_modern_ones_do() -> None:
    """Its call would go on for ever when it leaves, and its session with it."""
    async with benched({"a": offering()}) as bench:
        wanted = {"notifications": {"toolsListChanged": True}}
        assert (await bench.session().do("subscriptions/listen", wanted))["code"] == -32601
        assert not bench.app.subscriptions._listens.get("w")


async def test_nothing_of_a_session_is_kept_when_it_has_ended() -> None:
    async with benched({"a": offering()}) as bench:
        for number in range(20):
            session = bench.session(id=str(number))
            await session.do("resources/subscribe", {"uri": URI})
            session.close()
        with listening(bench, bench.session(id="l"), toolsListChanged=True) as request:
            await until(lambda: request.told)
        await until(lambda: "w" not in bench.app.subscriptions._listens)
        assert len(bench.app.subscriptions._sessions["w"]) == 1
        assert bench.app.watching._watches == {}


async def test_what_an_own_instance_says_reaches_its_session_and_its_lists_are_taken_anew() -> None:
    """Invariant 8: and nobody else."""
    async with benched({"a": offering()}, planned("a", dialogue="session")) as bench:
        mine, other = bench.session(), bench.session(id="2")
        await mine.do("resources/subscribe", {"uri": URI})
        key = bench.servers["a"].last.key
        own = SessionListener(key, bench.app.pool, bench.app.watching, mine)
        assert key.scope == "s:session-1"
        own.announced("notifications/message", b'{"level":"info"}')
        mine.log_level = "error"
        own.announced("notifications/message", b'{"level":"warning"}')
        own.announced("notifications/message", b'{"level":"critical"}')
        own.announced(UPDATED, b'{"uri":"%s"}' % URI.encode())
        bench.servers["a"].items["tools"].append({"name": "u"})
        own.announced("notifications/tools/list_changed", b"{}")
        assert (await own.asked("roots/list", b"{}")).result == b'{"action":"decline"}'
        await until(lambda: "a_u" in bench.app.views.table("w").tools)
        levels = [params for method, params in mine.sent if method == "notifications/message"]
        assert levels == [b'{"level":"info"}', b'{"level":"critical"}']
        assert heard(mine) == [URI]
        assert heard(other) == []


async def test_what_a_shared_instance_logs_or_asks_outside_calls_reaches_nobody() -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session()
        await asyncio.sleep(0.05)
        session.sent.clear()
        bench.announce("a", "notifications/message", b'{"level":"error"}')
        key = bench.servers["a"].last.key
        answer = await bench.app._listener(bench.plan.variants["a"], key).asked("roots/list", b"{}")
        assert answer.error is not None
        assert session.sent == []


@pytest.mark.parametrize(
    ("method", "params", "plan"),
    [
        ("resources/subscribe", {"uri": URI}, planned("a")),
        ("tools/call", {"name": "a_t"}, planned("a", sharing="session", idle_timeout=0.0)),
    ],
)
async def test_a_session_that_ends_while_a_server_is_waited_for_keeps_none(
    method: str, params: dict[str, Any], plan: Plan
) -> None:
    """Nothing would ever end what is begun for it then."""
    server = offering()
    server.starting = asyncio.Event()
    async with benched({"a": server}, plan) as bench:
        session = bench.session()
        asked = asyncio.ensure_future(session.do(method, params))
        await asyncio.sleep(0)
        session.close()
        server.starting.set()
        answer = await asked
        assert answer.get("isError") or answer["code"] == -32602
        await bench.app.looks.done()
        assert [each.key.scope for each in server.conversations if each.key.scope.startswith("s:")] == []
        assert bench.leases("a") == 0
        assert bench.app.watching._watches == {}


async def test_a_definition_that_changes_while_it_is_subscribed_to_costs_the_subscription_nothing() -> None:
    server = offering()
    async with benched({"a": server}) as bench:
        server.replies["resources/subscribe"] = lambda *_: asyncio.sleep(BOUND, Answer(result=b"{}"))
        session = bench.session()
        asked = asyncio.ensure_future(session.do("resources/subscribe", {"uri": URI}))
        await until(lambda: server.asked("resources/subscribe"))
        del server.replies["resources/subscribe"]
        bench.plan = planned("a", digest="d2")
        await bench.app.reload()
        assert await asked == {}
        update(bench)
        assert heard(session) == [URI]


async def test_a_subscription_that_is_taken_back_before_it_began_is_answered() -> None:
    async with benched({"a": offering()}) as bench:
        session = bench.session()
        asked = asyncio.ensure_future(session.do("resources/subscribe", {"uri": URI}))
        await asyncio.sleep(0)
        (watch,) = bench.app.watching._watches.values()
        assert watch.task is not None
        session.close()
        assert (await asked)["message"] == "the subscription was given up"
        assert watch.task.cancelled()


async def test_a_server_that_is_shared_otherwise_is_not_kept_by_those_who_watched_it() -> None:
    plan = planned("a", workspaces={"w": ("a",), "v": ("a",)})
    async with benched({"a": offering()}, plan) as bench:
        moved, kept = bench.session(), bench.session("v", id="2")
        for session in (moved, kept):
            await session.do("resources/subscribe", {"uri": URI})
        own = planned("a", sharing="workspace", workspaces={"w": ("a",)})
        bench.plan = msgspec.structs.replace(plan, workspaces={**plan.workspaces, **own.workspaces})
        await bench.app.reload()
        update(bench)
        assert (heard(moved), heard(kept)) == ([], [URI])
        bench.plan = planned("a", sharing="workspace", workspaces={"w": ("a",), "v": ("a",)})
        await bench.app.reload()
        await until(lambda: bench.servers["a"].last.closed.done())


async def test_what_happens_before_a_stream_is_acknowledged_is_told_after_it() -> None:
    server, go = offering(), asyncio.Event()

    async def subscribed() -> Answer:
        await go.wait()
        return Answer(result=b"{}")

    server.replies["resources/subscribe"] = lambda *_: subscribed()
    async with benched({"a": server}) as bench:
        await asyncio.sleep(0.1)  # what the first looks announced is over
        wanted = {"toolsListChanged": True, "resourceSubscriptions": [URI]}
        with listening(bench, bench.session(era="modern"), **wanted) as request:
            await until(lambda: server.asked("resources/subscribe"))
            server.items["tools"].append({"name": "u"})
            bench.announce("a", "notifications/tools/list_changed")
            await until(lambda: "a_u" in bench.app.views.table("w").tools)
            await until(lambda: not bench.app.subscriptions._pending)
            assert request.told == []
            go.set()
            await until(lambda: len(request.told) == 2)
            assert [method for method, _ in request.told] == [ACKNOWLEDGED, "notifications/tools/list_changed"]
            tag = {"io.modelcontextprotocol/subscriptionId": 7}
            assert all(msgspec.json.decode(params)["_meta"] == tag for _, params in request.told)


async def test_a_question_outside_calls_that_nobody_answers_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "QUESTION_LIMIT", 0.05)

    async def never(method: str, params: bytes) -> Answer:
        return await asyncio.get_running_loop().create_future()

    async with benched({"a": offering()}, planned("a", dialogue="session")) as bench, asyncio.timeout(BOUND):
        session = bench.session()
        session.ask = never  # type: ignore[method-assign]
        own = SessionListener(bench.servers["a"].last.key, bench.app.pool, bench.app.watching, session)
        assert (await own.asked("elicitation/create", b"{}")).result == b'{"action":"cancel"}'
        assert (await own.asked("roots/list", b"{}")).error is not None
