"""A conversation with a server over streamable HTTP, in either era: every request is an exchange of its own.

Opened by ``wire.remote_upstream``, used through ``wire.connection.Connection``. What a server says in the response to a
request reaches that request's caller (``wire.upstream_dialogue``). It never repeats a request, except one that the
server refused because it had forgotten the session.

``closed`` resolves when the server cannot be reached any more; one response that breaks off fails one request only.

Source: MCP 2026-07-28 and 2025-11-25 "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress

import msgspec

from mooring.errors import Crashed, MooringError, UpstreamProtocol
from mooring.nouns import Facts
from mooring.wire import jsonrpc, upstream_listening
from mooring.wire.connection import Caller, Listener
from mooring.wire.eras import HEADER_MISMATCH
from mooring.wire.http_client import HttpClient, Reply
from mooring.wire.jsonrpc import EMPTY, METHOD_NOT_FOUND, Answer, members, text
from mooring.wire.sse import Events
from mooring.wire.upstream_dialogue import Call, Dialogue, answer_in
from mooring.wire.upstream_handshake import Handshake
from mooring.wire.upstream_params import declared_lists, mirrored, own_token
from mooring.wire.upstream_refusal import code_of, forgotten, outdated, refusal, status_of, suggests_legacy

ASIDE = 5.0
"""Seconds for a message that nobody waits for: notifications, answers to questions."""
CLOSING = 1.0
"""Seconds for exchanges to unwind when the conversation is closed."""
GOODBYE = 2.0
"""Seconds for the server to take note that a session is over."""
DRAIN = 1.0
"""Seconds for a stream to end after its answer, so that its connection can be used again."""
RESUMES = 5
"""How often in a row a broken stream is tried again without success."""
PAUSE = 1.0
"""Seconds before a broken stream is resumed, where the server does not say."""
SHORTEST = 0.1
"""Seconds before that whatever the server says: one that says "at once" would be asked without a pause."""

_COMMON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_log = logging.getLogger(__name__)
_ids = itertools.count(1)
"""Of requests, over all conversations: to a server without sessions, two conversations with it are one client."""

Carry = Callable[[Call], Awaitable[Answer]]


class Session(msgspec.Struct, frozen=True, eq=False):
    """One session of the legacy era. ``id``: "" where the server keeps none."""

    id: str
    version: str

    @property
    def headers(self) -> dict[str, str]:
        """What every message in it carries."""
        own = {"Mcp-Session-Id": self.id} if self.id else {}
        return {"MCP-Protocol-Version": self.version, **own}


class _Forgotten(UpstreamProtocol):
    """The server does not know the session; the request was not carried out."""


class HttpConnection:
    """See ``wire.connection.Connection``. ``capabilities``: what to declare, raw JSON. ``timeout``: seconds to take a
    session up anew."""

    facts: Facts

    def __init__(self, name: str, http: HttpClient, listener: Listener, capabilities: bytes, timeout: float) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.refused_with = 0
        """HTTP status with which the server refused ``initialize``; 0 when it did not."""
        self._name = name
        self._http = http
        self._listener = listener
        self._capabilities = capabilities
        self._timeout = timeout
        self._dialogue = Dialogue(name, listener, self._send)
        self._tasks: set[asyncio.Task[None]] = set()
        self._modern = False
        self._granted = ""
        self._session: Session | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._standing: dict[bytes, Call] = {}

    # its beginning and its end

    def knock(self, method: str, params: bytes) -> asyncio.Future[Answer]:
        """Send a request of the handshake: that the server does not understand it is an answer too."""
        return self._begin(method, params, None, self._knocked).answer

    async def agree(self, facts: Facts) -> None:
        """The handshake is over; whatever of it still goes on no longer counts."""
        for call in tuple(self._dialogue.calls.values()):
            self._drop(call)
        self.facts = facts
        if facts.era == "legacy":
            self._dialogue.asks = True
            await self._begin_session()
        else:
            self._modern = True
            self._listen(upstream_listening.subscribe(self, self._capabilities, self._listener, self._announce))

    async def close(self) -> None:
        """End the conversation: what is under way fails, the server is told that the session is over. Bounded."""
        reachable = not self.closed.done()
        self.end("was stopped")
        for task in self._tasks:
            task.cancel()
        await self._dialogue.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING)
        if reachable and self._session is not None and self._session.id:
            with suppress(TimeoutError, MooringError):
                async with asyncio.timeout(GOODBYE), self._http.exchange("DELETE", self._session.headers) as reply:
                    await reply.body()

    def end(self, reason: str) -> None:
        """The server is gone: every request under way has failed. Only the first reason counts."""
        if self.closed.done():
            return
        self.closed.set_result(reason)
        for call in tuple(self._dialogue.calls.values()):
            what = f"{self._name} {reason} before it answered {call.method}"
            _fail(call, Crashed(what, server=self._name, phase="call", written=True))
            self._drop(call)

    # what others do with it

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """See ``wire.connection.Connection.request``; also raises UpstreamProtocol, Unavailable and Busy when the
        server answers with an HTTP status and no message."""
        if self.closed.done():
            what = f"{self._name} {self.closed.result()}; {method} was not sent"
            raise Crashed(what, server=self._name, phase="call", written=False)
        call = self._begin(method, params, caller, self._answered)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self._withdraw(call)
            raise

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification; lost silently if the server does not take it."""
        if not self.closed.done():
            self._start(self._send(jsonrpc.notification(method, params), method, params))

    def _withdraw(self, call: Call) -> None:
        """Nobody waits any more. A legacy server is told; to a modern one the closed stream says it."""
        self._drop(call)
        if self._session is not None:
            reason = {"requestId": call.id, "reason": "cancelled by the caller"}
            self.notify("notifications/cancelled", text(reason))

    # one request

    def _begin(self, method: str, params: bytes, caller: Caller | None, carry_out: Carry) -> Call:
        number = next(_ids)
        params, token = own_token(params, number)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call = Call(number, method, params, answer, caller, token)
        self._dialogue.calls[call.id] = call
        call.task = self._start(self._run(call, carry_out))
        return call

    async def _run(self, call: Call, carry_out: Carry) -> None:
        try:
            _settle(call, await carry_out(call))
        except MooringError as error:
            _fail(call, error)
            if carry_out == self._answered and not error.details.get("written", True):
                self.end(str(error).removeprefix(f"{self._name} "))
        except Exception as error:
            _log.exception("%s: %s failed", self._name, call.method)
            _fail(call, UpstreamProtocol(f"{self._name}: {call.method} failed: {error}", server=self._name))
        finally:
            self._dialogue.over(call)

    async def _knocked(self, call: Call) -> Answer:
        try:
            return await self._exchange(call, None)
        except MooringError as error:
            status = status_of(error)
            if not status or not suggests_legacy(status):
                raise
            if call.method == "initialize":
                self.refused_with = status
            return jsonrpc.failure(METHOD_NOT_FOUND, str(error))

    async def _answered(self, call: Call) -> Answer:
        """The answer, with a second try in a new session if the server has forgotten the first."""
        session = self._session
        try:
            answer = await self._exchange(call, session)
        except _Forgotten:
            await self._renew(session)
            answer = await self._exchange(call, self._session)
        self._remember(call, answer)
        if self._modern and call.method == "tools/call" and code_of(answer) == HEADER_MISMATCH:
            self._listener.announced("notifications/tools/list_changed", EMPTY)  # the tool wants other headers now
        return answer

    async def _exchange(self, call: Call, session: Session | None) -> Answer:
        """One request and its answer, over as many connections as it takes."""
        events = Events()
        frame = jsonrpc.request(b"%d" % call.id, call.method, call.params)
        headers = _headers(call.method, call.params, session)
        if self._modern and call.caller is not None:
            headers = {**headers, **call.caller.headers}
        try:
            async with self._http.exchange("POST", headers, frame) as reply:
                if call.method == "initialize" and reply.ok:
                    self._granted = reply.headers.get("mcp-session-id", "")
                if not reply.streams:
                    return self._plain(call, session, reply, await reply.body())
                if (answer := await self._streamed(call, reply, events)) is not None:
                    return answer
        except Crashed:
            if session is None or not events.last_id:
                raise
        if session is None or not events.last_id:
            raise self._broken(call)
        return await self._resumed(call, session, events)

    def _plain(self, call: Call, session: Session | None, reply: Reply, body: bytes) -> Answer:
        """The answer in a response that is no stream."""
        answer = answer_in(body, call.id)
        if session is not None and session.id and forgotten(reply.status, answer):
            raise _Forgotten(f"{self._name} forgets its session at once", server=self._name, phase="call")
        if self._modern and outdated(reply.status, answer):
            what = f"{self._name} does not speak {self.facts.version} any more (HTTP {reply.status})"
            raise Crashed(what, server=self._name, phase="call", written=False)
        if answer is None or (answer.error is None and not reply.ok):
            raise refusal(self._name, call.method, reply.status, reply.location)
        if call.method == "initialize" and not reply.ok:
            self.refused_with = reply.status
        return answer

    async def _streamed(self, call: Call, reply: Reply, events: Events) -> Answer | None:
        """What comes on the stream; None when it ends without the answer."""
        stream = reply.events(events)
        async for event in stream:
            answer = self._dialogue.take(event.data, call)
            if answer is not None:
                _settle(call, answer)
                with suppress(TimeoutError, MooringError):
                    async with asyncio.timeout(DRAIN):
                        async for _ in stream:
                            pass
                return answer
        return None

    async def _resumed(self, call: Call, session: Session, events: Events) -> Answer:
        """Go on with a stream that broke off, or that the server closed so as to be asked again later."""
        failures = 0
        while failures < RESUMES:
            await asyncio.sleep(PAUSE if events.retry is None else max(events.retry, SHORTEST))
            headers = {**session.headers, "Accept": "text/event-stream", "Last-Event-ID": events.last_id}
            try:
                async with self._http.exchange("GET", headers) as reply:
                    if not reply.streams:
                        break
                    if (answer := await self._streamed(call, reply, events)) is not None:
                        return answer
                    failures = 0
            except Crashed:
                failures += 1
        raise self._broken(call)

    def _broken(self, call: Call) -> Crashed:
        what = f"{self._name} broke its answer to {call.method} off"
        return Crashed(what, server=self._name, phase="call", written=True)

    # the session of the legacy era

    async def _begin_session(self) -> None:
        """The server accepted ``initialize``: let it know before anything else."""
        session = self._session = Session(self._granted, self.facts.version)
        await self._send(jsonrpc.notification("notifications/initialized"))
        self._listen(self._follow(session))

    async def _follow(self, session: Session) -> None:
        gone = await upstream_listening.follow(self._http, session.headers, self._dialogue, self._announce)
        if gone and session.id:
            with suppress(MooringError):
                await self._renew(session)

    async def _renew(self, lost: Session | None) -> None:
        """A new session in the place of one that the server forgot, with what stood in the old one; one for all who
        miss it, and a caller that gives up does not end it half-way. Raises Crashed when there is none to be had:
        nothing was carried out."""
        if self._renewal is None or self._renewal.done():
            if self._session is not lost:
                return
            self._renewal = self._start(self._renewed())
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._renewal)

    async def _renewed(self) -> None:
        handshake = Handshake(
            self._name, self.knock, capabilities=self._capabilities, patience=0, phase=lambda step: None
        )
        try:
            async with asyncio.timeout(self._timeout):
                self.facts = await handshake.run_legacy()
                await self._begin_session()
        except (TimeoutError, MooringError) as error:
            what = f"{self._name} forgot the session and gave no new one: {error}"
            raise Crashed(what, server=self._name, phase="call", written=False) from None
        for call in tuple(self._standing.values()):
            self._begin(call.method, call.params, None, self._answered)
        self._announce()

    def _remember(self, call: Call, answer: Answer) -> None:
        """Keep what has to be said again in a new session: subscriptions, the log level."""
        if self._session is None or answer.error is not None:
            return
        match call.method:
            case "resources/subscribe":
                self._standing[bytes(members(call.params).get("uri", EMPTY))] = call
            case "resources/unsubscribe":
                self._standing.pop(bytes(members(call.params).get("uri", EMPTY)), None)
            case "logging/setLevel":
                self._standing[b"level"] = call
            case _:
                pass

    # small parts

    def _announce(self) -> None:
        """Changes may have been missed: all lists count as changed."""
        for name in declared_lists(self.facts.capabilities):
            self._listener.announced(f"notifications/{name}/list_changed", EMPTY)

    async def _send(self, frame: bytes, method: str = "", params: bytes = EMPTY) -> None:
        """A message that gets no answer."""
        headers = _headers(method, params, self._session)
        try:
            async with asyncio.timeout(ASIDE), self._http.exchange("POST", headers, frame) as reply:
                if not reply.streams:
                    await reply.body()
        except (TimeoutError, MooringError) as error:
            _log.debug("%s did not take a message: %s", self._name, error)

    def _listen(self, work: Coroutine[None, None, None]) -> None:
        before, self._listening = self._listening, self._start(work)
        if before is not None:
            before.cancel()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _drop(self, call: Call) -> None:
        self._dialogue.over(call)
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()


def _headers(method: str, params: bytes, session: Session | None) -> dict[str, str]:
    if method == "initialize":
        return _COMMON
    return {**_COMMON, **(mirrored(method, params) if session is None else session.headers)}


def _settle(call: Call, answer: Answer) -> None:
    if not call.answer.done():
        call.answer.set_result(answer)


def _fail(call: Call, error: MooringError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)
        call.answer.exception()  # seen: the handshake does not await every answer
