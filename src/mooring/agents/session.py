"""A session of an agent as the relay sees it: one conversation, whatever way its calls come in.

Calls made in this process and calls that an agent's program makes over the endpoint get the same session, so that what
belongs to a session lasts as long as the agent is open, and what a server asks reaches the agent's handler instead of a
foreign program that may not know what to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mooring.agents.handler import Handler
from mooring.nouns import Era, Principal
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request


class AgentSession:
    """Implements ``wire.session.Session``."""

    era: Era = "legacy"
    version = eras.LEGACY_VERSIONS[0]

    def __init__(self, principal: Principal, handler: Handler, changed: Callable[[], None]) -> None:
        """``changed`` is called when a list of the workspace changed."""
        self.id = f"agent:{principal.key_id}"
        self.principal = principal
        self.log_level: str | None = None
        self.on_close: list[Callable[[], None]] = []
        self.closed = False
        self.answered_by(handler)
        self._changed = changed

    def answered_by(self, handler: Handler) -> None:
        """Who answers from now on; servers that were told before what can be asked keep to that."""
        self.handler = handler
        self.capabilities = handler.capabilities()

    def send(self, method: str, params: bytes | None) -> None:
        if method.endswith("/list_changed"):
            self._changed()

    async def ask(self, method: str, params: bytes) -> Answer:
        return await self.handler.answer(method, params)

    def close(self) -> None:
        """End it: what it alone had running ends."""
        self.closed = True
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback()


class AgentRequest:
    """Implements ``wire.session.Request``. ``behind``: the request of the agent's program that this one stands for."""

    raw_id = b"1"
    era: Era = "legacy"
    version = eras.LEGACY_VERSIONS[0]
    headers: Mapping[bytes, bytes] = {}

    def __init__(self, session: AgentSession, method: str, params: bytes, behind: Request | None = None) -> None:
        self.session = session
        self.method = method
        self.params = params
        self._behind = behind

    @classmethod
    def standing_for(cls, request: Request, session: AgentSession) -> AgentRequest:
        """The same call, made by the session."""
        params = eras.to_legacy_params(request.params) if request.era == "modern" else request.params
        return cls(session, request.method, params, request)

    def heard(self, method: str, params: bytes) -> None:
        """Progress goes on to the program, log messages to those of the older era, which are sent any."""
        if self._behind is not None and (method == "notifications/progress" or self._behind.era == "legacy"):
            self._behind.heard(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        return await self.session.ask(method, params)

    def returned(self, answer: Answer) -> Answer:
        """The answer in the era of the program that waits for it."""
        if answer.result is None or self._behind is None or self._behind.era == "legacy":
            return answer
        return Answer(result=eras.to_modern_result(self.method, answer.result, jsonrpc.EMPTY))
