"""What the conformance server sends over HTTP: one answer as JSON, or a stream of events that can be resumed.

Each stream of a legacy session has a number; its events have ids (``number-index``), and who names the last one it saw
gets the rest. Source: MCP 2025-11-25 "Resumability and Redelivery"; SEP-1699 for the pause.
"""

from __future__ import annotations

import asyncio
import json

from mooring.testing.conformance.headers import status_of
from mooring.testing.peer import JSON

RETRY = 200
"""Milliseconds after which a client shall come back to a stream that was paused."""
EVENTS = "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Not Allowed"}


def head(status: int, headers: str = "") -> bytes:
    """The head of a response; the connection ends with it."""
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\nConnection: close\r\n{headers}\r\n".encode()


def whole(status: int, body: JSON | None = None, headers: str = "") -> bytes:
    """A response that is no stream."""
    if body is None:
        return head(status, f"Content-Length: 0\r\n{headers}")
    data = json.dumps(body).encode()
    return head(status, f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}") + data


class Stream:
    """The answer to one request, or (with ``out`` replaced at will) all that a session hears outside of requests."""

    def __init__(self, out: asyncio.StreamWriter | None, number: int | None, headers: str = "") -> None:
        """``number``: within its session; None for a modern one, which cannot be resumed."""
        self.ended = asyncio.Event()
        self._out = out
        self._number = number
        self._headers = headers
        self._begun = False
        self._events: list[bytes] = []

    def say(self, message: JSON) -> None:
        """Send a message as an event."""
        self._event(json.dumps(message).encode())

    def pause(self) -> None:
        """Close the connection; the client shall come back for the rest. Nothing happens where it cannot."""
        if self._number is None or self._out is None:
            return
        self._event(b"", b"retry: %d\n" % RETRY)
        out, self._out = self._out, None
        out.close()

    def end(self, response: JSON) -> None:
        """The answer itself: a last event, or the whole of it."""
        if self._begun:
            self.say(response)
        elif self._out is not None:
            status = 200 if self._number is not None else status_of(response)
            self._out.write(whole(status, response, self._headers))
        self.ended.set()

    def resume(self, out: asyncio.StreamWriter, after: int) -> None:
        """Go on with what came after the event of that index, on another connection."""
        self._out = out
        self._begun = True
        out.write(head(200, EVENTS) + b"".join(self._events[after + 1 :]))

    def lost(self) -> None:
        """Its connection is gone."""
        self._out = None

    def _event(self, data: bytes, more: bytes = b"") -> None:
        if not self._begun:
            self._begun = True
            if self._out is not None:
                self._out.write(head(200, EVENTS + self._headers))
        id = b"" if self._number is None else b"id: %d-%d\n" % (self._number, len(self._events))
        event = id + more + b"data: " + data + b"\n\n"
        self._events.append(event)
        if self._out is not None:
            self._out.write(event)
