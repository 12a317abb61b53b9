"""Conversations over HTTP: sessions, the calls inside them, and the table that keeps sessions.

``HttpSession`` and ``HttpCall`` are what the relay sees of a client (``wire.session.Session`` and ``Request``); they
are made by ``wire.http_front`` and ``wire.http_legacy``. They turn what is said to the client into Server-Sent Events
and find the stream for it; they never parse a request and never decide who may do what.

Source: MCP 2025-11-25 "Streamable HTTP", "Session Management"; MCP 2026-07-28 "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager

from mooring.errors import MooringError
from mooring.nouns import Era, Principal
from mooring.wire import jsonrpc
from mooring.wire.eras import ModernMeta
from mooring.wire.http_messages import JSON, Reply, Request, Stream
from mooring.wire.http_replay import OF_CALL, Journal, Outlet, event
from mooring.wire.jsonrpc import Answer, failure
from mooring.wire.session import Handler, Session, failed

_log = logging.getLogger(__name__)

EVENTS = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
COMMENT = b": keep-alive\n\n"
ACCEPTED = Reply(202, b"", b"")
"""The answer to a message that wants none."""
PRIMED = ("2025-11-25",)
"""The revisions whose clients understand an event without data, with an id to come back to."""
_NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The client capability without which a request is not sent."""


def new_session_id() -> str:
    """32 random bytes as text of visible ASCII."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


class HttpSession:
    """Legacy: what lies between ``initialize`` and DELETE. Modern: all that one key does, since nothing else lasts."""

    __slots__ = (
        "_asked",
        "_last_id",
        "_left",
        "capabilities",
        "closed",
        "era",
        "id",
        "journal",
        "log_level",
        "on_close",
        "outlets",
        "principal",
        "running",
        "streams",
        "used_at",
        "version",
    )

    def __init__(
        self,
        id: str,
        principal: Principal,
        era: Era,
        version: str,
        capabilities: bytes,
        journal: Journal | None = None,
    ) -> None:
        """``journal`` keeps its streams, which can be resumed then (legacy)."""
        self.id = id
        self.principal = principal
        self.era: Era = era
        self.version = version
        self.capabilities = capabilities
        self.log_level: str | None = None
        self.on_close: list[Callable[[], None]] = []
        self.closed = False
        self.running: dict[Hashable, HttpCall] = {}
        self.journal = journal
        self.outlets: dict[bytes, Outlet] = {}
        """Streams that can be resumed, by id."""
        self.streams: dict[Outlet, asyncio.Future[None]] = {}
        """Open GET streams, the newest last; the future ends the stream."""
        self._left: Outlet | None = None
        self.used_at = 0.0
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._last_id = 0

    @property
    def in_use(self) -> bool:
        """Whether a call or a stream is open."""
        return bool(self.running or self.streams)

    def send(self, method: str, params: bytes | None) -> None:
        """A notification outside any request, to the newest GET stream, or kept for one that broke off; dropped when
        there never was one."""
        frame = jsonrpc.notification(method, params)
        if not self.emit(frame) and self._left is not None and not self.streams:
            self._left.send(frame)

    def emit(self, frame: bytes) -> bool:
        """Send ``frame`` on exactly one GET stream, the newest: older ones may be half dead. False without one."""
        outlet = next((each for each in reversed(self.streams) if each.open), None)
        return outlet is not None and outlet.send(frame)

    @asynccontextmanager
    async def listening(self, outlet: Outlet) -> AsyncGenerator[asyncio.Future[None]]:
        """``outlet`` is the newest GET stream within the block; the future says when that is over."""
        self.streams.pop(outlet, None)
        self.streams[outlet] = ending = outlet.carried()
        try:
            yield ending
        finally:
            if self.streams.get(outlet) is ending:
                del self.streams[outlet]
                outlet.left_at = asyncio.get_running_loop().time()
                self._left = outlet

    async def ask(self, method: str, params: bytes) -> Answer:
        """Ask the client over a GET stream. No time limit of its own; answers an error when nobody listens."""
        return await self.ask_through(self.emit, method, params)

    async def ask_through(self, emit: Callable[[bytes], bool], method: str, params: bytes) -> Answer:
        """Ask over ``emit`` and wait for the client to POST its answer. Cancelling it tells the client."""
        if self.era == "modern":
            return failure(jsonrpc.METHOD_NOT_FOUND, f"{method}: servers send no requests in this protocol version")
        needed = _NEEDS.get(method)
        if needed is not None and needed not in jsonrpc.members(self.capabilities):
            return failure(jsonrpc.METHOD_NOT_FOUND, f"{method}: the client did not declare {needed}")
        self._last_id = number = self._last_id + 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            if not emit(jsonrpc.request(b"%d" % number, method, params)):
                return failure(jsonrpc.INTERNAL_ERROR, f"{method}: the client is not listening")
            return await answer
        except asyncio.CancelledError:
            emit(jsonrpc.notification("notifications/cancelled", b'{"requestId":%d}' % number))
            raise
        finally:
            del self._asked[number]

    def answered(self, number: object, answer: Answer) -> None:
        """The client's answer to ``ask``; ignored when nobody waits for it any more."""
        waiting = self._asked.get(jsonrpc.own_number(number))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def silence(self) -> None:
        """End its streams, and running calls that have no end of their own."""
        for call in tuple(self.running.values()):
            if call.method == "subscriptions/listen":
                call.cancel()
        for outlet in self.streams:
            outlet.leave()

    def close(self) -> None:
        """End it: streams end, open questions fail, ``on_close`` runs. Running calls go on to their own end; those that
        have none are cancelled."""
        self.silence()
        for outlet in tuple(self.outlets.values()):
            if self.journal is not None:
                self.journal.forget(outlet)
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_result(failure(jsonrpc.INTERNAL_ERROR, "the session is over"))
        self.closed = True
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback()


class HttpCall:
    """One client request. Its answer becomes an event stream as soon as something else is said first."""

    __slots__ = (
        "_headers",
        "_http",
        "_session",
        "_slow",
        "cancelled",
        "era",
        "meta",
        "method",
        "params",
        "raw_id",
        "session",
        "task",
        "version",
    )

    def __init__(
        self, http: Request, session: HttpSession, raw_id: bytes, method: str, params: bytes, headers: bytes = EVENTS
    ) -> None:
        """``headers``: the header lines of the stream, should there be one."""
        self._http = http
        self._session = session
        self._headers = headers
        self.session: Session = session
        self.raw_id = raw_id
        self.method = method
        self.params = params
        self.era: Era = session.era
        self.version = session.version
        self.meta: ModernMeta | None = None
        """What a modern request said about its client, already parsed."""
        self.task: asyncio.Task[object] | None = None
        """The task of its own that it has in a batch; else the one of the HTTP request."""
        self.cancelled = False
        self._slow = False

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Of the HTTP request."""
        return self._http.headers

    def heard(self, method: str, params: bytes) -> None:
        """Send a notification that belongs to this call; lost when the client is gone."""
        self.emit(jsonrpc.notification(method, params))

    async def ask(self, method: str, params: bytes) -> Answer:
        """Ask the caller, on this call's stream, or on a GET stream when its connection broke. Legacy only."""
        return await self._session.ask_through(self._emit_somewhere, method, params)

    def emit(self, frame: bytes) -> bool:
        """Send ``frame`` on this call's stream, which begins with it if need be. False when the client is gone."""
        journal = self._session.journal
        if journal is not None:
            return self._outlet(journal).send(frame)
        stream = self._http.stream or self._http.begin(self._headers, COMMENT)
        return stream.send(event(frame))

    def look(self) -> None:
        """Called now and then: a call that was running at the last look becomes a stream, so that nobody on the way
        takes its silence for death; one that can be resumed, where the version has that."""
        journal = self._session.journal
        if self._slow and journal is None and self._http.stream is None:
            self._http.begin(self._headers, COMMENT)
        elif self._slow and journal is not None and self._http.outlet is None:
            outlet = self._outlet(journal)
            if self.version in PRIMED:
                outlet.prime()
        self._slow = True

    def _outlet(self, journal: Journal) -> Outlet:
        outlet = self._http.outlet
        if outlet is None:
            stream = self._http.begin(self._headers, COMMENT)
            outlet = self._http.outlet = Outlet(journal, self._session.outlets, stream, OF_CALL)
        return outlet

    def _emit_somewhere(self, frame: bytes) -> bool:
        """On one stream only: what went out on a GET stream must not be sent again when this call's is resumed."""
        journal = self._session.journal
        if journal is None or self._outlet(journal).open:
            return self.emit(frame)
        return self._session.emit(frame)

    def cancel(self) -> None:
        """The client wants no answer any more."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()
        else:
            self._http.cancel()

    async def run(self, handler: Handler, key: Hashable) -> Answer | None:
        """Hand it to the relay, running under ``key`` in its session; every failure becomes an error answer. None: the
        client cancelled it."""
        running = self._session.running
        running[key] = self
        try:
            return await handler.handle(self)
        except MooringError as error:
            return failed(error)
        except jsonrpc.BadFrame as error:
            return failure(error.code, str(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.cancelled or task is None:
                raise
            task.uncancel()
            return None
        except Exception:
            _log.exception("%s failed", self.method)
            return failure(jsonrpc.INTERNAL_ERROR, "internal error; see the log")
        finally:
            del running[key]

    def conclude(self, answer: Answer | None, status: int = 200, headers: bytes = b"") -> Reply | Stream:
        """The end of the exchange: the answer as last event, or as JSON; nothing for a call that was cancelled."""
        stream = self._http.stream
        if answer is None:
            if self._http.outlet is not None:
                self._http.outlet.abandon(asyncio.get_running_loop().time())
            return stream or ACCEPTED
        frame = jsonrpc.response(self.raw_id, answer)
        if stream is None:
            return Reply(status, frame, JSON + headers)
        if self._http.outlet is None:
            stream.send(event(frame))
        else:
            self._http.outlet.finish(frame, asyncio.get_running_loop().time())
        return stream


class Sessions:
    """Sessions by id, the longest unused first. Those idle too long are ended; so is the oldest idle one when there
    are too many."""

    def __init__(self, idle: float, limit: int) -> None:
        """``idle`` in seconds without a request, a running call or an open stream."""
        self.idle = idle
        self.limit = limit
        self._by_id: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def running(self) -> Iterator[HttpCall]:
        """All calls under way."""
        return (call for session in self._by_id.values() for call in tuple(session.running.values()))

    def get(self, id: str, principal: Principal, now: float) -> HttpSession | None:
        """The session, if it belongs to the very key that asks, by the way it came; it counts as used now."""
        session = self._by_id.get(id)
        if session is None or (session.principal is not principal and _who(session.principal) != _who(principal)):
            return None
        session.principal = principal
        self._touch(session, now)
        return session

    def add(self, session: HttpSession, now: float) -> bool:
        """Keep a new session, in place of one with the same id. False when there are too many, all in use."""
        former = self._by_id.get(session.id)
        if former is not None:
            self.end(former)
        if len(self._by_id) >= self.limit:
            oldest = next((each for each in self._by_id.values() if not each.in_use), None)
            if oldest is None:
                return False
            self.end(oldest)
        self._touch(session, now)
        return True

    def end(self, session: HttpSession) -> None:
        """Forget and close one; nothing happens when it is over already."""
        if self._by_id.pop(session.id, None) is not None:
            session.close()

    def end_where(self, predicate: Callable[[HttpSession], bool]) -> int:
        """End all that ``predicate`` names; returns how many."""
        chosen = [session for session in self._by_id.values() if predicate(session)]
        for session in chosen:
            self.end(session)
        return len(chosen)

    def silence_where(self, predicate: Callable[[HttpSession], bool]) -> None:
        """End the streams of all that ``predicate`` names."""
        for session in self._by_id.values():
            if predicate(session):
                session.silence()

    def sweep(self, now: float) -> None:
        """End what was idle too long; looks no further than the first that was not."""
        for session in tuple(self._by_id.values()):
            if now - session.used_at < self.idle:
                return
            if session.in_use:
                self._touch(session, now)
            else:
                self.end(session)

    def _touch(self, session: HttpSession, now: float) -> None:
        session.used_at = now
        self._by_id.pop(session.id, None)
        self._by_id[session.id] = session


def _who(principal: Principal) -> tuple[str, str, bool, str | None]:
    """A key, and the way by which it came."""
    return principal.key_id, principal.workspace, principal.bare, principal.variant
