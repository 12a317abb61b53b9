"""What a server says and asks on the response streams of one HTTP conversation, and whom it reaches.

Used by ``wire.http_upstream``. A stream belongs to one call, so what comes on it goes to that call's caller and nobody
else; what comes on a stream of no call goes to the listener, but for questions: many servers ask there in the middle of
a call, and while exactly one is under way it is that one's. Answers are found here and acted on by the caller of
``take``. It never touches a socket: replies leave through ``reply``.

Source: MCP 2025-11-25 and 2026-07-28 "Streamable HTTP", "Progress", "Cancellation".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UNSET

from mooring.errors import UpstreamProtocol
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller, Listener
from mooring.wire.jsonrpc import EMPTY, INTERNAL_ERROR, Answer, BadFrame, BadResponse, members, text
from mooring.wire.stdio_upstream import GHOST
from mooring.wire.upstream_params import OUTSIDE, without_tag

QUESTIONS = 100
"""How many requests of one server may wait for their answers; further ones are not heard."""
CLOSING = 1.0
"""Seconds that questions get to unwind when the conversation is closed."""

_OK = 200
"""What stood before whatever comes on a stream."""
_log = logging.getLogger(__name__)


class Call(msgspec.Struct, eq=False):
    """One request under way. ``token``: the caller's own progress token, raw; towards the server it is the id."""

    id: int
    method: str
    params: bytes
    answer: asyncio.Future[Answer]
    caller: Caller | None = None
    token: bytes | None = None
    task: asyncio.Task[None] | None = None
    """Carries it out."""

    @property
    def listens(self) -> bool:
        """Announcements on its stream are what it was made for."""
        return self.method == "subscriptions/listen"


class Dialogue:
    """All streams of one conversation. ``reply`` sends a frame to the server; it must not raise."""

    def __init__(self, name: str, listener: Listener, reply: Callable[[bytes], Awaitable[None]]) -> None:
        self.calls: dict[int, Call] = {}
        """Calls under way, by id."""
        self.asks = False
        """Whether the server may send requests: legacy only; no others are answered."""
        self._name = name
        self._listener = listener
        self._reply = reply
        self._questions: dict[bytes, tuple[Call | None, asyncio.Task[None]]] = {}
        self._ghosts: set[int] = set()
        """Calls that were cancelled a moment ago, on which the server may still be working."""

    def take(self, frame: bytes, call: Call | None) -> Answer | None:
        """One message on the stream of ``call``, or of none: passed on, or the answer to the call. Raises
        UpstreamProtocol when that cannot be understood."""
        try:
            message = jsonrpc.decode(frame)
            params = EMPTY if message.params is UNSET else bytes(message.params)
            if message.method is UNSET:
                return answer_of(message) if call is not None and answers(message, call.id) else None
            if message.id is UNSET:
                self._said(message.method, params, call)
            else:
                self._asked(text(message.id), message.method, params, call)
        except BadResponse as error:
            if call is not None and jsonrpc.own_number(error.id) == call.id:
                what = f"{self._name} answered {call.method} with {error.has}"
                raise UpstreamProtocol(what, server=self._name, phase="call", http=_OK) from None
        except BadFrame:
            pass  # no message at all: nobody waits for it
        except Exception:
            _log.exception("%s: a message could not be passed on", self._name)  # one caller's fault is not the others'
        return None

    def over(self, call: Call) -> None:
        """The call is over: nobody answers its questions any more."""
        if self.calls.pop(call.id, None) is not None and call.answer.cancelled():
            self._ghosts.add(call.id)
            asyncio.get_running_loop().call_later(GHOST, self._ghosts.discard, call.id)
        for asker, question in self._questions.values():
            if asker is call:
                question.cancel()

    async def close(self) -> None:
        """Cancel all questions; bounded."""
        tasks = [question for _, question in self._questions.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING)

    def _said(self, method: str, params: bytes, call: Call | None) -> None:
        if method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/cancelled":
            if found := self._questions.get(bytes(members(params).get("requestId", EMPTY))):
                found[1].cancel()
        elif call is None or (method.endswith(OUTSIDE) and not call.listens):
            self._listener.announced(method, params)
        elif call.caller is not None:
            call.caller.heard(method, without_tag(params) if call.listens else params)

    def _progressed(self, params: bytes) -> None:
        """The token says whose it is, on whichever stream it comes."""
        parts = members(params)
        number = bytes(parts.get("progressToken", EMPTY)).strip(b'"')
        call = self.calls.get(int(number)) if number.isdigit() and len(number) < 20 else None
        if call is not None and call.token is not None and call.caller is not None:
            call.caller.heard("notifications/progress", jsonrpc.build({**parts, "progressToken": call.token}))

    def _asked(self, raw_id: bytes, method: str, params: bytes, call: Call | None) -> None:
        if not self.asks or raw_id in self._questions or len(self._questions) >= QUESTIONS:
            return
        call = call or self._only_call()
        ask = self._listener.asked if call is None or call.caller is None else call.caller.ask
        if method == "ping":
            work = self._answer(raw_id, Answer(result=EMPTY))
        else:
            work = self._question(raw_id, ask, method, params)
        task = asyncio.get_running_loop().create_task(work)
        self._questions[raw_id] = (call, task)
        task.add_done_callback(lambda _: self._questions.pop(raw_id, None))

    def _only_call(self) -> Call | None:
        """The call under way; None when there is none, or when nobody can say which one is meant."""
        calls = [call for call in self.calls.values() if call.caller is not None and not call.answer.done()]
        return calls[0] if len(calls) == 1 and not self._ghosts else None

    async def _question(
        self, raw_id: bytes, ask: Callable[[str, bytes], Awaitable[Answer]], method: str, params: bytes
    ) -> None:
        try:
            answer = await ask(method, params)
        except Exception as error:
            _log.warning("%s: a question got no answer: %s", self._name, error)
            answer = jsonrpc.failure(INTERNAL_ERROR, "no answer could be had")
        await self._answer(raw_id, answer)

    async def _answer(self, raw_id: bytes, answer: Answer) -> None:
        await self._reply(jsonrpc.response(raw_id, answer))


def answer_of(message: jsonrpc.Envelope) -> Answer:
    """The payload of a response."""
    result = None if message.result is UNSET else bytes(message.result)
    error = None if message.error is UNSET else bytes(message.error)
    return Answer(result, error)


def answers(message: jsonrpc.Envelope, request_id: int) -> bool:
    """Whether a response is the one to a request of ours, and not to somebody else's. An error need not say: who
    refuses a request may not have read its id, and writes null or words in its place."""
    if jsonrpc.own_number(message.id) == request_id:
        return True
    return message.result is UNSET and not isinstance(message.id, int)


def answer_in(body: bytes, request_id: int) -> Answer | None:
    """The response to a request that is the whole of ``body``; None when there is none."""
    try:
        message = jsonrpc.decode(body)
    except BadFrame:
        return None
    return answer_of(message) if message.method is UNSET and answers(message, request_id) else None
