"""Conversations over HTTP with a raw server."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from mooring.launch.base import Url
from mooring.nouns import Era
from mooring.wire.connection import Connection
from mooring.wire.eras import to_modern_params
from mooring.wire.jsonrpc import Answer
from mooring.wire.remote_upstream import Terms, connect
from raw_http_server import RawServer

LIMIT = 20.0  # seconds that anything here may take on a busy machine


class Ear:
    """A caller and a listener that remember what they heard, and answer what they are asked."""

    def __init__(self) -> None:
        self.alone = False
        self.headers: dict[str, str] = {}
        self.said: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.questions: list[str] = []
        self.answer = Answer(result=b'{"action":"accept"}')
        self.hold = asyncio.Event()
        self.hold.set()
        self.cancelled = asyncio.Event()

    def heard(self, method: str, params: bytes) -> None:
        self.said.put_nowait((method, json.loads(params)))

    announced = heard

    async def ask(self, method: str, params: bytes) -> Answer:
        self.questions.append(method)
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.answer

    asked = ask

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.said.get(), LIMIT)


class HttpBench:
    """Opens conversations that end with the test."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.listener = Ear()
        self.phases: list[str] = []
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def serve(self, *args: Any, **more: Any) -> RawServer:
        return await self.stack.enter_async_context(RawServer(*args, **more))

    async def connect(
        self,
        server: RawServer | str,
        *,
        transport: str = "http",
        headers: dict[str, str] | None = None,
        capabilities: bytes = b"{}",
        timeout: float = LIMIT,
        **more: Any,
    ) -> Connection:
        url = server if isinstance(server, str) else server.url
        self.phases.clear()
        terms = Terms("raw", self.exited, self.listener, capabilities, timeout, self.phases.append, **more)
        return await self.stack.enter_async_context(connect(Url(url, headers or {}, transport), terms))


async def ask(connection: Connection, method: str, params: dict[str, Any], caller: Ear | None = None) -> Answer:
    raw = json.dumps(params).encode()
    if connection.facts.era == "modern":
        raw = to_modern_params(raw, version="2026-07-28", capabilities=b"{}", client_info=b"{}")
    async with asyncio.timeout(LIMIT):
        return await connection.request(method, raw, caller)


async def call(connection: Connection, tool: str = "echo", caller: Ear | None = None, **arguments: Any) -> Any:
    answer = await ask(connection, "tools/call", {"name": tool, "arguments": arguments}, caller)
    return json.loads(answer.result or answer.error or b"")


ERAS: tuple[Era, ...] = ("legacy", "modern")
