"""Calls that wait for their caller: a modern client on a legacy server that asks in the middle of a call.

The legacy server's request becomes an ``input_required`` result; the call itself goes on waiting here, in a task of its
own, until the client's retry brings the answers. ``requestState`` is a random handle and nothing else: what it stands
for never leaves this process, so there is nothing to read and nothing to forge in it. It works once, for the same
principal, method and arguments, and expires with the question.

Used by ``relay.forward``. Source: MCP 2026-07-28 "Multi round-trip requests".
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Raw

from mooring.nouns import Era
from mooring.relay import bridge
from mooring.tasks import Tasks
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

MAX_PARKED = 1000
"""Calls that may wait at the same time; beyond it the oldest question is given up."""

PREFIX = "mooring-parked:"
"""How our handles begin: any other ``requestState`` is a modern server's own and passes unchanged."""
_ASKED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""What can be asked in that way, with the capability that a client declares for it."""
_STATE = "requestState"
_RESPONSES = "inputResponses"
_UNKNOWN = jsonrpc.failure(
    jsonrpc.INVALID_PARAMS, "requestState is unknown, used before, or expired; make the call again without it."
)
_GIVEN_UP = jsonrpc.failure(jsonrpc.INTERNAL_ERROR, "The question was given up.")
Carry = Callable[[Request], Awaitable[Answer]]


class ParkedCall:
    """One call that may be asked something. Implements ``wire.session.Request`` for the forward that carries it."""

    era: Era = "modern"

    def __init__(self, request: Request) -> None:
        self.current: Request | None = request
        """The client's request that waits for this call now; None while it is parked."""
        self.session: Session = request.session
        self.raw_id = request.raw_id
        self.method = request.method
        self.params = request.params
        self.version = request.version
        self.headers = request.headers
        self.asking = asyncio.Event()
        """Set while there are questions that the client was not told."""
        self.task: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions: dict[str, tuple[bytes, asyncio.Future[Answer]]] = {}
        self._shown: frozenset[str] = frozenset()
        """The questions that the client has been told."""
        self._count = 0

    def heard(self, method: str, params: bytes) -> None:
        """What the server reports goes to whoever waits; while parked nobody does."""
        if self.current is not None:
            self.current.heard(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """The server asks: wait for the answer that a retry brings. Nothing else can be asked in that way."""
        needed = _ASKED.get(method)
        if needed is None:
            return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"{method} is not offered here")
        if needed not in jsonrpc.fields(bridge.capabilities(self)):
            return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"{method}: the client did not declare {needed}")
        self._count += 1
        name = f"q{self._count}"
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        question = jsonrpc.build({"method": jsonrpc.text(method), "params": params})
        self._questions[name] = (question, future)
        self.asking.set()
        try:
            return await future
        finally:
            self._questions.pop(name, None)
            if self._questions.keys() <= self._shown:
                self.asking.clear()

    def same(self, request: Request) -> bool:
        """Whether a retry is by the same principal and means the same call."""
        return (
            request.session.principal == self.session.principal
            and request.method == self.method
            and meaning(request.params) == meaning(self.params)
        )

    def questions(self, handle: str) -> Answer:
        """The ``input_required`` result with all open questions."""
        self.asking.clear()
        self._shown = frozenset(self._questions)
        requests = jsonrpc.build(
            {name: asked for name, (asked, future) in self._questions.items() if not future.done()}
        )
        result = {"resultType": b'"input_required"', "inputRequests": requests, _STATE: jsonrpc.text(handle)}
        return Answer(result=jsonrpc.build(result))

    def answered(self, given: Mapping[str, Raw]) -> None:
        """The client's answers; a question that it was told and that has none is given up. One that came meanwhile is
        told next."""
        for name, (_, future) in list(self._questions.items()):
            if name in self._shown and not future.done():
                response = given.get(name)
                future.set_result(_GIVEN_UP if response is None else Answer(result=bytes(response)))

    async def work(self, carry: Carry) -> None:
        """Carry the call; its outcome is kept for whoever waits then."""
        try:
            answer = await carry(self)
        except asyncio.CancelledError:
            self.outcome.cancel()
            raise
        except Exception as error:  # handed on to the request that waits
            self.outcome.set_exception(error)
            self.outcome.exception()
        else:
            self.outcome.set_result(answer)


class Parked:
    """All parked calls. ``tasks`` owns the tasks that carry them."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._calls: dict[str, ParkedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    async def run(self, request: Request, carry: Carry) -> Answer:
        """Carry a modern request, or resume the one it is the retry of. Raises what ``carry`` raises."""
        parts = jsonrpc.members(request.params)
        handle = jsonrpc.string(parts.get(_STATE)) or ""
        if handle.startswith(PREFIX):
            call = self._calls.get(handle)
            if call is None or not call.same(request):
                return _UNKNOWN  # a stranger's try does not use up the owner's handle
            responses = jsonrpc.members(parts.get(_RESPONSES, jsonrpc.EMPTY))  # before the handle is used up
            del self._calls[handle]
            call.current = request
            call.answered(responses)
        else:
            call = ParkedCall(request)
            call.task = self._tasks.create_task(call.work(carry))
        return await self._next(call)

    async def _next(self, call: ParkedCall) -> Answer:
        """The outcome, or the questions that come first. A client that goes away takes its call with it."""
        while not (call.outcome.done() or call.asking.is_set()):
            asking = asyncio.ensure_future(call.asking.wait())
            try:
                await asyncio.wait((asking, call.outcome), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                if call.task is not None:
                    call.task.cancel()
                raise
            finally:
                asking.cancel()
        call.current = None
        if call.outcome.done():
            return call.outcome.result()
        return self._park(call)

    def _park(self, call: ParkedCall) -> Answer:
        handle = PREFIX + base64.urlsafe_b64encode(os.urandom(24)).decode()
        self._calls[handle] = call
        call.outcome.add_done_callback(lambda _: self._calls.pop(handle, None))
        while len(self._calls) > MAX_PARKED:
            oldest = self._calls.pop(next(iter(self._calls)))
            if oldest.task is not None:
                oldest.task.cancel()
        return call.questions(handle)


def meaning(params: bytes) -> dict[str, bytes]:
    """What a call is about, without what a retry adds."""
    skipped = ("_meta", _STATE, _RESPONSES)
    return {key: bytes(value) for key, value in jsonrpc.members(params).items() if key not in skipped}
