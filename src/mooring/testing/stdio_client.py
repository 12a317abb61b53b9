"""A raw MCP client on stdio for tests: no SDK, both eras, every line visible."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from mooring.testing import speech
from mooring.testing.client import Client
from mooring.testing.peer import JSON

LINE_LIMIT = 1 << 27
"""Bytes of the longest line the client reads."""


class StdioClient(Client):
    """Starts ``argv`` and speaks MCP with it. ``timeout`` bounds every wait, in seconds.

    ``received`` holds every line that came, as bytes; ``notifications`` the decoded ones without an id; ``asked`` the
    server's own requests, which are answered from ``answers``."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        era: speech.Era = "legacy",
        capabilities: JSON | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(era, capabilities, timeout)
        self.argv = tuple(argv)
        self.received: list[bytes] = []
        self.process: asyncio.subprocess.Process
        self._env, self._cwd = env, cwd
        self._waiting: dict[Any, asyncio.Future[JSON]] = {}

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self.argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, cwd=self._cwd, limit=LINE_LIMIT
        )
        self._errors = bytearray()
        self._readers = asyncio.gather(self._read(), self._read_errors())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        # asyncio offers no public way to let go of pipes that a grandchild of ours may still hold open.
        self.process._transport.close()  # type: ignore[attr-defined]
        await asyncio.gather(self._readers, return_exceptions=True)

    @property
    def stderr(self) -> str:
        """What the server wrote to stderr so far."""
        return self._errors.decode(errors="replace")

    async def open(self) -> JSON:
        """The first exchange: the result of ``initialize`` (legacy) or of ``server/discover`` (modern)."""
        if self.era == "modern":
            return await self.result("server/discover")
        hello = speech.hello(speech.NEWEST["legacy"], self.capabilities)
        result = await self.result("initialize", hello)
        self.notify("notifications/initialized")
        return result

    def send(self, line: bytes | JSON) -> None:
        """Write a line: bytes as they are (without the newline), or an object as JSON."""
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def notify(self, method: str, params: JSON | None = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def begin(self, method: str, params: JSON | None = None) -> tuple[int, asyncio.Future[JSON]]:
        """Send a request; returns its id and the future of the whole response message."""
        self._last_id += 1
        params = params or {}
        if self.era == "modern":
            params = speech.modern(params, speech.NEWEST["modern"], self.capabilities)
        future = self._waiting[self._last_id] = asyncio.get_running_loop().create_future()
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id, future

    async def request(self, method: str, params: JSON | None = None) -> JSON:
        """Send a request and wait for the response message. Raises TimeoutError, ConnectionError."""
        async with asyncio.timeout(self.timeout):
            return await self.begin(method, params)[1]

    async def close_stdin(self) -> int:
        """End the server's input and wait for its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(self.timeout):
            return await self.process.wait()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.received.append(line)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                await self._take(message)  # pyright: ignore[reportUnknownArgumentType]
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the server ended its output"))
                future.exception()

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(1 << 16):
            self._errors += data

    async def _take(self, message: JSON) -> None:
        if "method" not in message:
            future = self._waiting.pop(message.get("id"), None)
            if future is not None and not future.done():
                future.set_result(message)
        elif "id" in message:
            self.asked.append(message)
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": speech.answer(self.answers, message)})
        else:
            self.notifications.append(message)
        async with self._news:
            self._news.notify_all()
