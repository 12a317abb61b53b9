"""The stored listings: what every server offered when it was last asked, so that a sleeping server is still listed.

Kept by (variant, spec digest) and by who asked: in which era, and what that client can be asked for, since servers may
offer more to those. What all of them got together is the listing. Written to the store first, then to memory. Reads
never touch the store after ``load``. Used by ``relay.views``; filled from the pool's ``listed`` callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from mooring.config.plan import Variant
from mooring.config.plan_servers import Plugin
from mooring.nouns import Era, Item, Listing
from mooring.relay.bridge import EVERYTHING, may_ask
from mooring.store.base import Row, Store

Kind = str
"""``tools`` | ``prompts`` | ``resources``: the part of a listing that a ``list_changed`` speaks of."""
Asker = tuple[Era, str]
"""The era of a conversation, and what its client can be asked for (``bridge.asks``)."""
Place = tuple[str, str]
"""Variant id and spec digest."""


class _Known(msgspec.Struct):
    """What is known of one definition."""

    by: dict[Asker, Listing]
    merged: Listing
    doubted: frozenset[Asker] = frozenset()
    """Taken before another asker was offered something else than before."""


class Listings:
    """All known listings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # What is kept of one is joined with what was known before: they wait for each other.
        self._changing = asyncio.Lock()
        self._known: dict[Place, _Known] = {}
        self._latest: dict[str, Place] = {}
        """By variant id: the definition that was listed last."""

    def load(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of these variants; blocks, for boot only."""
        self._keep(self._store.rows("listings", wanted=_wanted(variants)))

    async def fetch(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of those among these variants that are not in memory."""
        unknown = [variant for variant in variants if self.get(variant) is None]
        if unknown:
            self._keep(await self._store.read("listings", wanted=_wanted(unknown)))

    def forget_others(self, variants: Iterable[Variant]) -> None:
        """Keep in memory what is known of these, and of the definitions that stand in for them."""
        places = {variant.id: _place(variant) for variant in variants}
        self._latest = {id: place for id, place in self._latest.items() if id in places}
        kept = {*places.values(), *self._latest.values()}
        self._known = {place: known for place, known in self._known.items() if place in kept}

    def _keep(self, rows: Iterable[Row]) -> None:
        decode = msgspec.msgpack.Decoder(Listing).decode
        found: dict[Place, dict[Asker, Listing]] = {}
        for variant, digest, era, asks, _identity, blob, _taken_at in sorted(rows, key=lambda row: row[-1]):
            found.setdefault((variant, digest), {})[era, asks] = decode(blob)
            self._latest[variant] = variant, digest
        self._known |= {place: _Known(by, merged(by)) for place, by in found.items()}

    def get(self, variant: Variant) -> Listing | None:
        """The listing of exactly this definition of the variant."""
        known = self._known.get(_place(variant))
        return known and known.merged

    def taken(self, variant: Variant, asker: Asker) -> Listing | None:
        """What this asker got last time."""
        known = self._known.get(_place(variant))
        return known and known.by.get(asker)

    def complete(self, variant: Variant) -> bool:
        """Whether the listing is that of today and names what is only for clients that can be asked, if there are any
        that the server could ask."""
        known = self._known.get(_place(variant))
        if known is None:
            return False
        asker = known.merged.facts.era, EVERYTHING
        return not may_ask(variant) or (asker in known.by and asker not in known.doubted)

    def of(self, variants: Mapping[str, Variant]) -> dict[str, Listing]:
        """The known listings by variant id. Until a changed definition was listed for the first time, what the variant
        offered before stands in: an edit does not take a server's tools away for a moment. Those of a plugin that is
        not there go with it."""
        there = {id: variant for id, variant in variants.items() if not isinstance(variant.launch, Plugin)}
        places = ((id, _place(variant), self._latest.get(id)) for id, variant in there.items())
        found = ((id, self._known.get(place) or (latest and self._known.get(latest))) for id, place, latest in places)
        return {id: known.merged for id, known in found if known}

    def with_(self, variant: Variant, listing: Listing, asks: str, main: bool) -> Listing:
        """What the listing would be with this fresh one; see ``put``."""
        return self._joined(variant, listing, asks, main).merged

    async def put(
        self,
        variant: Variant,
        listing: Listing,
        asks: str = "",
        main: bool = True,
        then: Callable[[frozenset[Kind]], None] = lambda _: None,
    ) -> frozenset[Kind]:
        """Keep a fresh listing of an asker; answers which kinds of the whole differ from before. ``main``: it speaks
        with the server as everybody does, not as one caller or as those of one era. ``then`` is told the same in the
        step in which it is known, also when the caller was cancelled meanwhile."""
        async with self._changing:
            return await self._put(variant, listing, asks, main, then)

    async def _put(
        self, variant: Variant, listing: Listing, asks: str, main: bool, then: Callable[[frozenset[Kind]], None]
    ) -> frozenset[Kind]:
        place = _place(variant)
        before = self._known.get(place)
        joined = self._joined(variant, listing, asks, main)
        whole = before.merged if before else self._stand_in(variant)
        kinds = changed_kinds(whole, joined.merged)

        def known() -> None:
            self._known[place], self._latest[variant.id] = joined, place
            then(kinds)

        for era, other in (before.by if before else {}).keys() - joined.by.keys():
            await self._store.run("drop_listing", variant=place[0], digest=place[1], era=era, capabilities=other)
        old = self.taken(variant, (listing.facts.era, asks))
        if old is None or changed_kinds(old, listing) or (old.facts, old.caching) != (listing.facts, listing.caching):
            await self._store.run(
                "put_listing",
                known,
                variant=variant.id,
                digest=variant.digest,
                era=listing.facts.era,
                capabilities=asks,
                identity="",
                listing=msgspec.msgpack.encode(listing),
                taken_at=listing.taken_at,
            )
        else:
            known()  # as fresh as it is
        return kinds

    def _stand_in(self, variant: Variant) -> Listing | None:
        latest = self._known.get(self._latest.get(variant.id, ("", "")))
        return latest and latest.merged

    def _joined(self, variant: Variant, listing: Listing, asks: str, main: bool) -> _Known:
        era = listing.facts.era
        known = self._known.get(_place(variant))
        by: dict[Asker, Listing] = dict(known.by) if known else {}
        doubted: set[Asker] = set(known.doubted) if known else set()
        before = by.get((era, asks))
        if before is not None and changed_kinds(before, listing):
            doubted |= by.keys()
        if known is not None and main and known.merged.facts.era != era:
            doubted, by = set(), {}  # it speaks another era now than when it was listed
        doubted.discard((era, asks))
        if asks == EVERYTHING or not may_ask(variant):
            by = {asker: each for asker, each in by.items() if asker not in doubted}
            doubted = set()
        by[era, asks] = listing
        return _Known(by, merged(by), frozenset(doubted))


def merged(by: Mapping[Asker, Listing]) -> Listing:
    """What several askers got, as one: what modern ones got counts before legacy ones, what those got that can be asked
    for more before the others; the others add what is only there. Pure."""
    order = sorted(by, key=lambda asker: (asker[0] == "modern", asker[1].count(",") + bool(asker[1])), reverse=True)
    first, *others = (by[asker] for asker in order)
    for other in others:
        first = msgspec.structs.replace(
            first,
            tools=_and(first.tools, other.tools),
            prompts=_and(first.prompts, other.prompts),
            resources=_and(first.resources, other.resources),
            templates=_and(first.templates, other.templates),
        )
    return first


def _and(items: tuple[Item, ...], others: tuple[Item, ...]) -> tuple[Item, ...]:
    names = {item.name for item in items}
    return (*items, *(other for other in others if other.name not in names))


def _place(variant: Variant) -> Place:
    return variant.id, variant.digest


def _wanted(variants: Iterable[Variant]) -> str:
    return msgspec.json.encode([(variant.id, variant.digest) for variant in variants]).decode()


def changed_kinds(before: Listing | None, after: Listing) -> frozenset[Kind]:
    """Which parts of two listings differ. Pure."""
    if before is None:
        before = Listing(after.facts)
    kinds: set[Kind] = set()
    if before.tools != after.tools:
        kinds.add("tools")
    if before.prompts != after.prompts:
        kinds.add("prompts")
    if before.resources != after.resources or before.templates != after.templates:
        kinds.add("resources")
    return frozenset(kinds)
