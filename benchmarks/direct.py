"""The backend itself over its pipes, with no gateway between: what latencies are compared with.

Used by the suites like a ``client.Session``.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

import msgspec

from benchmarks.client import CLIENT, ENCODE, LEGACY, MESSAGE, TOOL_RESULT, WrongAnswerError


class DirectSession:
    """One server on stdio; one request at a time."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv
        self._number = 0

    async def open(self) -> DirectSession:
        """Start the server and shake hands. Spawned by ``subprocess``, which is quicker at it than uvloop."""
        self._child = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._reader = asyncio.StreamReader(limit=1 << 22)
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        self._output, _ = await loop.connect_read_pipe(lambda: protocol, self._child.stdout)
        await self._request("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT})
        return self

    async def _request(self, method: str, params: dict[str, Any]) -> tuple[msgspec.Raw, float]:
        self._number += 1
        begun = time.perf_counter()
        assert self._child.stdin
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._child.stdin.write(ENCODE(message) + b"\n")
        answer = MESSAGE(await self._reader.readline())
        if answer.id != self._number or not memoryview(answer.result):
            raise WrongAnswerError(f"{method}: {answer}")
        return answer.result, time.perf_counter() - begun

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, float]:
        """The text a tool answered, and the seconds until it was there."""
        raw, seconds = await self._request("tools/call", {"name": tool, "arguments": arguments})
        return TOOL_RESULT(raw).content[0].text, seconds

    async def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self._child.stdin
        self._child.stdin.close()
        self._output.close()
        await asyncio.to_thread(self._child.wait, 5)
