"""Which era each server turned out to speak, remembered over restarts so that its next start need not probe.

A verdict belongs to (variant, spec digest). Read by ``serve.upstream`` before a start, written after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from mooring.config.plan import Variant
from mooring.nouns import Era, Facts
from mooring.store.base import Row, Store


class Verdicts:
    """The known verdicts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], Era] = {}

    def load(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of these variants; blocks, for boot only."""
        self._keep(self._store.rows("eras", wanted=_wanted(variants)))

    async def fetch(self, variants: Iterable[Variant]) -> None:
        """Read back what is known of those among these variants that are not in memory."""
        unknown = [variant for variant in variants if self.get(variant) is None]
        if unknown:
            self._keep(await self._store.read("eras", wanted=_wanted(unknown)))

    def forget_others(self, variants: Iterable[Variant]) -> None:
        """Keep in memory what is known of these."""
        places = {(variant.id, variant.digest) for variant in variants}
        self._known = {place: era for place, era in self._known.items() if place in places}

    def get(self, variant: Variant) -> Era | None:
        """The era of exactly this definition, if it ever answered."""
        return self._known.get((variant.id, variant.digest))

    async def put(self, variant: Variant, facts: Facts) -> None:
        """A server answered: keep its era."""
        if self.get(variant) == facts.era:
            return

        def known() -> None:
            self._known[variant.id, variant.digest] = facts.era

        await self._store.run(
            "put_era",
            known,
            variant=variant.id,
            digest=variant.digest,
            era=facts.era,
            version=facts.version,
            seen_at=time.time(),
        )

    def _keep(self, rows: Iterable[Row]) -> None:
        for variant, digest, era, _version, _seen_at in rows:
            self._known[variant, digest] = era


def _wanted(variants: Iterable[Variant]) -> str:
    return msgspec.json.encode([(variant.id, variant.digest) for variant in variants]).decode()
