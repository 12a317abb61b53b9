"""What a server on HTTP says outside requests: the stream that carries it, opened again whenever it breaks.

Run by ``wire.http_upstream`` in a task of the conversation, which ends it. Legacy servers have a GET stream, modern
ones the response to ``subscriptions/listen``. Neither is owed: a server that offers none is left in peace.

Source: MCP 2025-11-25 "Listening for Messages from the Server"; MCP 2026-07-28 "Subscriptions".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mooring.errors import Crashed, MooringError
from mooring.wire import jsonrpc
from mooring.wire.connection import Connection, Listener
from mooring.wire.eras import to_modern_params
from mooring.wire.http_client import HttpClient
from mooring.wire.jsonrpc import METHOD_NOT_FOUND, Answer, text
from mooring.wire.sse import Events
from mooring.wire.upstream_dialogue import Dialogue
from mooring.wire.upstream_handshake import CLIENT_INFO
from mooring.wire.upstream_params import list_filter
from mooring.wire.upstream_refusal import passing, status_of

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds before a stream is opened again: doubling, and back to the first when it lasted longer than the longest."""


class Pauses:
    """The back-off between two streams."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE
        self._opened_at = 0.0
        self._clock = asyncio.get_running_loop().time

    def opened(self) -> None:
        """A stream begins."""
        self._opened_at = self._clock()

    async def wait(self, at_least: float = 0.0) -> None:
        """A stream ended: wait before the next one, ``at_least`` so many seconds."""
        if self._clock() - self._opened_at > LONGEST_PAUSE:
            self._next = FIRST_PAUSE
        pause, self._next = self._next, min(2 * self._next, LONGEST_PAUSE)
        await asyncio.sleep(max(pause, at_least))


async def follow(http: HttpClient, headers: Mapping[str, str], dialogue: Dialogue, missed: Callable[[], None]) -> bool:
    """The GET stream of a legacy session, until the server refuses it: True when that means that the session is gone,
    False when there is no such stream. ``missed`` is called when something may have been said while it was broken."""
    events, pauses, opened = Events(), Pauses(), False
    while True:
        cursor = {"Last-Event-ID": events.last_id} if events.last_id else {}
        pauses.opened()
        try:
            async with http.exchange("GET", {**headers, "Accept": "text/event-stream", **cursor}) as reply:
                if not reply.streams and not passing(reply.status):
                    return opened and reply.status in (400, 404)
                if reply.streams:
                    if opened and not cursor:
                        missed()
                    opened = True
                    async for event in reply.events(events):
                        dialogue.take(event.data, None)
        except MooringError:
            pass
        await pauses.wait(events.retry or 0.0)


async def subscribe(
    connection: Connection, capabilities: bytes, listener: Listener, missed: Callable[[], None]
) -> None:
    """The listen stream of a modern server for the lists that it tells changes of, until it refuses it for good or the
    conversation is over. ``missed``: see ``follow``."""
    facts = connection.facts
    wanted = list_filter(facts.capabilities)
    if not wanted:
        return
    params = to_modern_params(
        jsonrpc.build({"notifications": text(wanted)}),
        version=facts.version,
        capabilities=capabilities,
        client_info=CLIENT_INFO,
    )
    subscriber, pauses = _Subscriber(listener, missed), Pauses()
    while not connection.closed.done():
        pauses.opened()
        try:
            answer = await connection.request("subscriptions/listen", params, subscriber)
            if answer.error is not None:
                return
        except Crashed:
            pass
        except MooringError as error:
            if not passing(status_of(error)):
                return
        await pauses.wait()


class _Subscriber:
    """The ``Caller`` of a listen request."""

    def __init__(self, listener: Listener, missed: Callable[[], None]) -> None:
        self._listener = listener
        self._missed = missed
        self._heard_before = False
        self.headers: Mapping[str, str] = {}

    def heard(self, method: str, params: bytes) -> None:
        if method != "notifications/subscriptions/acknowledged":
            self._listener.announced(method, params)
        elif self._heard_before:
            self._missed()
        else:
            self._heard_before = True

    async def ask(self, method: str, params: bytes) -> Answer:
        return jsonrpc.failure(METHOD_NOT_FOUND, "nobody can be asked here")
