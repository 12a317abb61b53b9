"""The events of Mooring and the bus that carries them to sinks. Pure: no clock, no I/O; the emitter gives the time.

Names: ``instance.{starting,ready,stopped,crashed,backoff}``, ``call.finished``, ``list.changed``,
``session.{opened,closed}``, ``config.{applied,rejected}``, ``key.*``, ``mount.{added,removed}``,
``approval.{asked,given,revoked}``, ``pin.{changed,approved}``,
``policy.denied``, ``dialogue.{asked,answered,expired}``, ``credentials.sent`` (which keys, to whom), ``egress.denied``,
``limits.ignored``, ``export.{failed,recovered}``, ``identity.{failed,recovered}`` (the keys of an issuer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened. ``ts`` epoch seconds. Never holds a secret value. ``instance``: ``InstanceKey.id``, or
    the id of the variant where it is about nothing that runs."""

    name: str
    ts: float
    workspace: str = ""
    server: str = ""
    instance: str = ""
    trace: str = ""
    data: dict[str, Any] = {}


Sink = Callable[[Event], None]


class Events:
    """Hands each event to every sink, in the emitter's own task; sinks must not block and must not raise."""

    def __init__(self, sinks: tuple[Sink, ...] = ()) -> None:
        self.sinks = sinks

    def emit(self, event: Event) -> None:
        """Give ``event`` to all sinks."""
        for sink in self.sinks:
            sink(event)
