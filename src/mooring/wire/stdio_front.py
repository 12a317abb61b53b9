"""One client on stdio, as the daemon sees it: newline-framed JSON-RPC on the connection of a shim.

``serve`` is called by the control socket once a connection has attached, and runs until the client is gone. Both eras
share the pipe, decided message by message, and neither excludes the other: clients were seen to send ``initialize``
after a ``server/discover`` that had been answered. It does transport, envelope, era, cancellation and the client's
answers to questions; what a request means is the handler's business. It ends its requests' tasks itself and waits for
nothing without a limit.

Sources: MCP 2025-11-25 "Lifecycle", "Cancellation"; 2026-07-28 "Versioning and Compatibility", "stdio".
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import UNSET

from mooring.errors import MooringError
from mooring.nouns import Era, Principal
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import EMPTY, Answer, BadFrame, Envelope
from mooring.wire.lines import Lines
from mooring.wire.session import Handler, failed

UNREAD_LIMIT = 64 << 20
"""Bytes a client may leave unread; beyond that nothing more is read from it, and notifications are dropped."""
MAX_RUNNING = 1024
"""Requests of one client at the same time."""
FLUSH = 30.0
"""Seconds that running requests have left once the client has ended its input."""
PROBE = 0.5
"""Seconds between two looks whether a client that has ended its input is still there."""
CLOSE = 2.0
"""Seconds that cancelled requests, and after them the last bytes, have left at the end."""

_NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_log = logging.getLogger(__name__)


async def serve(transport: asyncio.Transport, handler: Handler, principal: Principal, *, leftover: bytes = b"") -> None:
    """Hold the conversation on ``transport``, a connected stream, until the client is gone; then close it.

    The caller has read the attach line and answered it. It pauses reading before it starts this, or passes on what
    came meanwhile; ``leftover`` is what came after that line. The transport's protocol is replaced here. Raises nothing
    but CancelledError, which ends the conversation at once."""
    conversation = Conversation(transport, handler, principal)
    session = conversation.session
    transport.set_write_buffer_limits(high=UNREAD_LIMIT)
    transport.set_protocol(conversation)
    try:
        handler.opened(session)
        if leftover:
            conversation.data_received(leftover)
        if not transport.is_closing():
            transport.resume_reading()
            await conversation.input_ended.wait()
        await conversation.finish()
    finally:
        await conversation.close()


class StdioSession:
    """The life of one shim. Implements ``wire.session.Session``; modern until ``initialize`` comes."""

    def __init__(self, conversation: Conversation, principal: Principal) -> None:
        self._conversation = conversation
        self.id = os.urandom(16).hex()
        self.principal = principal
        self.era: Era = "modern"
        self.version = eras.MODERN_VERSIONS[0]
        self.capabilities = EMPTY
        self.log_level: str | None = None
        self.on_close: list[Callable[[], None]] = []
        self.closed = False

    def send(self, method: str, params: bytes | None) -> None:
        """A notification outside any request; only a client that said ``initialize`` expects those."""
        if self.era == "legacy":
            self._conversation.notify(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """A question outside any request. -32601 when the client declared nothing of the kind."""
        needed = _NEEDS.get(method)
        if self.era == "modern" or (needed and needed not in jsonrpc.members(self.capabilities)):
            return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"The client does not support {method}.")
        return await self._conversation.ask(method, params)


class StdioRequest:
    """One request that waits for its answer. Implements ``wire.session.Request``."""

    def __init__(self, conversation: Conversation, raw_id: bytes, method: str, params: bytes) -> None:
        self._conversation = conversation
        self.session = conversation.session
        self.raw_id = raw_id
        self.method = method
        self.params = params
        self.era: Era = conversation.session.era
        self.version = conversation.session.version
        self.headers: Mapping[bytes, bytes] = {}
        self.open = True
        """False once it is answered or cancelled."""
        self.task: asyncio.Task[None]

    def heard(self, method: str, params: bytes) -> None:
        """A notification that belongs to this request; nothing after its answer."""
        if self.open:
            self._conversation.notify(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """A question within this request; modern clients are never asked like this."""
        if self.era == "modern":
            return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "A modern client cannot be sent requests.")
        return await self.session.ask(method, params)


class Conversation(asyncio.Protocol):
    """The protocol of the attached connection, and owner of the tasks of its requests."""

    def __init__(self, transport: asyncio.Transport, handler: Handler, principal: Principal) -> None:
        self._transport = transport
        self._handler = handler
        self._lines = Lines()
        self._dropped = 0
        self._full = False
        self._running: dict[int | str, StdioRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: dict[str, asyncio.Future[Answer]] = {}
        self._asked = 0
        self._lost = asyncio.Event()
        self.input_ended = asyncio.Event()
        self.session = StdioSession(self, principal)

    # The socket.

    def data_received(self, data: bytes) -> None:
        """Take whole lines; never raises."""
        for line in self._lines.feed(data):
            self._receive(line)
        while self._dropped < self._lines.dropped:
            self._dropped += 1
            self._refuse(f"a message may have {self._lines.limit} bytes at most")

    def eof_received(self) -> bool:
        """The client says no more: what it waits for is still sent, what never ends is ended. Keeps our side open."""
        for request in tuple(self._running.values()):
            if request.method == "subscriptions/listen":
                self._cancel(request)
        self._no_more_answers()
        self.input_ended.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; so is all it waited for."""
        self._lost.set()
        self.input_ended.set()
        self._no_more_answers()
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        """The client does not read: neither do we."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._full = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def notify(self, method: str, params: bytes | None) -> None:
        """Send a notification, unless the client has too much to read already."""
        if not self._full:
            self._send(jsonrpc.notification(method, params))

    async def ask(self, method: str, params: bytes) -> Answer:
        """Send a request to the client and wait for its answer. Cancelling the wait tells the client."""
        if self.input_ended.is_set():
            return _gone()
        self._asked += 1
        identity = f"{self.session.id[:8]}-{self._asked}"
        raw_id = jsonrpc.text(identity)
        future = self._questions[identity] = asyncio.get_running_loop().create_future()
        self._send(jsonrpc.request(raw_id, method, params))
        try:
            return await future
        except asyncio.CancelledError:
            self.notify("notifications/cancelled", b'{"requestId":%s}' % raw_id)
            raise
        finally:
            self._questions.pop(identity, None)

    async def finish(self) -> None:
        """Give running requests the time to be answered, as long as somebody is there. The end of input does not tell
        whether the client still listens; writing does, and blank lines mean nothing."""
        deadline = asyncio.get_running_loop().time() + FLUSH
        while self._tasks and asyncio.get_running_loop().time() < deadline:
            _, late = await asyncio.wait(self._tasks, timeout=PROBE)
            if late:
                self._send(b"")

    async def close(self) -> None:
        """End everything that belongs to the conversation, within a bounded time."""
        for request in tuple(self._running.values()):
            self._cancel(request)
        self._no_more_answers()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE)
        self.session.closed = True
        for callback in self.session.on_close:
            try:
                callback()
            except Exception:
                _log.exception("closing a session")
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()

    # Messages.

    def _receive(self, line: bytes) -> None:
        if line.lstrip().startswith(b"["):
            return self._refuse("batches are not supported: one message a line", jsonrpc.INVALID_REQUEST)
        try:
            message = jsonrpc.decode(line)
        except BadFrame as error:
            return self._refuse(str(error), error.code, error.raw_id)
        if message.method is UNSET:
            return self._answered(message)
        params = EMPTY if message.params is UNSET else bytes(message.params)
        if message.id is UNSET:
            return self._notified(message.method, params)
        if message.id is None:
            return self._refuse("a request needs an id that is a string or an integer", jsonrpc.INVALID_REQUEST)
        return self._requested(message.id, message.method, params)

    def _requested(self, identity: int | str, method: str, params: bytes) -> None:
        raw_id = jsonrpc.text(identity)
        if identity in self._running:
            return self._refuse("a request with this id is still running", jsonrpc.INVALID_REQUEST, raw_id)
        if len(self._running) >= MAX_RUNNING:
            return self._refuse(f"{MAX_RUNNING} requests are running already", jsonrpc.INTERNAL_ERROR, raw_id)
        request = StdioRequest(self, raw_id, method, params)
        try:
            refusal = self._date(request)
        except BadFrame as error:
            refusal = jsonrpc.failure(error.code, f"params: {error}")
        if refusal is not None:
            return self._send(jsonrpc.response(raw_id, refusal))
        self._running[identity] = request
        request.task = asyncio.get_running_loop().create_task(self._serve(identity, request))
        self._tasks.add(request.task)
        request.task.add_done_callback(self._tasks.discard)
        return None

    def _date(self, request: StdioRequest) -> Answer | None:
        """Find the era of a request, or the error it deserves. Raises BadFrame when ``params`` is not an object."""
        if request.method == "initialize":
            self._shake_hands(request)
            return None
        if request.method == "server/discover" or _says_version(request.params):
            meta = eras.modern_meta(request.params)
            if isinstance(meta, Answer):
                return meta
            request.era, request.version = "modern", meta.version
            return None
        if not request.params.startswith(b"{"):
            raise BadFrame("an object was expected", jsonrpc.INVALID_PARAMS)
        if self.session.era == "legacy" or request.method == "ping":
            request.era = "legacy"
            return None
        hint = f"Send initialize first, or {eras.PROTOCOL_VERSION_KEY} and the rest in params._meta."
        return jsonrpc.failure(jsonrpc.INVALID_PARAMS, hint)

    def _shake_hands(self, request: StdioRequest) -> None:
        session = self.session
        hello = jsonrpc.members(request.params)
        capabilities = bytes(hello.get("capabilities", EMPTY))
        session.era = request.era = "legacy"
        session.version = request.version = eras.negotiate(jsonrpc.string(hello.get("protocolVersion")) or "")
        session.capabilities = capabilities if capabilities.startswith(b"{") else EMPTY

    async def _serve(self, identity: int | str, request: StdioRequest) -> None:
        try:
            answer = await _answer(self._handler, request)
        finally:
            if self._running.get(identity) is request:
                del self._running[identity]
        if request.open:
            request.open = False
            self._send(jsonrpc.response(request.raw_id, answer))

    def _notified(self, method: str, params: bytes) -> None:
        try:
            if method == "notifications/cancelled":
                self._cancelled(params)
            else:
                self._handler.notified(self.session, method, params)
        except BadFrame:
            pass  # a notification has no answer
        except Exception:
            _log.exception("notification %s", method)

    def _cancelled(self, params: bytes) -> None:
        raw_id = bytes(jsonrpc.members(params).get("requestId", b"null"))
        identity = jsonrpc.decode(b'{"method":"","id":%s}' % raw_id).id
        request = self._running.get(cast("int | str", identity))
        if request is not None and request.method != "initialize":
            self._cancel(request)

    def _cancel(self, request: StdioRequest) -> None:
        """End a request without an answer; its id is free at once."""
        request.open = False
        for identity, running in self._running.items():
            if running is request:
                del self._running[identity]
                break
        request.task.cancel()

    def _answered(self, message: Envelope) -> None:
        future = self._questions.get(str(message.id))
        if future is None or future.done():
            return
        if message.error is not UNSET:
            future.set_result(Answer(error=bytes(message.error)))
        elif message.result is not UNSET:
            future.set_result(Answer(result=bytes(message.result)))

    def _no_more_answers(self) -> None:
        for future in self._questions.values():
            if not future.done():
                future.set_result(_gone())

    def _refuse(self, reason: str, code: int = jsonrpc.INVALID_REQUEST, raw_id: bytes = b"null") -> None:
        self._send(jsonrpc.response(raw_id, jsonrpc.failure(code, reason)))

    def _send(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.writelines((frame, b"\n"))


def _says_version(params: bytes) -> bool:
    """Whether a request is a modern one. The search spares legacy requests the decoding; it leaves out the part of the
    key that some encoders escape. Raises BadFrame when ``params`` is not an object."""
    if b"protocolVersion" not in params:
        return False
    meta = jsonrpc.members(params).get("_meta", EMPTY)
    return bytes(meta).startswith(b"{") and eras.PROTOCOL_VERSION_KEY in jsonrpc.members(meta)


async def _answer(handler: Handler, request: StdioRequest) -> Answer:
    """The handler's answer, or its failure in the words of JSON-RPC."""
    try:
        return await handler.handle(request)
    except BadFrame as error:
        return jsonrpc.failure(error.code, f"{request.method}: {error}")
    except MooringError as error:
        return failed(error)
    except Exception:
        _log.exception("request %s", request.method)
        return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, "Mooring failed to answer; its log says why.")


def _gone() -> Answer:
    return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, "The client is gone.")
