"""Conversations with real child processes, each a few lines of script, over real pipes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mooring.launch.base import Pipes
from mooring.nouns import Era
from mooring.wire import stdio_upstream
from mooring.wire.jsonrpc import Answer
from mooring.wire.stdio_upstream import StdioConnection

LIMIT = 20.0  # seconds that anything here may take on a busy machine


SERVER = """
import json, os, sys, time

def raw(line): sys.stdout.buffer.write(line + b"\\n"); sys.stdout.buffer.flush()
def send(**message): raw(json.dumps({"jsonrpc": "2.0", **message}).encode())
def note(method, **params): send(method=method, params=params)
def reply(request, **result): send(id=request["id"], result=result)
def fail(request, code, message="no", **data):
    send(id=request["id"], error={"code": code, "message": message, "data": data})

def read():
    line = sys.stdin.buffer.readline()
    if not line: sys.exit(0)
    return json.loads(line)

def expect(method):
    message = read()
    assert message["method"] == method, message
    return message

def welcome(request, version="2025-11-25", **more):
    info = {"protocolVersion": version, "capabilities": {"tools": {"big": 123456789012345678901234567890}},
            "serverInfo": {"name": "scripted", "version": "1"}, "instructions": "be kind"}
    reply(request, **{**info, **more})

def describe(request, versions=("2026-07-28",), capabilities={"tools": {}}):
    reply(request, supportedVersions=versions, capabilities=capabilities, instructions="be kind", resultType="complete",
          _meta={"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}})

def legacy():
    while (message := read())["method"] != "initialize": fail(message, -32601)
    welcome(message); expect("notifications/initialized")
"""


class Ear:
    """A caller and a listener that remember what they heard, and answer what they are asked."""

    def __init__(self) -> None:
        self.alone = False
        self.said: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.questions: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.cancelled = asyncio.Event()

    def heard(self, method: str, params: bytes) -> None:
        self.said.put_nowait((method, json.loads(params)))

    announced = heard

    async def ask(self, method: str, params: bytes) -> Answer:
        self.questions.put_nowait((method, json.loads(params)))
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    asked = ask

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.said.get(), LIMIT)


class StdioBench:
    """Starts scripted servers and connects to them; ``phases``, ``strays`` and ``listener`` are of the last one."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.phases: list[str] = []
        self.strays: list[bytes] = []
        self.listener = Ear()
        self.process: asyncio.subprocess.Process

    async def connect(
        self,
        script: str,
        *,
        era: Era | None = "legacy",
        timeout: float = LIMIT,
        capabilities: bytes = b"{}",
    ) -> StdioConnection:
        pipes, exited = await self.stack.enter_async_context(self._process(SERVER + script))
        self.phases.clear()
        return await self.stack.enter_async_context(
            stdio_upstream.connect(
                pipes,
                exited=exited,
                listener=self.listener,
                era=era,
                capabilities=capabilities,
                timeout=timeout,
                phase=self.phases.append,
                name="scripted",
                stray=lambda line, reason: self.strays.append(line),
            )
        )

    @asynccontextmanager
    async def _process(self, script: str) -> AsyncIterator[tuple[Pipes, asyncio.Future[int | None]]]:
        stdin, writer = os.pipe()
        reader, stdout = os.pipe()
        self.process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", script, stdin=stdin, stdout=stdout
        )
        os.close(stdin)
        os.close(stdout)
        exited: asyncio.Future[int | None] = asyncio.ensure_future(process.wait())
        try:
            yield Pipes(reader, writer), exited
        finally:
            if process.returncode is None:
                process.kill()
            await exited
            await asyncio.sleep(0)  # what waits for the exit hears of it before the loop ends


async def call(
    connection: StdioConnection, method: str = "tools/call", caller: Ear | None = None, **params: Any
) -> Any:
    answer = await asyncio.wait_for(connection.request(method, json.dumps(params).encode(), caller), LIMIT)
    return json.loads(answer.result if answer.error is None else answer.error)
