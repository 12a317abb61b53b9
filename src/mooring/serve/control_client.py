"""The client end of the control socket: verbs to the daemon, one JSON-RPC line each. Used by ``facade.connect``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from mooring.config.home import Home
from mooring.errors import DaemonAbsent, MooringError
from mooring.facade import Heard
from mooring.wire import jsonrpc

LINE_LIMIT = 256 << 20
"""Bytes of one line: a tool result may be large."""


class Message(msgspec.Struct):
    """One line from the daemon."""

    id: int | None = None
    method: str | None = None
    params: Any = None
    result: Any = None
    error: dict[str, Any] | None = None


class RemoteError(MooringError):
    """The daemon could not do it."""

    def __init__(self, error: dict[str, Any]) -> None:
        facts = dict(error.get("data") or {})
        kind = facts.pop("kind", None)
        code = facts.pop("exit_code", None)
        super().__init__(str(error.get("message", "")), **facts)
        if kind:
            self.kind = kind  # type: ignore[misc]
        if code:
            self.exit_code = code  # type: ignore[misc]


class ControlClient:
    """One connection; verbs one after the other or at the same time."""

    def __init__(self, home: Home, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._home = home
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, tuple[asyncio.Future[Any], Heard | None]] = {}
        self._next = 0
        self._gone = ""
        """Why nothing will be answered any more; "" while the daemon is there."""

    async def invoke(self, verb: str, parameters: Mapping[str, Any], heard: Heard | None = None) -> Any:
        """Run a verb in the daemon. What ``heard`` raises is raised here."""
        if self._gone:
            raise DaemonAbsent(self._gone)
        self._next += 1
        number = self._next
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (future, heard)
        line = jsonrpc.text({"jsonrpc": "2.0", "id": number, "method": verb, "params": parameters})
        try:
            try:
                self._writer.write(line + b"\n")
                await self._writer.drain()
            except ConnectionError:
                raise DaemonAbsent("The Mooring daemon went away.") from None
            return await future
        finally:
            self._waiting.pop(number, None)

    def agents(self, handler: Any, models: Any) -> Any:
        """See ``facade.Mooring.agents``: they run here, their servers in the daemon."""
        from mooring.serve.borrowed import agents

        return agents(self._home, handler, models)

    async def listen(self) -> None:
        """Read until the daemon goes away."""
        reason = "The Mooring daemon went away before it answered."
        try:
            while line := await self._reader.readline():
                self._received(msgspec.convert(jsonrpc.value(line), Message))
        except ConnectionError:
            pass
        except ValueError as error:
            reason = f"The Mooring daemon and this client do not understand each other: {error}"
        self._gone = reason
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(DaemonAbsent(reason))

    def _received(self, message: Message) -> None:
        if message.method is not None:
            self._told(*message.params)
            return
        if message.id is None:
            raise ValueError((message.error or {}).get("message", "an answer to nothing"))
        waiting = self._waiting.get(message.id)
        if waiting is None or waiting[0].done():
            return
        if message.error is not None:
            waiting[0].set_exception(RemoteError(message.error))
        else:
            waiting[0].set_result(message.result)

    def _told(self, number: int, what: str, data: Any) -> None:
        """The daemon reports on a verb under way. A listener that fails must not take the other verbs with it."""
        future, heard = self._waiting.get(number, (None, None))
        if future is None or heard is None or future.done():
            return
        try:
            heard(what, data)
        except Exception as error:
            future.set_exception(error)


@asynccontextmanager
async def connected(home: Home | None = None) -> AsyncGenerator[ControlClient, None]:
    """A connection to the daemon of ``home``. Raises DaemonAbsent."""
    place = home or Home.locate()
    try:
        reader, writer = await asyncio.open_unix_connection(str(place.socket), limit=LINE_LIMIT)
    except OSError:
        raise DaemonAbsent from None
    client = ControlClient(place, reader, writer)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
    finally:
        listening.cancel()
        writer.close()
        with suppress(asyncio.CancelledError):
            await listening
