"""Event streams that outlive their connections: what was sent on one is kept for a while, so that a legacy client whose
connection broke can have the rest.

``wire.http_session`` sends through an ``Outlet``; ``wire.http_legacy`` resumes one for a GET that names the last event
it saw. An event id holds 96 random bits and works only within the session whose stream it names. What is kept has a
bound in bytes, over all sessions, and in time. Nothing here parses a message or decides who may listen.

Source: MCP 2025-11-25 "Resumability and Redelivery"; SEP-1699 for the priming event and ``retry``.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

from mooring.wire.http_messages import Stream

BUDGET = 32 << 20
"""Bytes kept for all streams of all sessions; beyond it the longest untouched stream loses its oldest events."""
RETENTION = 300.0
"""Seconds that a stream nobody reads can still be asked for."""
RETRY = 1000
"""Milliseconds after which a client shall come back to a stream that broke off."""
OF_CALL, OUTSIDE = b"c", b"s"
"""How event ids begin: on the stream that carries the answer to a request, on one that says what happens else."""
_OVERHEAD = 100
"""Bytes that an event costs besides its text, and a stream besides its events; roughly."""


def event(frame: bytes) -> bytes:
    """A JSON-RPC frame as one event. Line breaks in it can only stand between tokens, where a space is as good."""
    if b"\n" in frame or b"\r" in frame:
        frame = b" ".join(frame.splitlines())
    return b"event: message\ndata: " + frame + b"\n\n"


class Outlet:
    """One stream of events, over as many connections as it takes."""

    __slots__ = ("_carried", "_count", "_journal", "_kept", "complete", "id", "left_at", "room", "size", "stream")

    def __init__(self, journal: Journal, room: dict[bytes, Outlet], stream: Stream, kind: bytes) -> None:
        """``room``: the streams of the session, where it finds its place. ``kind``: OF_CALL or OUTSIDE."""
        self.id = kind + os.urandom(12).hex().encode()
        self.room = room
        self.stream = stream
        """The connection that carries it now; it may be gone already."""
        self.complete = False
        """Whether its last event was sent: the answer to a request."""
        self.left_at: float | None = None
        """Since when nobody may come back for more than is there."""
        self.size = _OVERHEAD
        """What is kept costs so many bytes."""
        self._carried: asyncio.Future[None] | None = None
        self._journal = journal
        self._kept: deque[tuple[int, bytes]] = deque()
        self._count = 0
        room[self.id] = self
        journal.grown(self, self.size)

    @property
    def open(self) -> bool:
        """Whether somebody reads it."""
        return self.stream.open

    def prime(self) -> None:
        """Begin with an event without data, so that the client has an id to come back with."""
        self._put(b"data: \n\n")

    def send(self, frame: bytes) -> bool:
        """Send and keep a message; False when the client is gone (it may come back for it)."""
        return self._put(event(frame))

    def carried(self) -> asyncio.Future[None]:
        """Ends the GET request that carries it: resolved when another connection takes over, or nothing is left."""
        self.leave()
        self._carried = asyncio.get_running_loop().create_future()
        if self.complete:
            self.leave()
        return self._carried

    def resume(self, stream: Stream, after: int) -> None:
        """Go on over another connection with what came after event number ``after``."""
        self.stream = stream
        self.left_at = self.left_at if self.complete else None
        missed = b"".join(data for number, data in self._kept if number > after)
        if missed:
            stream.send(missed)

    def finish(self, frame: bytes, now: float) -> None:
        """Send the last message."""
        self.send(frame)
        self.abandon(now)

    def abandon(self, now: float) -> None:
        """Nothing more will come."""
        self.complete = True
        self.left_at = now
        self.leave()

    def leave(self) -> None:
        """The GET request that carries it ends."""
        if self._carried is not None and not self._carried.done():
            self._carried.set_result(None)

    def drop(self) -> int:
        """Give up the oldest event, if there is one; returns what it cost."""
        if not self._kept:
            return 0
        cost = len(self._kept.popleft()[1]) + _OVERHEAD
        self.size -= cost
        return cost

    def _put(self, data: bytes) -> bool:
        head = b"id: %b-%d\n" % (self.id, self._count)
        if not self._count:
            head += b"retry: %d\n" % RETRY
        data = head + data
        if self.id in self.room:  # else it was forgotten
            self._kept.append((self._count, data))
            self.size += len(data) + _OVERHEAD
            self._journal.grown(self, len(data) + _OVERHEAD)
        self._count += 1
        return self.stream.send(data)


def found(event_id: bytes, room: dict[bytes, Outlet]) -> tuple[Outlet, int] | None:
    """The stream of a session that an event id names, and the event's number in it."""
    id, _, number = event_id.partition(b"-")
    outlet = room.get(id)
    return (outlet, int(number)) if outlet is not None and number.isdigit() and len(number) < 12 else None


class Journal:
    """What is kept of all streams, the longest untouched first."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.size = 0
        self._budget = budget
        self._outlets: dict[Outlet, None] = {}

    def grown(self, outlet: Outlet, size: int) -> None:
        """A stream keeps more: others may have to give something up."""
        self.size += size
        self._outlets.pop(outlet, None)
        self._outlets[outlet] = None
        if self.size > self._budget:
            self._shrink()

    def sweep(self, now: float) -> None:
        """Forget what nobody came back for."""
        for outlet in tuple(self._outlets):
            if outlet.left_at is not None and now - outlet.left_at > RETENTION:
                self.forget(outlet)

    def forget(self, outlet: Outlet) -> None:
        """A stream can no longer be resumed."""
        if outlet in self._outlets:
            del self._outlets[outlet]
            self.size -= outlet.size
        outlet.room.pop(outlet.id, None)
        outlet.leave()

    def _shrink(self) -> None:
        for outlet in tuple(self._outlets):
            while self.size > self._budget and (cost := outlet.drop()):
                self.size -= cost
            if self.size <= self._budget:
                return
            if outlet.left_at is not None:
                self.forget(outlet)
