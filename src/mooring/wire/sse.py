"""Server-sent events: bytes in, events out. Pure.

Used by the HTTP upstreams. Data stays bytes, whatever is in it; an event that is never finished is never seen.

Source: WHATWG HTML "Server-sent events", event stream interpretation.
"""

from __future__ import annotations

import msgspec

LIMIT = 64 * 1024 * 1024
"""Bytes of one event."""
_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True):
    """One event that carries data."""

    data: bytes
    kind: str = "message"


class TooLong(ValueError):
    """An event is longer than the limit."""


class Events:
    """The events of one stream, and what it said about coming back: ``last_id``, to be named when it is resumed, and
    ``retry``, the seconds to wait before that. Both survive ``reopened``."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.last_id = ""
        self.retry: float | None = None
        self._limit = limit
        self.reopened()

    def reopened(self) -> None:
        """The stream begins anew, on another connection."""
        self._rest: list[bytes] = []
        self._waiting = 0
        self._cr = False
        self._fresh = True
        self._clear()

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._kind = ""
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that ``chunk`` completes. Raises TooLong."""
        *ended, rest = self._normal(chunk).split(b"\n")
        events: list[Event] = []
        for piece in ended:
            line = b"".join((*self._rest, piece)) if self._rest else piece
            self._rest.clear()
            self._waiting = 0
            if self._fresh:
                line, self._fresh = line.removeprefix(_BOM), False
            if line:
                self._field(line)
            elif (event := self._finished()) is not None:
                events.append(event)
        if rest:
            self._rest.append(rest)
            self._waiting += len(rest)
            self._check()
        return events

    def _normal(self, chunk: bytes) -> bytes:
        """``chunk`` with every line end as a newline. A carriage return at its end ends the line at once, for nothing
        else may come for long; the other half of that line end is left out then."""
        if self._cr and chunk:
            chunk, self._cr = chunk.removeprefix(b"\n"), False
        if b"\r" not in chunk:
            return chunk
        self._cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._size += len(value) + 1  # the newline after it
                self._check()
            case b"event":
                self._kind = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 12:
                self.retry = int(value) / 1000
            case _:
                pass

    def _check(self) -> None:
        if self._size + self._waiting > self._limit:
            raise TooLong(f"an event is longer than {self._limit} bytes")

    def _finished(self) -> Event | None:
        if self._id is not None:
            self.last_id = self._id
        data, kind = b"\n".join(self._data), self._kind
        self._clear()
        return Event(data, kind or "message") if data else None
