"""What the raw clients of both transports have in common: what they know, and what they make of requests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mooring.testing import speech
from mooring.testing.peer import JSON


class Client(ABC):
    """A client that can make a ``request``."""

    def __init__(self, era: speech.Era, capabilities: JSON | None, timeout: float) -> None:
        self.era: speech.Era = era
        self.capabilities: JSON = capabilities or {}
        self.timeout = timeout
        self.notifications: list[JSON] = []
        self.asked: list[JSON] = []
        self.answers = dict(speech.ANSWERS)
        self._last_id = 0
        self._news = asyncio.Condition()

    @abstractmethod
    async def request(self, method: str, params: JSON | None = None) -> JSON:
        """Send a request and wait for the response message. Raises TimeoutError, ConnectionError."""

    async def result(self, method: str, params: JSON | None = None) -> JSON:
        """The ``result`` of a request; an error answer fails the test."""
        message = await self.request(method, params)
        assert "result" in message, message
        return message["result"]

    async def call(self, tool: str, arguments: JSON | None = None, **more: Any) -> JSON:
        """The result of ``tools/call``. Input-required results (modern) are answered and the call repeated."""
        params: JSON = {"name": tool, "arguments": arguments or {}, **more}
        result = await self.result("tools/call", params)
        while result.get("resultType") == "input_required":
            result = await self.result("tools/call", speech.retry(params, result, self.answers))
        return result

    async def heard(self, method: str, test: Callable[[JSON], bool] = lambda params: True) -> JSON:
        """Wait for a notification (one already received counts); returns its ``params``."""

        def found() -> list[JSON]:
            notes = (note.get("params", {}) for note in self.notifications if note["method"] == method)
            return [params for params in notes if test(params)]

        async with asyncio.timeout(self.timeout), self._news:
            await self._news.wait_for(found)
        return found()[0]
