"""Agents of type claude_code: Claude Code through the Claude Agent SDK.

The program is started here and not by the SDK, so that it gets its own secrets and not this process's environment, and
dies with Mooring. Its servers are told over its control channel, never on its command line or in a file: the whole set
at once, confirmed by its status. Names of tools are Mooring's; ``mcp__mooring__`` in front of them stays inside.
Source: claude-agent-sdk 0.2 ``Transport`` and control requests (``mcp_set_servers``, ``mcp_status``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    ContentBlock,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    Transport,
    UserMessage,
)

from mooring.agents.agent import Tell
from mooring.agents.events import Text, Thought, ToolCall, ToolResult
from mooring.agents.handler import Handler
from mooring.agents.program import Program, started
from mooring.agents.results import shown
from mooring.agents.seat import Seat
from mooring.config.plan import Direct
from mooring.config.plan_servers import Process
from mooring.errors import Crashed, MooringError, UpstreamProtocol
from mooring.tasks import Tasks

SERVER = "mooring"
"""What Mooring is called in the program."""
PREFIX = f"mcp__{SERVER}__"
CONTROL_LIMIT = 30.0
"""Seconds for the answer to a control request."""
CONNECT_LIMIT = 15.0
"""Seconds until the program has connected to its servers, and listed them."""
LOOK = 0.05
"""Seconds between two looks at its status."""

_log = logging.getLogger("mooring")


def arguments(model: str, prompt: str) -> tuple[str, ...]:
    """What follows the command. Nothing secret: it can be seen by everybody. Pure."""
    flags = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
    flags += ["--permission-prompt-tool", "stdio", "--allowedTools", f"mcp__{SERVER}", "--strict-mcp-config"]
    flags += ["--model", model] if model else []
    flags += ["--append-system-prompt", prompt] if prompt else []
    return tuple(flags)


def servers(url: str, key: str, direct: tuple[Direct, ...]) -> dict[str, dict[str, Any]]:
    """All servers in the program's words. Pure."""
    mooring = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {key}"}}
    return {SERVER: mooring, **{server.prefix: _server(server) for server in direct}}


def _server(server: Direct) -> dict[str, Any]:
    launch = server.launch
    if isinstance(launch, Process):
        command, *args = launch.argv
        return {"type": "stdio", "command": command, "args": args, "env": launch.env}
    return {"type": launch.transport, "url": launch.url, "headers": launch.headers}


class _Response(msgspec.Struct):
    """The answer to a control request."""

    request_id: str = ""
    subtype: str = ""
    response: dict[str, Any] | None = None
    error: str = ""


class _Asked(msgspec.Struct):
    """A control request of the program; those that the SDK does not know are answered here."""

    request_id: str = ""
    request: dict[str, Any] = {}


class _Offered(msgspec.Struct):
    name: str


class _Status(msgspec.Struct):
    """What the program says of one of its servers."""

    name: str
    status: str = "pending"
    error: str | None = None
    tools: list[_Offered] = []


class Channel(Transport):
    """The SDK's way to the program, and beside it control requests that the SDK does not know, both ways."""

    def __init__(self, program: Program, handler: Handler, tasks: Tasks) -> None:
        """``tasks`` owns the answers to the program's questions."""
        self._program = program
        self._handler = handler
        self._tasks = tasks
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._ready = True

    async def connect(self) -> None:
        """It runs already."""

    async def write(self, data: str) -> None:
        await self._program.send(data.rstrip("\n").encode())

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._messages()

    async def close(self) -> None:
        """Who started the program ends it."""
        self._ready = False

    def is_ready(self) -> bool:
        return self._ready

    async def end_input(self) -> None:
        """Its input ends when it is to end."""

    async def control(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a control request that the SDK has no method for. Raises UpstreamProtocol."""
        self._count += 1
        id = f"mooring_{self._count}"
        answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            message = {"type": "control_request", "request_id": id, "request": request}
            async with asyncio.timeout(CONTROL_LIMIT):
                await self._program.send(msgspec.json.encode(message))
                return await answer
        except TimeoutError:
            raise UpstreamProtocol(f"Claude Code did not answer {request['subtype']}; is it too old?") from None
        finally:
            del self._waiting[id]

    async def _messages(self) -> AsyncGenerator[dict[str, Any]]:
        while (line := await self._program.line()) is not None:
            try:
                message = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                continue
            if not self._ours(message):
                yield message
        raise await self._program.ended()

    def _ours(self, message: dict[str, Any]) -> bool:
        if message.get("type") == "control_request":
            asked = msgspec.convert(message, _Asked)
            elicits = asked.request.get("subtype") == "elicitation"
            if elicits:
                self._tasks.create_task(self._elicited(asked))
            return elicits
        if message.get("type") != "control_response":
            return False
        response = msgspec.convert(message.get("response"), _Response)
        waiting = self._waiting.get(response.request_id)
        if waiting is None:
            return False
        if not waiting.done():
            if response.subtype == "success":
                waiting.set_result(response.response or {})
            else:
                waiting.set_exception(UpstreamProtocol(f"Claude Code: {response.error}"))
        return True

    async def _elicited(self, asked: _Asked) -> None:
        """A server that the program connects to itself asks the person."""
        form = {**asked.request, "requestedSchema": asked.request.get("requested_schema")}
        said = await self._handler.elicited(form)
        response = {"subtype": "success", "request_id": asked.request_id, "response": said}
        with suppress(Crashed):
            await self._program.send(msgspec.json.encode({"type": "control_response", "response": response}))


class ClaudeDriver:
    """Implements ``agents.agent.Driver``."""

    def __init__(self, seat: Seat, channel: Channel) -> None:
        self._seat = seat
        self._channel = channel
        self._told: dict[str, Any] = {}
        self._interrupted = False
        self._unanswered = False
        """Whether a prompt was sent whose result has not come: its run was given up before."""
        self.client = ClaudeSDKClient(ClaudeAgentOptions(can_use_tool=self._permit), transport=channel)

    async def run(self, prompt: str, tell: Tell) -> None:
        self._interrupted = False
        try:
            await self._ended()
            self._unanswered = True
            await self.client.query(prompt)
            async for message in self.client.receive_response():
                self._unanswered = not isinstance(message, ResultMessage)
                match message:
                    case AssistantMessage() | UserMessage():
                        _tell(message.content, tell)
                    case ResultMessage(is_error=True) if not self._interrupted:
                        reason = message.result or message.subtype
                        raise MooringError(f'The agent "{self._seat.agent.name}" failed: {reason}')
                    case _:
                        pass
        except ClaudeSDKError as error:
            raise MooringError(f'The agent "{self._seat.agent.name}" failed: {error}') from error

    async def _ended(self) -> None:
        """Let go of what is left of a run that was given up. Raises MooringError when it goes on."""
        if self._unanswered:
            try:
                async with asyncio.timeout(CONTROL_LIMIT):
                    async for _ in self.client.receive_response():
                        pass
            except TimeoutError:
                raise MooringError(
                    f'The agent "{self._seat.agent.name}" is still busy with what was cancelled. '
                    "Try again later, or open it anew."
                ) from None
            self._unanswered = False

    async def interrupt(self) -> None:
        self._interrupted = True
        await self.client.interrupt()

    async def refresh(self) -> None:
        """Tell the program its whole set of servers where that changed, and wait until it knows Mooring's tools."""
        wanted = servers(await self._seat.ground.endpoint(), self._seat.key.key, self._seat.agent.direct)
        if wanted != self._told:
            answer = await self._channel.control({"subtype": "mcp_set_servers", "servers": wanted})
            self._told = wanted
            for name, error in msgspec.convert(answer.get("errors") or {}, dict[str, str]).items():
                _log.warning("Claude Code cannot use the server %s: %s", name, error)
        if not await self._caught_up():
            await self.client.reconnect_mcp_server(SERVER)
            if not await self._caught_up():
                raise MooringError(f'The agent "{self._seat.agent.name}" did not take up its changed tools.')

    async def _caught_up(self) -> bool:
        """Whether the program lists what Mooring offers, after some time at the latest. Raises MooringError when it
        cannot connect."""
        deadline = asyncio.get_running_loop().time() + CONNECT_LIMIT
        while asyncio.get_running_loop().time() < deadline:
            known = {server.name: server for server in await self._status()}
            mooring = known.get(SERVER, _Status(SERVER))
            if mooring.status in ("failed", "needs-auth", "disabled"):
                raise MooringError(f"Claude Code cannot connect to Mooring: {mooring.error or mooring.status}")
            pending = any(known.get(name, _Status(name)).status == "pending" for name in self._told)
            offered = {tool["name"] for tool in await self._seat.listed()}
            if not pending and offered <= {tool.name.removeprefix(PREFIX) for tool in mooring.tools}:
                return True
            await asyncio.sleep(LOOK)
        return False

    async def _status(self) -> list[_Status]:
        return msgspec.convert((await self.client.get_mcp_status())["mcpServers"], list[_Status])

    async def _permit(
        self, tool: str, given: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        """The program asks for a tool that is not Mooring's, whose calls are confirmed where they arrive."""
        refusal = await self._seat.permitted(tool, given)
        if not refusal:
            return PermissionResultAllow()
        return PermissionResultDeny(message=refusal, interrupt=bool(self._seat.run and self._seat.run.aborted))


@asynccontextmanager
async def opened(seat: Seat) -> AsyncGenerator[ClaudeDriver]:
    """Claude Code, connected to its servers. Raises MooringError."""
    agent = seat.agent
    assert isinstance(agent.launch, Process)
    argv = (*agent.launch.argv, *arguments(agent.model, agent.prompt))
    async with started(seat, msgspec.structs.replace(agent.launch, argv=argv)) as program, Tasks() as tasks:
        driver = ClaudeDriver(seat, Channel(program, seat.handler, tasks))
        try:
            await driver.client.connect()
        except ClaudeSDKError as error:
            raise MooringError(f'The agent "{agent.name}" did not start: {error}') from error
        try:
            await driver.refresh()
            yield driver
        finally:
            await driver.client.disconnect()


def _tell(content: str | list[ContentBlock], tell: Tell) -> None:
    for block in content if isinstance(content, list) else ():
        match block:
            case TextBlock():
                tell(Text(text=block.text))
            case ThinkingBlock():
                tell(Thought(text=block.thinking))
            case ToolUseBlock():
                tell(ToolCall(id=block.id, tool=block.name.removeprefix(PREFIX), arguments=block.input))
            case ToolResultBlock():
                said = block.content if isinstance(block.content, str) else shown({"content": block.content or ()})
                tell(ToolResult(id=block.tool_use_id, text=said, failed=bool(block.is_error)))
            case _:
                pass
