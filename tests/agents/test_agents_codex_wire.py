"""The conversation with Codex's program, with a program that says anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mooring.agents.codex_wire import JSON, conversing
from mooring.errors import MooringError, UpstreamProtocol


class Saying:
    """A program that says ``lines`` and then nothing more."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)

    async def send(self, line: bytes) -> None:
        """Nobody answers."""

    async def line(self) -> bytes | None:
        if not self.lines:
            await asyncio.get_running_loop().create_future()
        return self.lines.pop(0)

    async def ended(self) -> MooringError:
        raise AssertionError("it runs")


async def test_what_is_not_understood_ends_the_conversation_with_a_reason() -> None:
    """A notification without what is expected in it must not leave a run, or a request, without an end."""

    def noted(method: str, params: JSON) -> None:
        params["turn"]

    async def asked(method: str, params: JSON) -> JSON:
        return {}

    program: Any = Saying(b"stray\n", b'{"method": "turn/completed", "params": {}}\n')
    async with asyncio.timeout(5), conversing(program, noted, asked) as conversation:
        request = asyncio.ensure_future(conversation.request("turn/start", {}))
        for waiting in (conversation.gone, request):
            with pytest.raises(UpstreamProtocol, match="not understood"):
                await waiting
