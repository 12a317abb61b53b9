"""Access keys: whose token it is, and that every change is durable first, then in force."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mooring.access.keys import SHOWN_AFTER, Keys
from mooring.errors import ConfigError, StoreError, Unauthenticated
from mooring.nouns import NewKey, Principal
from mooring.observe.events import Event, Events
from mooring.store.sqlite import MEMORY, SqliteStore


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Room:
    """Keys over a store, with what they reported."""

    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.events: list[Event] = []
        self.ended: list[str] = []
        self.keys = self.reloaded()
        self.keys.on_revoked.append(self.ended.append)

    def reloaded(self) -> Keys:
        """As after a restart."""
        keys = Keys(self.store, Events((self.events.append,)), self.clock)
        keys.load()
        return keys

    def opens(self, key: NewKey) -> bool:
        """Whether the token opens; before and after a restart alike."""
        answers = {opens(keys, key.key) for keys in (self.keys, self.reloaded())}
        assert len(answers) == 1
        return answers.pop()


def opens(keys: Keys, token: str) -> bool:
    try:
        keys.principal(token)
    except Unauthenticated:
        return False
    return True


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with SqliteStore(MEMORY) as store:
        yield Room(store, Clock())


async def test_a_new_key_opens_its_workspace_within_its_limits(room: Room) -> None:
    key = await room.keys.create("alice", "ci", 2000.0, ("list",), "time-0a1b2c", ("time_*",))
    expected = Principal(key.id, "alice", ("list",), "time-0a1b2c", ("time_*",), "ci")
    assert room.keys.principal(key.key) == expected
    assert room.reloaded().principal(key.key) == expected
    assert key.workspace == "alice"
    assert room.reloaded().rows() == room.keys.rows()


async def test_tokens_and_ids_have_their_documented_form(room: Room) -> None:
    keys = [await room.keys.create("alice") for _ in range(50)]
    for key in keys:
        assert key.key.startswith("mrg_")
        assert len(key.key) == 4 + 43
        assert key.id.startswith("k_")
        assert set(key.id[2:]) <= set("abcdefghijklmnopqrstuvwxyz234567")
        assert len(key.id) == 10
    assert len({key.key for key in keys}) == len({key.id for key in keys}) == 50


async def test_r22_the_token_is_in_no_file_row_or_event(tmp_path: Path) -> None:
    """R22: a value never appears in logs, status or state files."""
    async with SqliteStore(tmp_path / "mooring.db") as store:
        room = Room(store, Clock())
        key = await room.keys.create("alice", "ci")
        rotated = await room.keys.rotate(key.id)
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        shown = repr(room.keys.rows()) + repr(room.events)
    assert hashlib.sha256(rotated.key.encode()).digest() in content
    for token in (key.key, rotated.key):
        assert token.encode() not in content
        assert token not in shown


@pytest.mark.parametrize("token", ["", "mrg_", "mrg_" + "a" * 43, "\udc80", "🔑" * 100])
async def test_any_other_token_opens_nothing(room: Room, token: str) -> None:
    await room.keys.create("alice")
    with pytest.raises(Unauthenticated, match="A valid key is needed"):
        room.keys.principal(token)


async def test_a_token_whose_hash_only_begins_like_a_key_opens_nothing(room: Room) -> None:
    key = await room.keys.create("alice")
    (index, known), *_ = room.keys._known.items()
    other = hashlib.sha256(b"other").digest()
    room.keys._known[other[:8]] = known
    with pytest.raises(Unauthenticated):
        room.keys.principal("other")
    assert room.keys.principal(key.key).key_id == key.id
    assert index == known.hash[:8]


async def test_an_expired_key_opens_nothing_and_says_why_to_its_holder(room: Room) -> None:
    key = await room.keys.create("alice", expires_at=1010.0)
    room.clock.now = 1009.9
    assert room.opens(key)
    room.clock.now = 1010.0
    assert not room.opens(key)
    with pytest.raises(Unauthenticated, match=f"{key.id} has expired"):
        room.keys.principal(key.key)
    assert [row.inert for row in room.keys.rows()] == ["expired"]


async def test_a_revoked_key_stops_at_once_and_its_sessions_are_told(room: Room) -> None:
    key, other = await room.keys.create("alice"), await room.keys.create("alice")
    await room.keys.revoke(key.id)
    assert not room.opens(key)
    assert room.opens(other)
    assert room.ended == [key.id]
    await room.keys.revoke(key.id)
    assert room.ended == [key.id]
    assert {row.id: row.revoked for row in room.keys.rows()} == {key.id: True, other.id: False}


async def test_a_rotated_key_keeps_id_and_limits_and_only_the_new_token_opens(room: Room) -> None:
    key = await room.keys.create("alice", "ci", 2000.0, ("call",), "v-123456", ("a_*",))
    before = room.keys.principal(key.key)
    new = await room.keys.rotate(key.id)
    assert not room.opens(key)
    assert room.opens(new)
    assert room.keys.principal(new.key) == before
    assert room.ended == [key.id]


async def test_every_change_is_an_event(room: Room) -> None:
    key = await room.keys.create("alice", "ci")
    await room.keys.rotate(key.id)
    other = await room.keys.create("alice", "ci", replace=True)
    await room.keys.revoke(other.id)
    assert [(event.name, event.workspace, event.data["key"]) for event in room.events] == [
        ("key.created", "alice", key.id),
        ("key.rotated", "alice", key.id),
        ("key.revoked", "alice", key.id),
        ("key.created", "alice", other.id),
        ("key.revoked", "alice", other.id),
    ]
    assert {event.ts for event in room.events} == {1000.0}
    assert room.events[0].data == {"key": key.id, "name": "ci"}


async def test_the_event_of_a_new_key_says_what_it_is_limited_to(room: Room) -> None:
    await room.keys.create("alice", "ci", 2000.0, ("list",), "git", ("g_*",))
    (event,) = room.events
    assert event.data == {
        "key": ANY,
        "name": "ci",
        "scopes": ("list",),
        "variant": "git",
        "tools": ("g_*",),
        "expires_at": 2000.0,
    }


async def test_a_name_is_unique_among_the_living_keys_of_a_workspace(room: Room) -> None:
    first = await room.keys.create("alice", "ci")
    await room.keys.create("bob", "ci")
    with pytest.raises(ConfigError, match=f"mooring key rotate {first.id}"):
        await room.keys.create("alice", "ci")
    await room.keys.revoke(first.id)
    assert room.opens(await room.keys.create("alice", "ci"))


async def test_keys_without_a_name_do_not_clash(room: Room) -> None:
    keys = [await room.keys.create("alice") for _ in range(3)]
    keys.append(await room.keys.create("alice", replace=True))
    assert all(room.opens(key) for key in keys)


async def test_replacing_ends_the_key_of_that_name_in_the_same_step(room: Room) -> None:
    first = await room.keys.create("alice", "cursor")
    second = await room.keys.create("alice", "cursor", replace=True)
    assert not room.opens(first)
    assert room.opens(second)
    assert room.ended == [first.id]


async def test_the_name_of_an_expired_key_is_free(room: Room) -> None:
    first = await room.keys.create("alice", "ci", expires_at=1001.0)
    room.clock.now = 1001.0
    second = await room.keys.create("alice", "ci")
    assert room.opens(second)
    assert [(row.id, row.revoked) for row in room.keys.rows()] == [(first.id, True), (second.id, False)]


@pytest.mark.parametrize("limits", [{"expires_at": 1000.0}, {"scopes": ()}, {"scopes": ("call", "write")}])
async def test_a_key_that_could_never_be_used_is_not_made(room: Room, limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await room.keys.create("alice", **limits)
    assert room.reloaded().rows() == []


async def test_verbs_on_a_key_that_is_not_there_say_so(room: Room) -> None:
    for verb in (room.keys.rotate, room.keys.revoke):
        with pytest.raises(ConfigError, match='There is no key "k_none"'):
            await verb("k_none")


async def test_a_key_that_has_ended_is_not_rotated(room: Room) -> None:
    revoked = await room.keys.create("alice")
    expired = await room.keys.create("alice", expires_at=1001.0)
    await room.keys.revoke(revoked.id)
    room.clock.now = 1002.0
    for key in (revoked, expired):
        with pytest.raises(ConfigError, match="has ended"):
            await room.keys.rotate(key.id)


async def test_rows_are_of_one_workspace_or_all_and_mark_keys_of_unknown_workspaces(room: Room) -> None:
    alice, bob = await room.keys.create("alice"), await room.keys.create("bob")
    gone = await room.keys.create("bob")
    await room.keys.revoke(gone.id)
    assert [row.id for row in room.keys.rows("alice")] == [alice.id]
    rows = {row.id: row for row in room.keys.rows(workspaces={"alice"})}
    assert rows[alice.id].inert == ""
    assert rows[bob.id].inert == "no such workspace"
    assert rows[gone.id].inert == ""
    assert all(row.inert == "" for row in room.keys.rows())


async def test_revoked_keys_are_listed_for_a_while_and_their_ids_never_come_back(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await room.keys.create("alice")
    await room.keys.revoke(key.id)
    room.clock.now += SHOWN_AFTER - 1
    assert [row.id for row in room.keys.rows()] == [row.id for row in room.reloaded().rows()] == [key.id]
    room.clock.now += 2
    assert room.reloaded().rows() == room.keys.rows() == []
    assert room.keys._rows == {}
    monkeypatch.setattr("mooring.access.keys._new_id", lambda: key.id)
    with pytest.raises(StoreError):
        await room.keys.create("alice")


async def test_what_the_store_refuses_changes_nothing_in_memory(room: Room) -> None:
    key = await room.keys.create("alice", "ci")
    rows, events = room.keys.rows(), list(room.events)
    await room.store.__aexit__(None, None, None)
    for change in (room.keys.create("alice"), room.keys.rotate(key.id), room.keys.revoke(key.id)):
        with pytest.raises(StoreError):
            await change
    assert room.keys.principal(key.key).key_id == key.id
    assert (room.keys.rows(), room.events, room.ended) == (rows, events, [])


async def test_a_revocation_whose_asker_has_gone_away_still_takes_effect(room: Room) -> None:
    key = await room.keys.create("alice")
    told = asyncio.Event()
    room.keys.on_revoked.append(lambda key_id: told.set())
    task = asyncio.create_task(room.keys.revoke(key.id))
    while not room.keys._changing.locked():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(told.wait(), 10)
    assert not room.opens(key)


async def test_of_many_keys_made_at_once_under_one_name_one_is_left(room: Room) -> None:
    made = await asyncio.gather(*(room.keys.create("alice", "cursor", replace=True) for _ in range(10)))
    assert [room.opens(key) for key in made].count(True) == 1
    refused = await asyncio.gather(*(room.keys.create("bob", "ci") for _ in range(10)), return_exceptions=True)
    assert len([one for one in refused if isinstance(one, ConfigError)]) == 9


async def test_a_look_up_is_cheap(room: Room) -> None:
    """About 2 µs on an idle machine; it runs on every request."""
    keys = [await room.keys.create("alice") for _ in range(20)]
    best = math.inf
    for key in keys:
        started = time.perf_counter()
        for _ in range(100):
            room.keys.principal(key.key)
        best = min(best, (time.perf_counter() - started) / 100)
    assert best < 50e-6


WORKSPACES = st.sampled_from(["alice", "bob"])
NAMES = st.sampled_from(["", "ci", "cursor"])


class KeysMachine(RuleBasedStateMachine):
    """Keys against a model: which tokens open, as which workspace, now and after a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = SqliteStore(MEMORY)
        self.room: Room
        self.living: dict[str, tuple[str, str, str, float]] = {}
        """id -> token, workspace, name, expiry."""
        self.dead: set[str] = set()
        self.ids: set[str] = set()

    @initialize()
    def open(self) -> None:
        self.loop.run_until_complete(self.store.__aenter__())
        self.room = Room(self.store, Clock())

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.__aexit__(None, None, None))
        self.loop.close()

    def fresh(self, id: str) -> bool:
        return self.living[id][3] > self.room.clock.now

    @rule(workspace=WORKSPACES, name=NAMES, life=st.none() | st.floats(0.5, 5), replace=st.booleans())
    def create(self, workspace: str, name: str, life: float | None, replace: bool) -> None:
        expiry = None if life is None else self.room.clock.now + life
        holders = [id for id, key in self.living.items() if name and key[1:3] == (workspace, name)]
        creating = self.room.keys.create(workspace, name, expiry, replace=replace)
        if holders and self.fresh(holders[0]) and not replace:
            with pytest.raises(ConfigError):
                self.loop.run_until_complete(creating)
            return
        key = self.loop.run_until_complete(creating)
        assert key.id not in self.ids
        self.ids.add(key.id)
        for id in holders:
            self.dead.add(self.living.pop(id)[0])
        self.living[key.id] = (key.key, workspace, name, expiry or math.inf)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def rotate(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.living)))
        rotating = self.room.keys.rotate(id)
        if not self.fresh(id):
            with pytest.raises(ConfigError):
                self.loop.run_until_complete(rotating)
            return
        token, *rest = self.living[id]
        self.dead.add(token)
        self.living[id] = (self.loop.run_until_complete(rotating).key, *rest)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.living)))
        self.loop.run_until_complete(self.room.keys.revoke(id))
        self.dead.add(self.living.pop(id)[0])

    @rule(seconds=st.floats(0.1, 3))
    def wait(self, seconds: float) -> None:
        self.room.clock.now += seconds

    @invariant()
    def exactly_the_living_tokens_open(self) -> None:
        if not hasattr(self, "room"):
            return
        for keys in (self.room.keys, self.room.reloaded()):
            for id, (token, workspace, _, _) in self.living.items():
                if self.fresh(id):
                    principal = keys.principal(token)
                    assert (principal.key_id, principal.workspace) == (id, workspace)
                else:
                    assert not opens(keys, token)
            assert not any(opens(keys, token) for token in self.dead)
            assert {row.id for row in keys.rows() if not row.revoked} == set(self.living)
            assert {row.id for row in keys.rows()} == self.ids


TestKeysMachine = KeysMachine.TestCase
TestKeysMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
