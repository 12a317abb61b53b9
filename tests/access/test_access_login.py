"""Login: one request's credentials to a principal, or a refusal that tells a stranger nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mooring.access import login as login_module
from mooring.access.identity import Rejected
from mooring.access.keys import Keys
from mooring.access.login import PEERS, QUIET, Login, is_loopback
from mooring.config.plan import Mount, Workspace
from mooring.errors import MooringError, Refused, Unauthenticated
from mooring.nouns import NewKey, Principal
from mooring.observe.events import Event, Events
from mooring.store.sqlite import MEMORY, SqliteStore

HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"


class Door:
    """A login, its workspaces, a key of alice, and what was reported."""

    def __init__(self, keys: Keys, key: NewKey, reported: list[Event]) -> None:
        self.now = 1000.0
        self.keys, self.key, self.reported = keys, key, reported
        self.workspaces = {"alice": Workspace("alice"), "bob": Workspace("bob")}
        self.login = Login(keys, lambda: self.workspaces, lambda: self.now)

    def refusal(self, authorization: str | None, workspace: str | None = None, peer: str = ELSEWHERE) -> MooringError:
        with pytest.raises((Unauthenticated, Refused)) as caught:
            self.login(authorization, workspace, None, peer)
        assert isinstance(caught.value, MooringError)
        return caught.value

    def bearer(self) -> str:
        return f"Bearer {self.key.key}"


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    reported: list[Event] = []
    async with SqliteStore(MEMORY) as store:
        keys = Keys(store, Events((reported.append,)))
        key = await keys.create("alice")
        reported.clear()
        yield Door(keys, key, reported)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", " Bearer "])
@pytest.mark.parametrize("workspace", [None, "alice"])
async def test_a_valid_key_opens_its_workspace(door: Door, scheme: str, workspace: str | None) -> None:
    principal = door.login(f"{scheme} {door.key.key} ", workspace, None, ELSEWHERE)
    assert principal == Principal(door.key.id, "alice")
    assert door.reported == []


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer mrg_wrong", "Basic YTpi", "mrg_bare", "Bearer a b"]
)
async def test_without_a_valid_key_nothing_opens(door: Door, authorization: str | None) -> None:
    error = door.refusal(authorization)
    assert isinstance(error, Unauthenticated)
    assert "Authorization: Bearer" in error.message


async def test_a_key_without_its_scheme_opens_nothing(door: Door) -> None:
    assert isinstance(door.refusal(door.key.key), Unauthenticated)
    assert isinstance(door.refusal(f"Basic {door.key.key}"), Unauthenticated)


async def test_r19_another_workspace_is_refused_with_the_same_words_whether_it_exists_or_not(door: Door) -> None:
    """R19: workspace A's key does not open B."""
    foreign, unknown = door.refusal(door.bearer(), "bob"), door.refusal(door.bearer(), "no-such")
    assert type(foreign) is type(unknown) is Refused
    assert foreign.message == unknown.message
    assert foreign.facts() == unknown.facts() == {"kind": "refused"}


async def test_without_a_key_existing_and_unknown_workspaces_look_the_same(door: Door) -> None:
    errors = [door.refusal(None, workspace) for workspace in ("alice", "no-such", None)]
    assert {(type(error), error.message) for error in errors} == {(Unauthenticated, errors[0].message)}


async def test_a_revoked_key_stops_opening_at_once(door: Door) -> None:
    await door.keys.revoke(door.key.id)
    assert isinstance(door.refusal(door.bearer()), Unauthenticated)


async def test_a_key_of_a_workspace_that_left_the_configuration_is_inert_until_it_comes_back(door: Door) -> None:
    alice = door.workspaces.pop("alice")
    for workspace in (None, "alice"):
        assert isinstance(door.refusal(door.bearer(), workspace), Refused)
    door.workspaces["alice"] = alice
    assert door.login(door.bearer(), "alice", None, ELSEWHERE).workspace == "alice"


class TestAnonymous:
    """``anonymous = "loopback"``."""

    @pytest.fixture
    def door(self, door: Door) -> Door:
        door.workspaces["open"] = Workspace("open", anonymous=True)
        return door

    async def test_from_this_machine_the_named_workspace_opens_without_a_key(self, door: Door) -> None:
        assert door.login(None, "open", None, HERE) == Principal("anonymous:open", "open")

    async def test_without_a_name_it_opens_only_when_it_is_the_only_one(self, door: Door) -> None:
        assert isinstance(door.refusal(None, None, HERE), Unauthenticated)
        door.workspaces = {"open": Workspace("open", anonymous=True)}
        assert door.login(None, None, None, HERE).workspace == "open"
        door.workspaces = {"shut": Workspace("shut")}
        assert isinstance(door.refusal(None, None, HERE), Unauthenticated)
        door.workspaces = {}
        assert isinstance(door.refusal(None, None, HERE), Unauthenticated)

    async def test_from_elsewhere_a_key_is_needed(self, door: Door) -> None:
        for peer in (ELSEWHERE, "", "::2"):
            assert isinstance(door.refusal(None, "open", peer), Unauthenticated)

    async def test_other_workspaces_stay_shut(self, door: Door) -> None:
        assert isinstance(door.refusal(None, "alice", HERE), Unauthenticated)

    async def test_a_wrong_key_is_not_taken_for_no_key(self, door: Door) -> None:
        assert isinstance(door.refusal("Bearer mrg_wrong", "open", HERE), Unauthenticated)

    async def test_a_key_of_another_workspace_does_not_open_it(self, door: Door) -> None:
        assert isinstance(door.refusal(door.bearer(), "open", HERE), Refused)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_own_addresses_are_loopback(peer: str) -> None:
    assert is_loopback(peer)


@pytest.mark.parametrize("peer", ["", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::ffff:10.0.0.1", "127.evil.example"])
def test_other_addresses_are_not_loopback(peer: str) -> None:
    assert not is_loopback(peer)


async def test_a_failure_is_reported_with_its_reason_and_without_the_token(door: Door) -> None:
    door.refusal("Bearer mrg_guess", None, ELSEWHERE)
    door.refusal(door.bearer(), "bob", HERE)
    first, second = door.reported
    assert (first.name, first.workspace) == ("key.refused", "")
    assert first.data == {"reason": "unknown or expired key", "peer": ELSEWHERE, "before": 0}
    assert second.workspace == "alice"
    assert second.data == {"reason": "the key is for another workspace", "peer": HERE, "before": 0, "key": door.key.id}
    assert "mrg_" not in repr(door.reported)


async def test_further_failures_of_a_peer_are_counted_and_reported_later(door: Door) -> None:
    for _ in range(5):
        door.refusal(None)
    assert len(door.reported) == 1
    door.now += QUIET
    door.refusal(None)
    door.refusal(None)
    assert [event.data["before"] for event in door.reported] == [0, 4]


async def test_failures_slow_nobody_down_who_has_a_key(door: Door) -> None:
    for _ in range(1000):
        door.refusal(None, peer=HERE)
    assert door.login(door.bearer(), None, None, HERE).workspace == "alice"


async def test_the_memory_of_failures_is_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PEERS >= 100
    monkeypatch.setattr(login_module, "PEERS", 3)
    for number in range(10):
        door.refusal(None, peer=f"192.0.2.{number}")
        assert len(door.login._failures) <= 3
    assert len(door.reported) == 10


async def test_a_login_is_cheap(door: Door) -> None:
    """About 3 µs on an idle machine; it runs on every request."""
    authorization = door.bearer()
    rounds: list[float] = []
    for _ in range(10):
        started = time.perf_counter()
        for _ in range(100):
            door.login(authorization, "alice", None, HERE)
        rounds.append((time.perf_counter() - started) / 100)
    assert min(rounds) < 50e-6


async def test_the_endpoint_of_a_variant_wants_a_key_that_is_restricted_to_it(door: Door) -> None:
    door.workspaces["alice"] = Workspace("alice", (Mount("alice", "git", "git", "git"),))
    key = await door.keys.create("alice", variant="git")
    principal = door.login(f"Bearer {key.key}", None, "git", ELSEWHERE)
    assert (principal.workspace, principal.variant, principal.bare) == ("alice", "git", True)
    assert not door.login(f"Bearer {key.key}", "alice", None, ELSEWHERE).bare
    gone = await door.keys.create("alice", variant="gone")
    texts = set()
    for bearer, variant in ((door.bearer(), "git"), (f"Bearer {key.key}", "time"), (f"Bearer {gone.key}", "gone")):
        with pytest.raises(Refused) as caught:
            door.login(bearer, None, variant, ELSEWHERE)
        texts.add(str(caught.value))
    assert texts == {str(Refused())}


async def test_another_mooring_of_this_user_opens_each_variant_of_its_workspace_and_no_other(door: Door) -> None:
    door.workspaces["alice"] = Workspace("alice", (Mount("alice", "git", "git", "git"),))
    ours, lent = (door.keys.lend("alice", "run", ours=ours) for ours in (True, False))
    principal = door.login(f"Bearer {ours.key}", None, "git", HERE)
    assert (principal.variant, principal.bare, principal.ours) == ("git", True, True)
    for key, variant in ((ours, "time"), (lent, "git")):
        with pytest.raises(Refused):
            door.login(f"Bearer {key.key}", None, variant, HERE)


async def test_nobody_is_anonymous_at_the_endpoint_of_a_variant(door: Door) -> None:
    door.workspaces = {"open": Workspace("open", (Mount("open", "git", "git", "git"),), anonymous=True)}
    with pytest.raises(Unauthenticated):
        door.login(None, None, "git", HERE)


class Doorman:
    """Knows one token."""

    def principal(self, token: str, workspace: str | None) -> Principal:
        if token == "a.b.c":
            return Principal("jwt:ada@company", workspace or "alice")
        raise Rejected(Refused(), "no admission covers it")


async def test_whoever_comes_without_a_key_is_known_by_somebody_else_where_there_is_one(door: Door) -> None:
    door.login.identity = cast("Any", Doorman())
    assert door.login("Bearer a.b.c", None, None, ELSEWHERE) == Principal("jwt:ada@company", "alice")
    assert door.login("Bearer a.b.c", "bob", None, ELSEWHERE) == Principal("jwt:ada@company", "bob")
    assert door.login(door.bearer(), None, None, ELSEWHERE) == Principal(door.key.id, "alice")
    with pytest.raises(Refused):
        door.login("Bearer a.b.c", None, "variant", ELSEWHERE)
    assert isinstance(door.refusal("Bearer mrg_wrong"), Unauthenticated), "what looks like a key is one"


async def test_how_every_login_begins_is_not_reported_and_each_kind_of_refusal_is_for_itself(door: Door) -> None:
    """A client asks without a token first, to find out where to log in; that must not hide what is wrong later."""
    door.login.identity = cast("Any", Doorman())
    for authorization in (None, "Basic YTpi", "Basic YTpi", "Bearer x.y.z"):
        door.refusal(authorization)
    assert [event.data["reason"] for event in door.reported] == ["not a bearer token", "no admission covers it"]
