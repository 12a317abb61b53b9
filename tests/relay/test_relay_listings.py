"""What several askers got from one server, as one listing that does not come and go with them."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Remote
from mooring.nouns import Facts, Item, Listing
from mooring.relay.bridge import CARRIED, EVERYTHING, asks
from mooring.relay.listings import Listings, merged
from mooring.store.sqlite import MEMORY, SqliteStore

REMOTE = Variant("far", "far", "{}", "d", Remote("http://far.example/mcp"))
PROCESS = Variant("near", "near", "{}", "d", Process(("near",)))
SESSIONS = msgspec.structs.replace(PROCESS, dialogue="session")


def listing(*names: str, era: Literal["legacy", "modern"] = "legacy", raw: bytes = b"{}") -> Listing:
    return Listing(Facts(era, "x"), tools=tuple(Item(name, raw) for name in names))


def names(known: Listings, variant: Variant = REMOTE) -> list[str]:
    found = known.get(variant)
    return [item.name for item in found.tools] if found else []


def test_what_a_client_can_be_asked_for_is_known_by_its_capabilities() -> None:
    assert asks(b"{}") == asks(b'{"extensions":{}}') == ""
    assert asks(b'{"roots":{},"elicitation":{},"x":1}') == "elicitation,roots"
    assert asks(CARRIED) == EVERYTHING


async def test_a_tool_for_clients_that_can_be_asked_stays_listed_whoever_comes() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        assert await known.put(REMOTE, listing("echo")) == {"tools"}
        assert not known.complete(REMOTE)
        assert await known.put(REMOTE, listing("echo", "ask"), EVERYTHING) == {"tools"}
        assert known.complete(REMOTE)
        for other in ("", "roots", EVERYTHING):
            assert await known.put(REMOTE, listing("echo", *(["ask"] if other == EVERYTHING else [])), other) == set()
        assert names(known) == ["echo", "ask"]
        fresh = Listings(store)
        fresh.load([REMOTE])
        assert (names(fresh), fresh.complete(REMOTE)) == (["echo", "ask"], True)


async def test_what_two_got_at_the_same_time_is_known_of_both() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        await asyncio.gather(
            known.put(REMOTE, listing("echo", "plain")), known.put(REMOTE, listing("echo", "root"), "roots")
        )
        assert set(names(known)) == {"echo", "plain", "root"}
        fresh = Listings(store)
        fresh.load([REMOTE])
        assert set(names(fresh)) == set(names(known))


async def test_a_server_that_changed_is_doubted_until_it_is_looked_at_again() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        await known.put(REMOTE, listing("echo", "old"))
        await known.put(REMOTE, listing("echo", "old", "ask"), EVERYTHING)
        assert await known.put(REMOTE, listing("echo", "new")) == {"tools"}
        assert set(names(known)) == {"echo", "old", "new", "ask"}
        assert not known.complete(REMOTE)
        await known.put(REMOTE, listing("echo", "new", "ask"), EVERYTHING)
        assert (names(known), known.complete(REMOTE)) == (["echo", "new", "ask"], True)


async def test_what_was_taken_before_the_change_is_forgotten_on_disk_too() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        await known.put(REMOTE, listing("echo", "old"), "roots")
        await known.put(REMOTE, listing("echo", "old"), EVERYTHING)
        await known.put(REMOTE, listing("echo"), EVERYTHING)
        fresh = Listings(store)
        fresh.load([REMOTE])
        assert names(known) == names(fresh) == ["echo"]


async def test_a_remote_of_both_eras_is_what_it_is_to_everybody_and_its_legacy_tools_besides() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        await known.put(REMOTE, listing("echo", era="modern", raw=b"[1]"), EVERYTHING)
        assert known.complete(REMOTE)
        await known.put(REMOTE, listing("echo", "push", raw=b"[2]"), "elicitation", main=False)
        found = known.get(REMOTE)
        assert found is not None
        assert (found.facts.era, found.tools) == ("modern", (Item("echo", b"[1]"), Item("push", b"[2]")))
        assert known.complete(REMOTE)
        await known.put(REMOTE, listing("echo"))  # it was replaced by an older one
        assert names(known) == ["echo"]


async def test_a_shared_process_asks_nobody_and_has_one_listing() -> None:
    async with SqliteStore(MEMORY) as store:
        known = Listings(store)
        await known.put(PROCESS, listing("a", "b"))
        assert known.complete(PROCESS)
        await known.put(PROCESS, listing("b"))
        assert (names(known, PROCESS), known.complete(PROCESS)) == (["b"], True)
        await known.put(SESSIONS, listing("b"), "roots", main=False)
        assert not known.complete(SESSIONS)


def test_the_most_capable_asker_comes_first() -> None:
    by = {("legacy", ""): listing("a", "b"), ("legacy", "elicitation,roots"): listing("c", "a")}
    assert [item.name for item in merged(by).tools] == ["c", "a", "b"]  # type: ignore[arg-type]
