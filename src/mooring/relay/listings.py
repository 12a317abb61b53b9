"""The stored listings: what every server offered when it was last asked, so that a sleeping server is still listed.

Kept by (variant, spec digest); written to the store first, then to memory. Reads never touch the store after ``load``.
Used by ``relay.views``; filled from the pool's ``listed`` callback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mooring.config.plan import Plugin, Variant
from mooring.nouns import Listing
from mooring.store.base import Row, Store

Kind = str
"""``tools`` | ``prompts`` | ``resources``: the part of a listing that a ``list_changed`` speaks of."""


class Listings:
    """All known listings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], Listing] = {}
        self._latest: dict[str, Listing] = {}
        """By variant id, whatever the definition."""

    def load(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of these variants; blocks, for boot only."""
        self._keep(self._store.rows("listings", wanted=_wanted(variants)))

    async def fetch(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of those among these variants that are not in memory."""
        unknown = [variant for variant in variants if self.get(variant) is None]
        if unknown:
            self._keep(await self._store.read("listings", wanted=_wanted(unknown)))

    def _keep(self, rows: Iterable[Row]) -> None:
        decode = msgspec.msgpack.Decoder(Listing).decode
        for variant, digest, _era, _capabilities, _identity, blob, _taken_at in sorted(rows, key=lambda row: row[-1]):
            self._known[variant, digest] = self._latest[variant] = decode(blob)

    def get(self, variant: Variant) -> Listing | None:
        """The listing of exactly this definition of the variant."""
        return self._known.get((variant.id, variant.digest))

    def of(self, variants: Mapping[str, Variant]) -> dict[str, Listing]:
        """The known listings by variant id. Until a changed definition was listed for the first time, what the variant
        offered before stands in: an edit does not take a server's tools away for a moment. Those of a plugin that is
        not there go with it."""
        there = {id: variant for id, variant in variants.items() if not isinstance(variant.launch, Plugin)}
        found = ((id, self.get(variant) or self._latest.get(id)) for id, variant in there.items())
        return {id: listing for id, listing in found if listing is not None}

    async def put(self, variant: Variant, listing: Listing) -> frozenset[Kind]:
        """Keep a fresh listing; answers which kinds differ from the one before."""
        before = self.get(variant)
        kinds = changed_kinds(before or self._latest.get(variant.id), listing)

        def known() -> None:
            self._known[variant.id, variant.digest] = self._latest[variant.id] = listing

        if before is None or kinds or (before.facts, before.caching) != (listing.facts, listing.caching):
            await self._store.run(
                "put_listing",
                known,
                variant=variant.id,
                digest=variant.digest,
                era=listing.facts.era,
                capabilities="",
                identity="",
                listing=msgspec.msgpack.encode(listing),
                taken_at=listing.taken_at,
            )
        else:
            known()  # as fresh as it is
        return kinds


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
