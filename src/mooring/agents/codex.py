"""Agents of type codex: ``codex app-server``, one thread for one conversation.

The thread is told its servers in memory, over the pipe: nothing secret is on a command line, in an environment or in a
file. Codex ignores changed lists, and a thread that runs keeps its servers; so when something changed, the thread is
let go and resumed with its servers as they are now, the conversation included. Servers of the user's own Codex
configuration stay beside them. Source: the schemas of ``codex app-server`` 0.169, and what it was seen to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from mooring import __version__
from mooring.agents.agent import Tell
from mooring.agents.codex_wire import JSON, Conversation, conversing
from mooring.agents.events import Text, Thought, ToolCall, ToolResult
from mooring.agents.program import Program, started
from mooring.agents.results import shown
from mooring.agents.seat import Seat
from mooring.config.plan import Direct
from mooring.config.plan_servers import Launch, Process
from mooring.errors import MooringError, UpstreamProtocol

SERVER = "mooring"
"""What Mooring is called in the program."""
START_LIMIT = 20.0
"""Seconds until the program has connected to Mooring."""
CALL_LIMIT = 3600.0
"""Seconds for one call of a tool of Mooring, which has limits of its own."""


def servers(url: str, key: str, direct: tuple[Direct, ...]) -> JSON:
    """All servers in the program's words. Mooring's calls are confirmed where they arrive. Pure."""
    mooring = {
        "url": url,
        "http_headers": {"Authorization": f"Bearer {key}"},
        "startup_timeout_sec": START_LIMIT,
        "tool_timeout_sec": CALL_LIMIT,
        "default_tools_approval_mode": "approve",
    }
    return {SERVER: mooring, **{server.prefix: _server(server) for server in direct}}


def unwritten(launch: Launch | None) -> JSON:
    """Settings that keep the agent's own secrets out of files: Codex's snapshot of the shell holds its environment.
    Pure."""
    return {"features": {"shell_snapshot": False}} if isinstance(launch, Process) and launch.secrets else {}


def _server(server: Direct) -> JSON:
    launch = server.launch
    limits = {"startup_timeout_sec": server.start_timeout, "tool_timeout_sec": server.call_timeout}
    if isinstance(launch, Process):
        command, *args = launch.argv
        cwd = {} if launch.cwd is None else {"cwd": launch.cwd}
        return {"command": command, "args": args, "env": launch.env, **cwd, **limits}
    return {"url": launch.url, "http_headers": launch.headers, **limits}


class _Turn(msgspec.Struct):
    """A turn that goes on."""

    tell: Tell
    over: asyncio.Future[JSON]
    id: str = ""
    spoken: set[str] = set()
    """Messages that were told piece by piece."""
    interrupted: bool = False


class CodexDriver:
    """Implements ``agents.agent.Driver``."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._thread = ""
        self._talked = False
        """Whether the thread has anything in it that could be resumed."""
        self._turn: _Turn | None = None
        self._before = ""
        """The turn before, which may go on although its run was given up."""
        self._states: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        self.conversation: Conversation

    async def run(self, prompt: str, tell: Tell) -> None:
        turn = self._turn = _Turn(tell, asyncio.get_running_loop().create_future(), spoken=set())
        try:
            params = {"threadId": self._thread, "input": [{"type": "text", "text": prompt}]}
            begun = await self.conversation.request("turn/start", params)
            turn.id = begun["turn"]["id"]
            self._talked = True
            if turn.interrupted:
                await self.interrupt()
            await asyncio.wait((turn.over, self.conversation.gone), return_when=asyncio.FIRST_COMPLETED)
            if not turn.over.done():
                self.conversation.gone.result()
            ended = turn.over.result()
        finally:
            self._turn, self._before = None, turn.id or self._before
        if ended["status"] == "failed":
            reason = _message(ended.get("error")) or "the turn failed"
            raise MooringError(f'The agent "{self._seat.agent.name}" failed: {reason}')

    async def interrupt(self) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.interrupted = True  # one that has no name yet is interrupted once it has
        if turn.id:
            with suppress(UpstreamProtocol):  # it ended by itself meanwhile
                await self.conversation.request("turn/interrupt", {"threadId": self._thread, "turnId": turn.id})

    async def refresh(self) -> None:
        """Let the thread go and take it up again with the servers as they are now."""
        agent = self._seat.agent
        told = servers(await self._seat.ground.endpoint(), self._seat.key.key, agent.direct)
        given: dict[str, Any] = {"config": {"mcp_servers": told, **unwritten(agent.launch)}}
        if agent.model:
            given["model"] = agent.model
        if agent.prompt:
            given["developerInstructions"] = agent.prompt
        while not self._states.empty():
            self._states.get_nowait()
        if self._thread and self._talked:
            await self.conversation.request("thread/unsubscribe", {"threadId": self._thread})
            await self.conversation.request("thread/resume", {"threadId": self._thread, "excludeTurns": True, **given})
        else:
            begun = await self.conversation.request("thread/start", given)
            self._thread = begun["thread"]["id"]
        await self._connected()

    async def _connected(self) -> None:
        """Wait until the thread has Mooring's tools. Raises MooringError when it cannot get them."""
        try:
            async with asyncio.timeout(START_LIMIT + 5.0):
                while True:
                    name, status, reason = await self._states.get()
                    if name == SERVER and status in ("failed", "cancelled"):
                        raise MooringError(f"Codex cannot connect to Mooring: {reason or status}")
                    if name == SERVER and status == "ready":
                        return
        except TimeoutError:
            raise MooringError(f"Codex did not connect to Mooring within {START_LIMIT:g} s") from None

    def noted(self, method: str, params: JSON) -> None:
        """A notification of the program."""
        if method == "mcpServer/startupStatus/updated":  # this program has no other thread
            self._states.put_nowait((params["name"], params["status"], str(params.get("error") or "")))
        elif self._turn is not None and params.get("threadId") == self._thread and not self._is_late(params):
            self._said(self._turn, method, params)

    def _is_late(self, params: JSON) -> bool:
        """Whether it is about the turn before."""
        return bool(self._before) and self._before == (params.get("turnId") or params.get("turn", {}).get("id"))

    def _said(self, turn: _Turn, method: str, params: JSON) -> None:
        match method:
            case "item/agentMessage/delta":
                turn.spoken.add(params["itemId"])
                turn.tell(Text(text=params["delta"]))
            case "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta":
                turn.tell(Thought(text=params["delta"]))
            case "item/started":
                _started(params["item"], turn.tell)
            case "item/completed":
                _completed(params["item"], turn)
            case "turn/completed":
                if not turn.over.done():
                    turn.over.set_result(params["turn"])
            case _:
                pass

    async def asked(self, method: str, params: JSON) -> JSON:
        """A question of the program, for its own tools and for servers it connects to itself."""
        match method:
            case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
                tool = "command" if "command" in method else "file_change"
                return {"decision": "decline" if await self._seat.permitted(tool, params) else "accept"}
            case "execCommandApproval" | "applyPatchApproval":
                return {"decision": "denied" if await self._seat.permitted(method, params) else "approved"}
            case "mcpServer/elicitation/request" if "codex_approval_kind" in (params.get("_meta") or {}):
                refused = await self._seat.permitted(str(params.get("serverName")), params)
                return {"action": "decline"} if refused else {"action": "accept", "content": {}}
            case "mcpServer/elicitation/request":
                return await self._seat.handler.elicited(params)
            case _:
                raise UpstreamProtocol(f"Mooring does not answer {method}")


@asynccontextmanager
async def opened(seat: Seat) -> AsyncGenerator[CodexDriver]:
    """Codex with a thread of its own. Raises MooringError."""
    launch = seat.agent.launch
    assert isinstance(launch, Process)
    launch = msgspec.structs.replace(launch, argv=(*launch.argv, "app-server"))
    async with started(seat, launch) as program, _driven(seat, program) as driver:
        yield driver


@asynccontextmanager
async def _driven(seat: Seat, program: Program) -> AsyncGenerator[CodexDriver]:
    driver = CodexDriver(seat)
    async with conversing(program, driver.noted, driver.asked) as conversation:
        driver.conversation = conversation
        hello = {"name": "mooring", "title": "Mooring", "version": __version__}
        await conversation.request("initialize", {"clientInfo": hello, "capabilities": {"experimentalApi": True}})
        await conversation.send({"method": "initialized"})
        await driver.refresh()
        yield driver


def _message(error: JSON | None) -> str:
    return str(error.get("message", "")) if error else ""


def _tool(item: JSON) -> str:
    """A tool's name in events: Mooring's as they are, others behind their server."""
    return item["tool"] if item.get("server") == SERVER else f"{item.get('server')}_{item['tool']}"


def _started(item: JSON, tell: Tell) -> None:
    match item["type"]:
        case "mcpToolCall":
            given = item.get("arguments")
            tell(ToolCall(id=item["id"], tool=_tool(item), arguments=given if isinstance(given, dict) else {}))  # pyright: ignore[reportUnknownArgumentType]
        case "commandExecution":
            tell(ToolCall(id=item["id"], tool="command", arguments={"command": item.get("command")}))
        case "fileChange":
            tell(ToolCall(id=item["id"], tool="file_change", arguments={"changes": item.get("changes")}))
        case _:
            pass


def _completed(item: JSON, turn: _Turn) -> None:
    match item["type"]:
        case "agentMessage" if item["id"] not in turn.spoken:
            turn.tell(Text(text=item.get("text", "")))
        case "mcpToolCall":
            text = _message(item.get("error")) or shown(item.get("result") or {})
            turn.tell(ToolResult(id=item["id"], text=text, failed=item.get("status") == "failed"))
        case "commandExecution":
            failed = item.get("status") != "completed"
            turn.tell(ToolResult(id=item["id"], text=item.get("aggregatedOutput") or "", failed=failed))
        case "fileChange":
            turn.tell(ToolResult(id=item["id"], failed=item.get("status") != "completed"))
        case _:
            pass
