"""What servers asked their network for and were refused: an event sink that remembers it for ``mooring ps``."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from mooring.nouns import InstanceRow
from mooring.observe.events import Event

KEPT = 20
"""Peers remembered of one variant."""


class Denials:
    """By variant, since its last start."""

    def __init__(self) -> None:
        self._peers: dict[str, dict[str, None]] = {}

    def __call__(self, event: Event) -> None:
        """Remember or forget, if it is an event that says so."""
        if event.name == "egress.denied":
            peers = self._peers.setdefault(event.instance, {})
            if len(peers) < KEPT:
                peers[event.data["peer"]] = None
        elif event.name == "instance.starting":
            self._peers.pop(event.data["variant"], None)

    def forget_others(self, variants: Collection[str]) -> None:
        """Keep what is known of these."""
        self._peers = {variant: peers for variant, peers in self._peers.items() if variant in variants}

    def marked(self, rows: Iterable[InstanceRow]) -> list[InstanceRow]:
        """``rows`` with what was refused."""
        return [
            msgspec.structs.replace(row, denied=tuple(self._peers[row.variant])) if row.variant in self._peers else row
            for row in rows
        ]
