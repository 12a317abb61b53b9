"""One forwarded request while it is under way: its deadline, and what the server says meanwhile.

Silence is what is limited: whatever belongs to the call restarts the clock, a question to the user stops it. Made by
``relay.relay``, handed to the connection as its ``Caller``.
"""

from __future__ import annotations

import asyncio
from typing import Self

from mooring.errors import TimedOut
from mooring.relay import levels
from mooring.relay.deadlines import Deadlines
from mooring.wire import jsonrpc, param_headers
from mooring.wire.jsonrpc import Answer
from mooring.wire.param_headers import Marked
from mooring.wire.session import Request

TOTAL_LIMIT = 3600.0
"""Seconds a call may take in all, however lively it is."""
QUESTION_LIMIT = 300.0
"""Seconds a user may leave a question unanswered before it counts as cancelled."""
_CANCELLED = {
    "elicitation/create": Answer(result=b'{"action":"cancel"}'),
}


class Exchange:
    """A context manager around the wait for one answer, in the task that waits. Raises TimedOut on its way out."""

    def __init__(
        self,
        request: Request,
        server: str,
        silence: float,
        deadlines: Deadlines,
        marks: tuple[Marked, ...] = (),
        sent: bytes = jsonrpc.EMPTY,
    ) -> None:
        """``silence`` in seconds; ``marks``: the arguments that go into headers too; ``sent``: the params that have
        them, which a guard may have changed."""
        self._request = request
        self._sent = sent
        self._marks = marks
        self._server = server
        self._silence = silence
        self._deadlines = deadlines
        self._questions: set[asyncio.Timeout] = set()
        self._over = self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        now = self._deadlines.now()
        self._ends = now + TOTAL_LIMIT
        self._deadlines.set(self, min(now + self._silence, self._ends))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._over = True
        self._deadlines.drop(self)
        for question in self._questions:  # nobody needs its answer any more
            if not question.expired():
                question.reschedule(self._deadlines.now())
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._late() from None

    def expire(self) -> None:
        """The limit has come: what waits is cancelled, and ``__exit__`` says why."""
        self._expired = True
        self._task.cancel()

    def _late(self) -> TimedOut:
        whole = self._deadlines.now() >= self._ends
        reason = f"ran for {TOTAL_LIMIT:g} s in all" if whole else f"was silent for {self._silence:g} s"
        return TimedOut(
            f"{self._server} {reason} in {self._request.method}; the call was cancelled (timeouts.call sets the limit)",
            server=self._server,
            phase="call",
        )

    def _restart(self) -> None:
        if not self._over and not self._expired:
            silent = self._deadlines.now() + self._silence
            self._deadlines.set(self, self._ends if self._questions else min(silent, self._ends))

    @property
    def headers(self) -> dict[str, str]:
        """What the request carries over HTTP: its parameters, as the tool's schema wants them and as the client sent
        more of them."""
        return param_headers.outgoing(self._marks, self._sent, self._request.headers)

    def heard(self, method: str, params: bytes) -> None:
        """The server reports something about this call."""
        self._restart()
        if method != "notifications/message" or self._wants(params):
            self._request.heard(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """The server asks the caller; unanswered questions expire, at the latest with the call."""
        if self._over:
            return unanswered(method)
        question = asyncio.timeout(QUESTION_LIMIT)
        self._questions.add(question)
        self._restart()
        try:
            async with question:
                return await self._request.ask(method, params)
        except TimeoutError:
            return unanswered(method)
        finally:
            self._questions.discard(question)
            self._restart()

    def _wants(self, params: bytes) -> bool:
        """Whether the caller asked for log messages of this level: legacy by session (all unless it said), modern by
        request (none unless it said)."""
        return levels.reached(
            levels.wanted(self._request) or ("debug" if self._request.era == "legacy" else ""), params
        )


def unanswered(method: str) -> Answer:
    """What a server is told whose question expired. Pure."""
    return _CANCELLED.get(method) or jsonrpc.failure(jsonrpc.INTERNAL_ERROR, "the question was not answered")
