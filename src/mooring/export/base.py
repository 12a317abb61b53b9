"""The contract of exporters: they tell another program what Mooring offers. Pure.

Plugins bring them (``plugins.hooks.mooring_exporters``), ``serve.exports`` runs them.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from mooring.config.plan import Plan


class Offer(msgspec.Struct, frozen=True):
    """What there is to tell."""

    plan: Plan
    url: str
    """Where others reach Mooring, without path, such as ``http://127.0.0.1:7420``."""


class Exporter(Protocol):
    """Keeps one kind of other program in step."""

    name: str

    async def export(self, offer: Offer) -> float | None:
        """Make the other program agree with ``offer``. Called after boot, after each change of the plan, and again
        after as many seconds as it returned (None: not before a change). When it raises, it is called again, later each
        time. It is cancelled when the daemon ends, and must not keep it from ending."""
        ...
