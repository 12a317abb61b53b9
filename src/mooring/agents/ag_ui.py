"""Agents of type ag_ui: a server that runs the model, and asks us to carry out the tools that each request brings.

Each request has the tools as they are at that moment. Calls of one run are carried out here, at the same time, through
the same door as everybody's, and their results go back with the next request, failures as results. The server's own
tools are its own business. Source: AG-UI 1.0, package ag-ui-protocol.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from ag_ui.core import PROTOCOL_VERSION, RunAgentInput

from mooring.agents.ag_ui_round import JSON, Call, Round, result
from mooring.agents.agent import Tell
from mooring.agents.events import ToolResult
from mooring.agents.results import shown
from mooring.agents.seat import Seat
from mooring.errors import MooringError, UpstreamProtocol
from mooring.launch.base import Url
from mooring.wire import jsonrpc
from mooring.wire.http_client import HttpClient, Reply, tls_context
from mooring.wire.sse import Events

ROUNDS = 32
"""Requests that one prompt may lead to."""
SHOWN = 300
"""Characters of a refusal that are shown."""


class AgUiDriver:
    """Implements ``agents.agent.Driver``."""

    def __init__(self, seat: Seat, client: HttpClient) -> None:
        self._seat = seat
        self._client = client
        self._thread = str(uuid.uuid4())
        self._state: Any = None
        self._messages: list[JSON] = []
        if seat.agent.prompt:
            self._messages.append({"id": "instructions", "role": "system", "content": seat.agent.prompt})
        self._running: asyncio.Task[Any] | None = None

    async def run(self, prompt: str, tell: Tell) -> None:
        self._running = asyncio.current_task()
        asked = {"id": str(uuid.uuid4()), "role": "user", "content": prompt}
        messages, resume = [*self._messages, asked], list[JSON]()
        try:
            for _ in range(ROUNDS):
                tools = await self._seat.listed()
                done = await self._round(messages, tools, resume, tell)
                messages = done.snapshot or [*messages, *done.said()]
                ours = {tool["name"] for tool in tools}
                pending = [call for call in done.open() if call.name in ours]
                messages = [*messages, *await self._carried_out(pending, tell)]
                resume = [await self._resumed(interrupt) for interrupt in done.interrupts]
                if not pending and not resume:
                    self._messages = messages
                    return
        finally:
            self._running = None
        raise MooringError(f'The agent "{self._seat.agent.name}" called tools in {ROUNDS} rounds without an end.')

    async def interrupt(self) -> None:
        """The request is broken off; what a cancelled run has said is forgotten."""
        if self._running is not None:
            self._running.cancel()

    async def refresh(self) -> None:
        """Each request has the tools as they are."""

    async def _round(self, messages: list[JSON], tools: list[JSON], resume: list[JSON], tell: Tell) -> Round:
        """One request. Raises MooringError when the server fails, or ends without saying so."""
        body = RunAgentInput.model_validate(
            {
                "threadId": self._thread,
                "runId": str(uuid.uuid4()),
                "protocolVersion": PROTOCOL_VERSION,
                "state": self._state,
                "messages": messages,
                "tools": [_tool(tool) for tool in tools],
                "context": [],
                "forwardedProps": {},
                "resume": resume or None,
            }
        )
        content = body.model_dump_json(by_alias=True, exclude_none=True).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        got = Round(tell, self._state)
        async with self._client.exchange("POST", headers, content) as reply:
            if not reply.streams:
                raise UpstreamProtocol(await _refusal(self._seat.agent.name, reply))
            async for event in reply.events(Events()):
                got.took(_decoded(event.data))
        if got.error or not got.finished:
            reason = got.error or "its answer ended in the middle"
            raise MooringError(f'The agent "{self._seat.agent.name}" failed: {reason}')
        self._state = got.state
        return got

    async def _carried_out(self, calls: list[Call], tell: Tell) -> list[JSON]:
        """The answers to calls, in their order."""

        async def one(call: Call) -> JSON:
            given = call.given()
            if given is None:
                text, failed = f"The arguments are not a JSON object: {call.arguments}", True
            else:
                said = await self._seat.called(call.name, given, call.id)
                text, failed = shown(said), bool(said.get("isError"))
            tell(ToolResult(id=call.id, text=text, failed=failed))
            return result(call, text, failed)

        return list(await asyncio.gather(*map(one, calls)))

    async def _resumed(self, interrupt: JSON) -> JSON:
        """What a person says to a question of the server itself."""
        asked = {"message": interrupt.get("message"), "reason": interrupt.get("reason")}
        refused = await self._seat.permitted(str(interrupt.get("reason") or "interrupt"), asked)
        return {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": not refused}}


@asynccontextmanager
async def opened(seat: Seat) -> AsyncGenerator[AgUiDriver]:
    """A conversation with the server; nothing is sent before the first prompt. Raises MooringError."""
    agent = seat.agent
    assert agent.launch is not None
    async with seat.ground.started(agent.name, agent.launch) as remote:
        assert isinstance(remote.endpoint, Url)
        await asyncio.to_thread(tls_context)
        async with HttpClient(f'The agent "{agent.name}"', remote.endpoint.url, remote.endpoint.headers) as client:
            yield AgUiDriver(seat, client)


def _tool(tool: JSON) -> JSON:
    return {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool["inputSchema"]}


def _decoded(data: bytes) -> JSON:
    try:
        return msgspec.convert(jsonrpc.value(data), dict[str, Any])
    except (ValueError, RecursionError):
        return {}


async def _refusal(name: str, reply: Reply) -> str:
    text = (await reply.body()).decode("utf-8", "replace")[:SHOWN]
    return f'The agent "{name}" answered with status {reply.status}: {text}'
