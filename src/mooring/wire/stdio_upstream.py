"""A conversation with a server on stdio: many requests at once over one pair of pipes.

Opened by ``serve.upstream`` inside an instance's owner task, used through ``wire.connection.Connection``. Ids and
progress tokens towards the server are our own. What a server says reaches the caller it belongs to; what cannot be tied
to one caller goes to the listener. It never starts or ends the process, never repeats a request, and never raises for
what a server writes: lines that are no messages are counted and shown to ``stray``.

Source: MCP 2026-07-28 and 2025-11-25 "stdio", "Cancellation", "Progress"; MCP 2026-07-28 "Subscriptions".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from mooring.errors import Busy, Crashed, StartFailed, TimedOut, UpstreamProtocol
from mooring.launch.base import Pipes
from mooring.nouns import Era, Facts
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller, Listener
from mooring.wire.eras import SUBSCRIPTION_ID_KEY, to_modern_params
from mooring.wire.jsonrpc import (
    EMPTY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Answer,
    BadFrame,
    BadResponse,
    Envelope,
    fields,
    members,
    text,
)
from mooring.wire.upstream_handshake import CLIENT_INFO, Handshake, NeedsRespawn
from mooring.wire.upstream_params import OUTSIDE, list_filter, own_token, without_tag
from mooring.wire.upstream_pipe import Pipe

__all__ = ["NeedsRespawn", "StdioConnection", "connect"]

PATIENCE = 5.0
"""Seconds at most, and a quarter of the time limit, that a silent probe is waited for alone."""
QUESTIONS = 100
"""How many requests of one server may wait for their answers."""
GHOST = 30.0
"""Seconds that a cancelled request may still be worked on, so that what the server says may belong to it."""
CLOSING = 1.0
"""Seconds that questions get to unwind when the conversation is closed."""

_LISTEN = "subscriptions/listen"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_log = logging.getLogger(__name__)

Ask = Callable[[str, bytes], Awaitable[Answer]]
Stray = Callable[[bytes, str], None]
"""Is shown a line that is no message, and why; must not raise."""


@asynccontextmanager
async def connect(
    pipes: Pipes,
    *,
    exited: asyncio.Future[int | None],
    listener: Listener,
    era: Era | None,
    capabilities: bytes,
    timeout: float,
    phase: Callable[[str], None],
    name: str,
    stray: Stray | None = None,
) -> AsyncGenerator[StdioConnection[Pipe], None]:
    """Talk to the server behind ``pipes``, which are taken over, from the first message on.

    ``era``: what it spoke last time, a hint. ``timeout``: seconds for the handshake.
    ``name``: the server, for messages. Leaving the block closes the server's stdin.

    Raises NeedsRespawn when the probe ended the server; else StartFailed when it ended, TimedOut when it did not
    answer in time, UpstreamProtocol when no version is spoken by both.
    """
    connection = StdioConnection(name, partial(Pipe, exited), listener, stray)
    try:
        await connection.channel.start(pipes)
        handshake = Handshake(
            name, connection.begin, capabilities=capabilities, patience=min(timeout / 4, PATIENCE), phase=phase
        )
        try:
            async with asyncio.timeout(timeout):
                connection.agree(await handshake.run(era), capabilities)
        except TimeoutError:
            what = f"{name} did not answer {handshake.step} within {timeout:g} s"
            message = f"{what} (timeouts.initialize sets the limit)"
            raise TimedOut(message, server=name, phase=handshake.step) from None
        except Crashed as error:
            if handshake.blame_probe:
                raise NeedsRespawn("legacy") from None
            raise StartFailed(str(error), server=name, phase=handshake.step) from None
        yield connection
    finally:
        await connection.close()


class _Pending(msgspec.Struct):
    """A request that has no answer yet."""

    method: str
    answer: asyncio.Future[Answer]
    caller: Caller | None = None
    token: bytes | None = None
    """The caller's own progress token, raw; towards the server it is the id."""
    asking: set[bytes] = set()
    """The server's questions, by id, that seem to be its own and wait."""


class Channel(Protocol):
    """What carries the frames of such a conversation: pipes, or an old HTTP+SSE server (``wire.sse_upstream``)."""

    @property
    def open(self) -> bool: ...

    @property
    def full(self) -> bool: ...

    @property
    def dropped(self) -> int: ...

    def send(self, frame: bytes) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Channel)


class StdioConnection(Generic[C]):
    """See ``wire.connection.Connection``. ``channel`` is made from where its frames and its end are to be told."""

    facts: Facts

    def __init__(
        self,
        name: str,
        channel: Callable[[Callable[[bytes], None], Callable[[str], None]], C],
        listener: Listener,
        stray: Stray | None = None,
    ) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.unmatched = 0
        """Answers and progress that belong to no request of ours: late, or made up."""
        self._name = name
        self._listener = listener
        self._stray = stray
        self._agreed = False
        self._bad_lines = 0
        self._last_id = 0
        self._pending: dict[int, _Pending] = {}
        self._ghosts: set[int] = set()
        self._dialogue = False
        self._questions: dict[bytes, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self.channel = channel(self._received, self._ended)

    @property
    def garbage(self) -> int:
        """How many lines were no messages: text, truncated, not UTF-8, too long."""
        return self._bad_lines + self.channel.dropped

    def agree(self, facts: Facts, capabilities: bytes) -> None:
        """The handshake is over: answers to it that are still open no longer count."""
        self.facts = facts
        self._agreed = True
        self._pending.clear()
        if facts.era == "legacy":
            self._dialogue = True
            self.channel.send(jsonrpc.notification("notifications/initialized"))
        elif wanted := list_filter(facts.capabilities):
            params = jsonrpc.build({"notifications": text(wanted)})
            params = to_modern_params(params, version=facts.version, capabilities=capabilities, client_info=CLIENT_INFO)
            self._listening = asyncio.get_running_loop().create_task(self._listen(params))

    async def close(self) -> None:
        """End the conversation: questions are cancelled, what is pending fails, the server's stdin is closed."""
        tasks = [*self._questions.values()]
        if self._listening is not None:
            tasks.append(self._listening)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSING)
        finally:
            self.channel.close()
            self._ended("was stopped")

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """See ``wire.connection.Connection.request``; also raises Busy when the server does not read its input, and
        UpstreamProtocol when its answer is none."""
        answer = self.begin(method, params, caller)
        request_id = self._last_id
        try:
            return await answer
        except asyncio.CancelledError:
            self._withdraw(request_id)
            raise

    def begin(self, method: str, params: bytes, caller: Caller | None = None) -> asyncio.Future[Answer]:
        """Send a request. The future fails with Crashed when the server goes away; cancelling it tells nobody."""
        request_id = self._last_id = self._last_id + 1
        params, token = own_token(params, request_id)
        if not self.channel.send(jsonrpc.request(b"%d" % request_id, method, params)):
            raise self._unsent(method)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = _Pending(method, answer, caller, token)
        return answer

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification; lost silently if the conversation is over or the server does not read."""
        self.channel.send(jsonrpc.notification(method, params))

    def _withdraw(self, request_id: int) -> None:
        """Nobody waits any more: tell the server, and remember for a while that it may still be at it."""
        request = self._pending.pop(request_id, None)
        if request is None:
            return
        self.notify("notifications/cancelled", text({"requestId": request_id, "reason": "cancelled by the caller"}))
        if request.method != _LISTEN:
            self._ghosts.add(request_id)
            asyncio.get_running_loop().call_later(GHOST, self._ghosts.discard, request_id)

    def _unsent(self, method: str) -> Busy | Crashed:
        if self.channel.open and self.channel.full:
            what = f"{self._name} does not read its input; {method} was not sent"
            return Busy(what, server=self._name, phase="call", written=False)
        reason = self.closed.result() if self.closed.done() else "is ending"
        return Crashed(f"{self._name} {reason}; {method} was not sent", server=self._name, phase="call", written=False)

    def _received(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line)
            params = EMPTY if message.params is UNSET else bytes(message.params)
            if message.method is UNSET:
                self._answered(message)
            elif message.id is UNSET:
                self._said(message.method, params)
            else:
                self._asked(text(message.id), message.method, params)
        except BadFrame as error:
            self._bad_lines += 1
            if self._stray is not None:
                self._stray(line, str(error))
            if isinstance(error, BadResponse):
                self._misanswered(error)
        except Exception:
            _log.exception("%s: a message could not be passed on", self._name)  # one caller's fault is not the others'

    def _answered(self, message: Envelope) -> None:
        request_id = jsonrpc.own_number(message.id)
        request = self._pending.pop(request_id, None)
        if request is None:
            self.unmatched += 1
            self._ghosts.discard(request_id)
        elif not request.answer.done():
            result = None if message.result is UNSET else bytes(message.result)
            error = None if message.error is UNSET else bytes(message.error)
            request.answer.set_result(Answer(result, error))

    def _misanswered(self, error: BadResponse) -> None:
        """A response that cannot be understood comes once, too: whoever waits for it would wait in vain. In the
        handshake not to understand a request is an answer."""
        request = self._pending.pop(jsonrpc.own_number(error.id), None)
        if request is None or request.answer.done():
            return
        what = f"{self._name} answered {request.method} with {error.has}"
        if self._agreed:
            request.answer.set_exception(UpstreamProtocol(what, server=self._name, phase="call"))
        else:
            request.answer.set_result(jsonrpc.failure(INVALID_REQUEST, what))

    def _said(self, method: str, params: bytes) -> None:
        if method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/cancelled":
            if question := self._questions.get(bytes(members(params).get("requestId", EMPTY))):
                question.cancel()
        elif method == _ACKNOWLEDGED:
            request = self._request(fields(members(params).get("_meta")).get(SUBSCRIPTION_ID_KEY))
            if request is not None and request.caller is not None:
                request.caller.heard(method, params)
        else:
            self._told(method, params)

    def _told(self, method: str, params: bytes) -> None:
        """A log message, or what nobody knows, is the only caller's; all that belongs to a subscription, and changes of
        lists and resources, are the listener's."""
        untagged = without_tag(params)
        request = None if untagged is not params or method.endswith(OUTSIDE) else self._only_request()
        if request is not None and request.caller is not None:
            request.caller.heard(method, params)
        else:
            self._listener.announced(method, untagged)

    def _progressed(self, params: bytes) -> None:
        parts = members(params)
        request = self._request(parts.get("progressToken"))
        if request is None or request.token is None:
            self.unmatched += 1
        elif request.caller is not None:
            request.caller.heard("notifications/progress", jsonrpc.build({**parts, "progressToken": request.token}))

    def _request(self, raw_id: bytes | msgspec.Raw | None) -> _Pending | None:
        """Our open request that a progress token or a subscription id of ours stands for."""
        number = bytes(raw_id or EMPTY).strip(b'"')
        return self._pending.get(int(number)) if number.isdigit() and len(number) < 20 else None

    def _asked(self, raw_id: bytes, method: str, params: bytes) -> None:
        if method == "ping":
            self._reply(raw_id, Answer(result=EMPTY))
        elif not self._dialogue:
            self._reply(raw_id, jsonrpc.failure(METHOD_NOT_FOUND, f"{method} is not offered here"))
        elif raw_id in self._questions or len(self._questions) >= QUESTIONS:
            self._reply(raw_id, jsonrpc.failure(INTERNAL_ERROR, "too many questions at once"))
        else:
            request = self._only_request()
            ask = self._listener.asked if request is None or request.caller is None else request.caller.ask
            if request is not None:
                request.asking.add(raw_id)
            question = asyncio.get_running_loop().create_task(self._question(raw_id, request, ask, method, params))
            self._questions[raw_id] = question
            question.add_done_callback(partial(self._settled, raw_id, request))

    def _settled(self, raw_id: bytes, request: _Pending | None, _: asyncio.Task[None]) -> None:
        self._questions.pop(raw_id, None)
        if request is not None:
            request.asking.discard(raw_id)

    async def _question(self, raw_id: bytes, request: _Pending | None, ask: Ask, method: str, params: bytes) -> None:
        try:
            answer = await ask(method, params)
        except Exception as error:
            _log.warning("%s: a question got no answer: %s", self._name, error)
            answer = jsonrpc.failure(INTERNAL_ERROR, "no answer could be had")
        if request is not None:  # now, not when this task is over: the server's next question may come before
            request.asking.discard(raw_id)
        self._reply(raw_id, answer)

    def _reply(self, raw_id: bytes, answer: Answer) -> None:
        self.channel.send(jsonrpc.response(raw_id, answer))

    def _only_request(self) -> _Pending | None:
        """Which request an untagged message is about: known only while the server works on exactly one, besides what
        Mooring itself asks of it (lists, pings). Where they are all of one client, those that wait for answers to
        questions do not count, since a server that waits does not go on: calls that a client has left hanging must not
        silence its others."""
        if self._ghosts:
            return None
        requests = [each for each in self._pending.values() if each.caller is not None and each.method != _LISTEN]
        if len(requests) > 1 and self._listener.alone:
            requests = [request for request in requests if not request.asking]
        return requests[0] if len(requests) == 1 else None

    async def _listen(self, params: bytes) -> None:
        """Ask a modern server to tell of list changes; its answer means that it will not tell any more."""
        with suppress(Crashed, Busy, UpstreamProtocol):
            await self.request(_LISTEN, params)

    def _ended(self, reason: str) -> None:
        if self.closed.done():
            return
        self.closed.set_result(reason)
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if not request.answer.done():
                what = f"{self._name} {reason} before it answered {request.method}"
                request.answer.set_exception(Crashed(what, server=self._name, phase="call", written=True))
                request.answer.exception()  # seen: the handshake does not await every answer
        for question in self._questions.values():
            question.cancel()
