"""Tool definitions pinned at first sight: what changes afterwards is reported, and withheld where configured.

A server is trusted with what it said when somebody chose it. What it says later may be an update, or an attack on the
models that read it. All tools of a variant are pinned when it is listed for the first time; from then on a tool whose
definition is another, and a tool that is new, waits for ``mooring pins approve``. Pins belong to the variant and
survive edits of its definition.

Filled by ``serve.app`` at every listing; ``relay.views`` asks for what is withheld, in memory. Written to the store
first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import msgspec

from mooring.nouns import Item, PinRow
from mooring.observe.events import Event, Events
from mooring.store.base import Store

DIFF_LIMIT = 2000
"""Characters of a diff in an event."""
SEEN = ""
"""The name under which a variant itself is kept: no tool is called so."""


class Pin(msgspec.Struct, frozen=True):
    """One tool of a variant, as the store has it. Definitions are canonical JSON."""

    tool: str
    definition: str | None
    """Approved; None for a tool that appeared later."""
    pending: str | None
    """What it is now, where that is not approved."""
    why: str = ""
    seen_at: float = 0.0


class Pins:
    """All pins; in memory is only what waits for approval."""

    def __init__(self, store: Store, events: Events, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._waiting: dict[str, dict[str, str]] = {}
        """Variant to tool to the reason."""
        self._last: dict[str, tuple[Item, ...]] = {}
        """What was compared last, by variant: most listings are the same again."""
        # Listings and approvals of one variant wait for each other.
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Read what waits; blocks, for boot. Raises StoreError."""
        for variant, tool, why in self._store.rows("pending_pins"):
            self._waiting.setdefault(variant, {})[tool] = why

    def waiting(self) -> Mapping[str, Mapping[str, str]]:
        """Variant to its tools that are not approved, each with the reason."""
        return self._waiting

    def forget_others(self, variants: Collection[str]) -> None:
        """Keep in memory what was compared of these."""
        self._last = {variant: tools for variant, tools in self._last.items() if variant in variants}

    async def known(self, variant: str) -> bool:
        """Whether a variant was pinned before. Raises StoreError."""
        return bool(await self._pins(variant))

    async def seen(self, variant: str, server: str, tools: tuple[Item, ...]) -> bool:
        """A variant was listed: pin what is seen for the first time, report what changed. Whether anything came to or
        went from what waits. Raises StoreError."""
        if self._last.get(variant) == tools and not self._changing.locked():  # else it would overtake an earlier one
            return False
        async with self._changing:
            changed = await self._compare(variant, server, tools)
            self._last[variant] = tools
            return changed

    async def _compare(self, variant: str, server: str, tools: tuple[Item, ...]) -> bool:
        from mooring.access import definitions

        known = {pin.tool: pin for pin in await self._pins(variant)}
        now = {item.name: definitions.canonical(item) for item in tools}
        if not known:
            fresh = [Pin(SEEN, "", None), *(Pin(tool, text, None) for tool, text in now.items())]
            await self._put(variant, fresh)
            return False
        gone = {pin.tool: pin.definition for pin in known.values() if pin.tool not in now and pin.definition}
        found = [_compared(tool, text, known.get(tool), gone) for tool, text in now.items()]
        changed = [pin for pin in found if pin != known.get(pin.tool)]
        if not changed:
            return False

        def reported() -> None:
            for pin in changed:
                self._report(variant, server, pin)

        await self._put(variant, changed, reported)
        return True

    async def rows(self, variants: Mapping[str, str]) -> list[PinRow]:
        """The pins of these variants (id to server), in this order."""
        return [
            _row(server, variant, pin)
            for variant, server in variants.items()
            for pin in await self._pins(variant)
            if pin.tool != SEEN
        ]

    async def approve(
        self,
        variants: Mapping[str, str],
        fingerprints: Collection[str],
        then: Callable[[str], None] = lambda _: None,
    ) -> list[PinRow]:
        """Pin those of these variants' tools whose definition, with one of these fingerprints, waits for it; the rows
        as they were before. What changed again since somebody looked goes on waiting. ``then`` is told of each variant
        of which something was approved in the step in which it holds, also when the caller was cancelled meanwhile.
        Raises StoreError."""
        from mooring.access import definitions

        async with self._changing:
            approved: list[PinRow] = []
            for variant, server in variants.items():
                waiting = [pin for pin in await self._pins(variant) if pin.pending is not None]
                agreed = [pin for pin in waiting if definitions.fingerprint(pin.pending or "") in fingerprints]
                told = partial(self._approved, variant, server, agreed, then)
                await self._put(variant, [Pin(pin.tool, pin.pending, None) for pin in agreed], told)
                approved += [_row(server, variant, pin) for pin in agreed]
            return approved

    async def _pins(self, variant: str) -> list[Pin]:
        return [Pin(*row) for row in await self._store.read("pins", variant=variant)]

    def _approved(self, variant: str, server: str, pins: list[Pin], then: Callable[[str], None]) -> None:
        for pin in pins:
            self._events.emit(Event("pin.approved", self._clock(), "", server, variant, data={"tool": pin.tool}))
        then(variant)

    async def _put(self, variant: str, pins: list[Pin], then: Callable[[], None] = lambda: None) -> None:
        if not pins:
            return

        def kept() -> None:
            self._remember(variant, pins)
            then()

        rows = msgspec.json.encode([(pin.tool, pin.definition, pin.pending, pin.why) for pin in pins]).decode()
        await self._store.run("put_pins", kept, variant=variant, rows=rows, now=self._clock())

    def _remember(self, variant: str, pins: list[Pin]) -> None:
        waiting = self._waiting.setdefault(variant, {})
        for pin in pins:
            if pin.pending is None:
                waiting.pop(pin.tool, None)
            else:
                waiting[pin.tool] = pin.why
        if not waiting:
            del self._waiting[variant]

    def _report(self, variant: str, server: str, pin: Pin) -> None:
        if pin.pending is None:
            data = {"tool": pin.tool, "what": "it is as it was pinned again"}
        else:
            from mooring.access import definitions

            diff = definitions.difference(pin.definition, pin.pending)
            data = {"tool": pin.tool, "what": pin.why, "diff": diff[:DIFF_LIMIT]}
        self._events.emit(Event("pin.changed", self._clock(), "", server, variant, data=data))


def _compared(tool: str, now: str, known: Pin | None, gone: Mapping[str, str]) -> Pin:
    """The pin of a tool that is listed as ``now``: the known one when nothing is new about it."""
    from mooring.access import definitions

    if known is None:
        former = definitions.former_name(now, gone)
        return Pin(tool, None, now, f"it was called {former}" if former else "it is new")
    if now == known.definition:
        return known if known.pending is None else Pin(tool, now, None)
    if now == known.pending:
        return known
    if known.definition is None:
        return Pin(tool, None, now, known.why)
    return Pin(tool, known.definition, now, f"changed: {', '.join(definitions.changed_parts(known.definition, now))}")


def _row(server: str, variant: str, pin: Pin) -> PinRow:
    from mooring.access import definitions

    shown = pin.definition if pin.pending is None else pin.pending
    return PinRow(
        server=server,
        variant=variant,
        tool=pin.tool,
        state="pinned" if pin.pending is None else "new" if pin.definition is None else "changed",
        fingerprint=definitions.fingerprint(shown or ""),
        since=pin.seen_at,
        why=pin.why,
        diff="" if pin.pending is None else definitions.difference(pin.definition, pin.pending),
    )
