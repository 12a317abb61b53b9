"""An agent's program on pipes: lines in, lines out, and an end. Used by the adapters that start one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from mooring.agents.seat import Seat
from mooring.config.plan_servers import Process
from mooring.errors import Crashed, MooringError
from mooring.launch.base import Launched, Pipes
from mooring.wire.pipes import taken_over

LINE_LIMIT = 64 << 20
"""Bytes of one line from a program."""


class Program:
    """A running program. ``started`` makes it."""

    def __init__(
        self, name: str, launched: Launched, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        self.reader = reader
        self.writer = writer
        self.pid = launched.pid
        self.exited = launched.exited
        """Resolves when it is gone."""
        self._launched = launched

    async def send(self, line: bytes) -> None:
        """Write one line. Raises Crashed when nobody reads it any more."""
        try:
            self.writer.write(line + b"\n")
            await self.writer.drain()
        except (ConnectionError, RuntimeError):
            raise await self.ended() from None

    async def line(self) -> bytes | None:
        """The next line; None when the program has ended."""
        try:
            return await self.reader.readline() or None
        except (ConnectionError, ValueError):
            return None

    async def ended(self) -> MooringError:
        """Why it is gone, with its last words."""
        await asyncio.wait((self.exited,), timeout=1.0)
        code = f" with exit code {self.exited.result()}" if self.exited.done() else ""
        tail = self._launched.stderr.text()
        return Crashed(f'The program of the agent "{self.name}" ended{code}', phase="call", stderr=tail)


@asynccontextmanager
async def started(seat: Seat, launch: Process) -> AsyncGenerator[Program]:
    """Start it; at the end of the block its input ends, and what does not go then is killed, all its descendants
    included. Bounded. Raises MooringError; LaunchMissing when it is not installed."""
    name = seat.agent.name
    async with seat.ground.started(name, launch) as launched:
        assert isinstance(launched.endpoint, Pipes)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(LINE_LIMIT)
        ends = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        incoming, outgoing = await taken_over(
            launched.endpoint, lambda: asyncio.StreamReaderProtocol(reader), lambda: ends
        )
        writer = asyncio.StreamWriter(outgoing, ends, None, loop)
        try:
            yield Program(name, launched, reader, writer)
        finally:
            writer.close()
            try:
                with suppress(OSError):
                    async with asyncio.timeout(1.0):
                        await writer.wait_closed()
            finally:
                incoming.close()
