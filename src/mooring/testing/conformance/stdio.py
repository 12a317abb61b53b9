"""The conformance server on stdin and stdout: one message a line, requests side by side."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mooring.testing.conformance.call import Client
from mooring.testing.conformance.server import Server
from mooring.testing.peer import JSON, PARSE_ERROR, RpcError

LINE_LIMIT = 1 << 26
"""Bytes of the longest line."""


def say(message: JSON) -> None:
    """Write one message."""
    left = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


async def serve(server: Server) -> None:
    """Serve until stdin ends."""
    reader = asyncio.StreamReader(LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    client = Client(say)
    async with asyncio.TaskGroup() as group:
        while line := await reader.readline():
            try:
                message: Any = json.loads(line)
            except ValueError as error:
                say({"jsonrpc": "2.0", "id": None, "error": RpcError(PARSE_ERROR, str(error)).body()})
                continue
            if "id" in message and "method" in message:
                group.create_task(_answer(server, client, message))
            else:
                server.notified(client, message)
        server.gone(client)


async def _answer(server: Server, client: Client, message: JSON) -> None:
    say(await server.answer(client, message, server.era_of(message), say))
