"""The conversation with ``codex app-server``: lines of JSON-RPC without the member ``jsonrpc``, both ways.

Used by ``agents.codex``. Knows no method. Source: ``codex app-server generate-json-schema --experimental`` of 0.169.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from mooring.agents.program import Program
from mooring.errors import Crashed, MooringError, UpstreamProtocol
from mooring.tasks import Tasks

LIMIT = 60.0
"""Seconds for the answer to one request; turns are told by notifications."""

JSON = dict[str, Any]
Noted = Callable[[str, JSON], None]
Asked = Callable[[str, JSON], Awaitable[JSON]]
"""Answers a request of the program."""


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str = ""
    params: JSON | None = None
    result: JSON | None = None
    error: JSON | None = None


class Conversation:
    """One conversation. ``conversing`` makes it."""

    def __init__(self, program: Program, noted: Noted, asked: Asked, tasks: Tasks) -> None:
        self._program = program
        self._noted = noted
        self._asked = asked
        self._tasks = tasks
        self._last = 0
        self._waiting: dict[int | str, asyncio.Future[JSON]] = {}
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when nothing more is heard of the program, with the reason."""
        self.gone.add_done_callback(lambda gone: gone.exception())

    async def request(self, method: str, params: JSON) -> JSON:
        """The result of a request. Raises UpstreamProtocol when it is refused or not answered, Crashed."""
        if self.gone.done():
            self.gone.result()  # raises
        self._last = number = self._last + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(LIMIT):
                await self.send({"id": number, "method": method, "params": params})
                return await answer
        except TimeoutError:
            raise UpstreamProtocol(f"Codex did not answer {method} within {LIMIT:g} s") from None
        finally:
            del self._waiting[number]

    async def send(self, message: JSON) -> None:
        """Send anything."""
        await self._program.send(msgspec.json.encode(message))

    async def listen(self) -> None:
        """Read until the program is gone or not understood."""
        while (line := await self._program.line()) is not None:
            try:
                self._took(msgspec.json.decode(line, type=_Message))
            except msgspec.DecodeError:
                continue  # a stray line on stdout
            except Exception as error:  # of another version, perhaps: better than a run that never ends
                self._end(UpstreamProtocol(f"Codex sent what is not understood ({type(error).__name__}: {error})"))
                return
        self._end(await self._program.ended())

    def _end(self, error: MooringError) -> None:
        self.gone.set_exception(error)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _took(self, message: _Message) -> None:
        if message.method and message.id is not None:
            self._tasks.create_task(self._answer(message.id, message.method, message.params or {}))
        elif message.method:
            self._noted(message.method, message.params or {})
        elif message.id is not None and (waiting := self._waiting.get(message.id)) and not waiting.done():
            if message.error is None:
                waiting.set_result(message.result or {})
            else:
                waiting.set_exception(UpstreamProtocol(f"Codex: {message.error.get('message')}"))

    async def _answer(self, id: int | str, method: str, params: JSON) -> None:
        said: JSON
        try:
            said = {"result": await self._asked(method, params)}
        except MooringError as error:
            said = {"error": {"code": -32601, "message": str(error)}}
        with suppress(Crashed):  # which the run is told
            await self.send({"id": id, **said})


@asynccontextmanager
async def conversing(program: Program, noted: Noted, asked: Asked) -> AsyncGenerator[Conversation]:
    """Converse as long as the block lasts."""
    async with Tasks() as tasks:
        conversation = Conversation(program, noted, asked, tasks)
        tasks.create_task(conversation.listen())
        yield conversation
