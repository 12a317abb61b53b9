"""The legacy era over HTTP: sessions from ``initialize`` to DELETE, POSTs in them, GET streams.

Part of ``wire.http_front``, which has checked Host, Origin and key before. A lost connection cancels nothing here:
``notifications/cancelled`` does.

Source: MCP 2025-11-25 "Transports"; 2025-03-26 for batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UNSET, Raw

from mooring.nouns import Principal
from mooring.wire import headers as rules
from mooring.wire import jsonrpc
from mooring.wire.eras import negotiate
from mooring.wire.http_envelope import cancelled_id, raw_id_of, read, rejection, take
from mooring.wire.http_messages import JSON, Reply, Request, Stream, problem
from mooring.wire.http_replay import OF_CALL, OUTSIDE, Journal, Outlet, found
from mooring.wire.http_session import (
    ACCEPTED,
    COMMENT,
    EVENTS,
    PRIMED,
    HttpCall,
    HttpSession,
    Sessions,
    new_session_id,
)
from mooring.wire.http_watch import Watch
from mooring.wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, Answer, BadFrame, Envelope, failure
from mooring.wire.session import Handler

MAX_BATCH = 100
"""Messages in one batch."""
BATCH_VERSION = "2025-03-26"
"""The only revision with JSON-RPC batches."""
_EXPIRED = "Last-Event-ID names no stream of this session that is still kept"
_DUPLICATE = failure(INVALID_REQUEST, "a request with this id is still running in this session")
_raws = msgspec.json.Decoder(list[Raw])


class LegacyFront:
    """Answers legacy requests of callers who are known already."""

    def __init__(self, handler: Handler, sessions: Sessions, now: Callable[[], float]) -> None:
        self._handler = handler
        self._sessions = sessions
        self._now = now
        self._journal = Journal()
        self._watch = Watch(sessions, self._journal.sweep)

    def answer(self, request: Request, principal: Principal) -> Awaitable[Reply | Stream]:
        """Answer any request to the endpoint."""
        method = request.method
        if method == b"POST":
            return self._post(request, principal)
        if method == b"GET":
            return self._listen(request, principal)
        return self._delete(request, principal)

    async def _post(self, request: Request, principal: Principal) -> Reply | Stream:
        if request.body.lstrip()[:1] == b"[":
            session = self._session(request, principal)
            return session if isinstance(session, Reply) else await self._batch(request, session)
        got = read(request)
        if isinstance(got, Reply):
            return got
        message, params = got
        if message.method == "initialize" and message.id is not UNSET:
            return await self._initialize(request, principal, raw_id_of(message), params)
        session = self._session(request, principal)
        if isinstance(session, Reply):
            return session
        if message.method is UNSET or message.id is UNSET:
            self._take(session, message, params)
            return ACCEPTED
        call = HttpCall(request, session, raw_id_of(message), message.method, params)
        if message.id in session.running:
            return call.conclude(_DUPLICATE)
        request.survives = True
        return call.conclude(await call.run(self._handler, message.id))

    def _session(self, request: Request, principal: Principal) -> HttpSession | Reply:
        id = request.headers.get(rules.SESSION)
        if id is None:
            return rejection(400, INVALID_REQUEST, "the Mcp-Session-Id header is missing: send initialize first")
        session = self._sessions.get(id.decode("latin-1"), principal, self._now())
        return session or rejection(404, INVALID_REQUEST, "no such session: send initialize again")

    async def _initialize(self, request: Request, principal: Principal, raw_id: bytes, params: bytes) -> Reply | Stream:
        session = self._new_session(principal, params)
        if isinstance(session, Answer):
            return Reply(200, jsonrpc.response(raw_id, session))
        header = b"Mcp-Session-Id: %b\r\n" % session.id.encode()
        call = HttpCall(request, session, raw_id, "initialize", params, EVENTS + header)
        answer = await call.run(self._handler, call)
        if answer is None or answer.result is None:
            return call.conclude(answer)
        if not self._sessions.add(session, self._now()):
            return problem(503, "too many sessions, and all of them are in use")
        self._handler.opened(session)
        self._watch.begin()
        return call.conclude(answer, headers=header)

    def _take(self, session: HttpSession, message: Envelope, params: bytes) -> None:
        """A message that wants no answer: a response to what was asked, a cancellation, or any other notification."""
        if message.method is UNSET:
            result, error = message.result, message.error
            answer = Answer(None if result is UNSET else bytes(result), None if error is UNSET else bytes(error))
            session.answered(message.id, answer)
        elif message.method == "notifications/cancelled":
            call = session.running.get(cancelled_id(params))
            if call is not None:
                call.cancel()
        else:
            self._handler.notified(session, message.method, params)

    async def _batch(self, request: Request, session: HttpSession) -> Reply | Stream:
        """An array of messages: its requests run side by side and are answered together."""
        if session.version != BATCH_VERSION:
            return rejection(400, INVALID_REQUEST, f"JSON-RPC batches exist only in protocol version {BATCH_VERSION}")
        try:
            messages = [take(bytes(raw)) for raw in _raws.decode(request.body)]
        except (BadFrame, msgspec.DecodeError, RecursionError) as error:
            return rejection(400, INVALID_REQUEST, f"a message of the batch is not valid: {error}")
        if not 0 < len(messages) <= MAX_BATCH:
            return rejection(400, INVALID_REQUEST, f"a batch holds 1 to {MAX_BATCH} messages")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one_of_batch(request, session, *message)) for message in messages]
        frames = [frame for frame in (task.result() for task in tasks) if frame is not None]
        if request.stream is not None and request.outlet is not None:
            for frame in frames:
                request.outlet.send(frame)
            request.outlet.abandon(self._now())
            return request.stream
        return Reply(200, b"[" + b",".join(frames) + b"]", JSON) if frames else ACCEPTED

    async def _one_of_batch(
        self, request: Request, session: HttpSession, message: Envelope, params: bytes
    ) -> bytes | None:
        if message.method is UNSET or message.id is UNSET:
            self._take(session, message, params)
            return None
        raw_id = raw_id_of(message)
        if message.method == "initialize":
            return jsonrpc.response(raw_id, failure(INVALID_REQUEST, "initialize cannot be part of a batch"))
        if message.id in session.running:
            return jsonrpc.response(raw_id, _DUPLICATE)
        request.survives = True
        call = HttpCall(request, session, raw_id, message.method, params)
        call.task = asyncio.current_task()
        answer = await call.run(self._handler, message.id)
        return None if answer is None else jsonrpc.response(raw_id, answer)

    async def _listen(self, request: Request, principal: Principal) -> Reply | Stream:
        """A GET stream: open until the client leaves or the session ends."""
        if rules.SESSION not in request.headers:
            return problem(405, "GET needs a session: POST initialize first", b"Allow: POST\r\n")
        session = self._session(request, principal)
        if isinstance(session, Reply):
            return session
        if not rules.accept_events(request.headers):
            return problem(406, "Accept must list text/event-stream")
        last = request.headers.get(b"last-event-id", b"")
        resumed = found(last, session.outlets)
        if last.startswith(OF_CALL):
            return await self._resume(request, *resumed) if resumed else rejection(400, INVALID_REQUEST, _EXPIRED)
        stream = request.begin(EVENTS, COMMENT)
        if resumed is not None:
            outlet = resumed[0]
            outlet.resume(stream, resumed[1])
        else:
            outlet = Outlet(self._journal, session.outlets, stream, OUTSIDE)
            if session.version in PRIMED:
                outlet.prime()
        async with session.listening(outlet) as ending:
            await ending
        return stream

    async def _resume(self, request: Request, outlet: Outlet, after: int) -> Stream:
        """The rest of a call's stream, until the call is over."""
        stream = request.begin(EVENTS, COMMENT)
        outlet.resume(stream, after)
        await outlet.carried()
        return stream

    async def _delete(self, request: Request, principal: Principal) -> Reply:
        if request.method != b"DELETE":
            return problem(405, "an MCP endpoint takes POST, GET and DELETE", b"Allow: GET, POST, DELETE\r\n")
        session = self._session(request, principal)
        if isinstance(session, Reply):
            return session
        for call in tuple(session.running.values()):
            call.cancel()
        self._sessions.end(session)
        return Reply(200, b"", b"")

    def _new_session(self, principal: Principal, params: bytes) -> HttpSession | Answer:
        """The session that an ``initialize`` asks for, or what is wrong with it."""
        try:
            parts = jsonrpc.members(params)
            version = jsonrpc.string(parts.get("protocolVersion"))
            capabilities = bytes(parts.get("capabilities", jsonrpc.EMPTY))
            jsonrpc.members(capabilities)
        except BadFrame as error:
            return failure(INVALID_PARAMS, f"initialize: {error}")
        if version is None:
            return failure(INVALID_PARAMS, "initialize: params.protocolVersion must be a string")
        return HttpSession(new_session_id(), principal, "legacy", negotiate(version), capabilities, self._journal)

    def close(self) -> None:
        """Look no more."""
        self._watch.close()
