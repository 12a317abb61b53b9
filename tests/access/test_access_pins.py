"""Pins: what is seen first holds; everything else waits for approval and survives a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.access.pins import Pins
from mooring.nouns import Item
from mooring.observe.events import Event, Events
from mooring.store.sqlite import MEMORY, SqliteStore


def tool(name: str, **parts: Any) -> Item:
    return Item(name, json.dumps({"name": name, **parts}).encode())


class Desk:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.reported: list[Event] = []
        self.pins = Pins(store, Events((self.reported.append,)))

    async def seen(self, *tools: Item, variant: str = "v") -> bool:
        return await self.pins.seen(variant, "server", tools)

    def reloaded(self) -> Pins:
        pins = Pins(self.store, Events())
        pins.load()
        return pins

    async def states(self) -> dict[str, str]:
        return {row.tool: row.state for row in await self.pins.rows({"v": "server"})}


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with SqliteStore(MEMORY) as store:
        yield Desk(store)


async def test_what_is_seen_first_is_pinned_in_silence(desk: Desk) -> None:
    assert not await desk.seen(tool("a"), tool("b"))
    assert not await desk.seen(tool("b"), tool("a"))
    assert not await desk.seen(tool("a"))
    assert await desk.states() == {"a": "pinned", "b": "pinned"}
    assert (desk.reported, desk.pins.waiting()) == ([], {})


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"description": "y"}, "changed: description"),
        ({"description": "x", "inputSchema": {"type": "object"}}, "changed: inputSchema"),
        ({"description": "x", "outputSchema": {}, "annotations": {}}, "changed: outputSchema, annotations"),
    ],
)
async def test_a_change_is_reported_once_with_its_difference(desk: Desk, parts: dict[str, Any], why: str) -> None:
    await desk.seen(tool("a", description="x"))
    assert await desk.seen(tool("a", **parts))
    assert not await desk.seen(tool("a", **parts))
    (event,) = desk.reported
    assert (event.name, event.server, event.data["tool"], event.data["what"]) == ("pin.changed", "server", "a", why)
    assert event.data["diff"].startswith("--- pinned")
    assert desk.pins.waiting() == {"v": {"a": why}} == desk.reloaded().waiting()


async def test_new_and_renamed_tools_wait_as_well(desk: Desk) -> None:
    await desk.seen(tool("a", description="x"), tool("b"))
    assert await desk.seen(tool("c", description="x"), tool("b"), tool("d", description="other"))
    assert desk.pins.waiting() == {"v": {"c": "it was called a", "d": "it is new"}}
    assert await desk.states() == {"a": "pinned", "b": "pinned", "c": "new", "d": "new"}
    assert await desk.seen(tool("d", description="still another"))
    assert desk.pins.waiting()["v"]["d"] == "it is new"


async def test_what_is_again_as_it_was_waits_no_more(desk: Desk) -> None:
    await desk.seen(tool("a"))
    await desk.seen(tool("a", title="x"))
    assert await desk.seen(tool("a"))
    assert desk.pins.waiting() == {} == desk.reloaded().waiting()
    assert desk.reported[-1].data["what"] == "it is as it was pinned again"


async def test_a_variant_without_tools_was_seen_too(desk: Desk) -> None:
    await desk.seen()
    assert await desk.seen(tool("a"))
    assert desk.pins.waiting() == {"v": {"a": "it is new"}}


async def test_variants_do_not_mind_each_other(desk: Desk) -> None:
    await desk.seen(tool("a"))
    assert not await desk.seen(tool("a", title="x"), variant="w")
    assert desk.pins.waiting() == {}


async def test_an_approval_pins_what_is_now(desk: Desk) -> None:
    await desk.seen(tool("a"), tool("b"))
    await desk.seen(tool("a", title="x"), tool("b", title="y"), tool("c"))
    shown = {row.tool: row.fingerprint for row in await desk.pins.rows({"v": "server"})}
    approved = await desk.pins.approve({"v": "server"}, [shown["a"]])
    assert [(row.tool, row.state) for row in approved] == [("a", "changed")]
    assert '+  "title": "x"' in approved[0].diff
    assert set(desk.pins.waiting()["v"]) == {"b", "c"} == set(desk.reloaded().waiting()["v"])
    assert {row.tool for row in await desk.pins.approve({"v": "server"}, [*shown.values()])} == {"b", "c"}
    assert await desk.states() == {"a": "pinned", "b": "pinned", "c": "pinned"}
    assert not await desk.seen(tool("a", title="x"), tool("b", title="y"), tool("c"))
    assert await desk.seen(tool("a"))


async def test_what_changed_again_since_somebody_looked_is_not_approved(desk: Desk) -> None:
    await desk.seen(tool("a"), tool("b"))
    await desk.seen(tool("a", title="x"), tool("b", title="y"))
    shown = [row.fingerprint for row in await desk.pins.rows({"v": "server"})]
    await desk.seen(tool("a", title="evil"), tool("b", title="y"))
    assert [row.tool for row in await desk.pins.approve({"v": "server"}, shown)] == ["b"]
    assert set(desk.pins.waiting()["v"]) == {"a"} == set(desk.reloaded().waiting()["v"])
    assert await desk.pins.approve({"v": "server"}, []) == []


async def test_simultaneous_listings_report_a_change_once(desk: Desk) -> None:
    await desk.seen(tool("a"))
    changed = tool("a", title="x")
    found = await asyncio.gather(*(desk.seen(changed) for _ in range(5)))
    assert found.count(True) == 1
    assert len(desk.reported) == 1
