"""Agents of type acp: any program that speaks the Agent Client Protocol on its pipes, version 1.

A session gets its servers when it begins, Mooring among them as a command that holds no key: agents were seen to put
what they are told on command lines of their own. When servers change, the session is closed and resumed with the new
ones, where the agent can do that, and the conversation goes on; other agents follow Mooring's changed lists, and that
is watched. A server that an agent cannot take goes through Mooring instead of being dropped.
Source: agent-client-protocol 0.12; what claude-agent-acp 0.100, codex-acp 2.6 and Gemini CLI 0.61 were seen to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import acp
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    CancelElicitationResponse,
    ClientCapabilities,
    CreateElicitationResponse,
    DeclineElicitationResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    Implementation,
    InitializeResponse,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from mooring import __version__
from mooring.agents import acp_servers
from mooring.agents.agent import Tell
from mooring.agents.events import Text, Thought, ToolCall, ToolResult
from mooring.agents.program import Program, started
from mooring.agents.results import shown
from mooring.agents.seat import Seat
from mooring.config.plan_servers import Process
from mooring.errors import MooringError, UpstreamProtocol
from mooring.launch.environment import child_environment, find_command
from mooring.launch.process import working_folder

HELLO_LIMIT = 60.0
"""Seconds for the first exchange, and for beginning a session: some agents load for long."""
LOOK_LIMIT = 3.0
"""Seconds that an agent has to ask for the lists that it was told have changed."""
SETTLE = 0.3
"""Seconds that it has then to take them up: nothing tells when it has."""

_log = logging.getLogger("mooring")
_Update = ToolCallStart | ToolCallProgress | ToolCallUpdate


class Host:
    """What an agent may ask of us: permissions, and nothing of this machine."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.tell: Tell | None = None
        """Where events go; None between runs, such as while a conversation is played back."""
        self.offered: frozenset[str] = frozenset()
        """Names of Mooring's tools, by which its calls are known; those too that were there at the run's beginning."""
        self._told: dict[str, str] = {}
        """Calls by their id: the tool of Mooring that each is of, "" for the program's own."""
        self._in_order = asyncio.Lock()
        """Held while one thing is told: the library gives each its own task, and a look may take a moment."""

    @asynccontextmanager
    async def telling(self, tell: Tell) -> AsyncGenerator[None]:
        """One run. Calls of another are none of its calls, whatever their ids."""
        self.tell = tell
        self.offered = frozenset()
        self._told.clear()
        try:
            await self.look()
            yield
            async with self._in_order:  # what came before the end
                pass
        finally:
            self.tell = None

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        """Something happened."""
        async with self._in_order:
            await self._updated(update)

    async def _updated(self, update: Any) -> None:
        if self.tell is None:
            return
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self.tell(Text(text=text))
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                self.tell(Thought(text=text))
            case ToolCallStart() | ToolCallProgress():
                tell = self.tell
                await self.look()
                self._called(update)
                if update.status in ("completed", "failed"):
                    failed = update.status == "failed"
                    tell(ToolResult(id=update.tool_call_id, text=_content(update), failed=failed))
            case _:
                pass

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        """The agent asks before a call. Mooring's own calls are confirmed where they arrive."""
        async with self._in_order:
            await self.look()
            self._called(tool_call)
        refused = ""
        if not self._ours(tool_call):
            refused = await self._seat.permitted(tool_call.title or "a tool", _given(tool_call))
        wanted = "reject_once" if refused else "allow_once"
        chosen = next((option.option_id for option in options if option.kind == wanted), None)
        if chosen is None or (self._seat.run is not None and self._seat.run.aborted):
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> CreateElicitationResponse:
        """A server that the agent connects to itself, or the agent, asks the person; only forms are offered."""
        schema = getattr(mode, "requested_schema", None)
        if schema is None:
            return DeclineElicitationResponse(action="decline")
        shown = schema.model_dump(by_alias=True, exclude_none=True)
        said = await self._seat.handler.elicited({"message": message, "requestedSchema": shown})
        kinds = {"accept": AcceptElicitationResponse, "cancel": CancelElicitationResponse}
        return kinds.get(str(said.get("action")), DeclineElicitationResponse).model_validate(said)

    def on_connect(self, conn: acp.Agent) -> None:
        """Nothing to do."""

    async def look(self) -> None:
        """Tools may have come since the run began."""
        self.offered |= {tool["name"] for tool in await self._seat.listed()}

    def _ours(self, call: _Update) -> str:
        """The tool of Mooring that a call is of; "" for the program's own. What was said first holds."""
        if call.tool_call_id in self._told:
            return self._told[call.tool_call_id]
        title = call.title or ""
        told = acp_servers.told(title, _given(call), self.offered)
        return told or (acp_servers.named(title, self.offered) if call.kind in (None, "other") else "")

    def _called(self, call: _Update) -> None:
        """Some agents tell of a call when it begins, some when they ask, some when it is over."""
        if self.tell is not None and call.tool_call_id not in self._told and call.title:
            name = self._told[call.tool_call_id] = self._ours(call)
            given = _given(call)
            inner: dict[str, Any] | None = (
                given["arguments"] if acp_servers.told(call.title, given, self.offered) else given
            )
            self.tell(ToolCall(id=call.tool_call_id, tool=name or call.title, arguments=inner or {}))


class AcpDriver:
    """Implements ``agents.agent.Driver``."""

    def __init__(self, seat: Seat, program: Program, host: Host, agent: acp.Agent, hello: InitializeResponse) -> None:
        self._seat = seat
        self._program = program
        self._host = host
        self._agent = agent
        self._session = ""
        self._talked = False
        self._given: list[acp_servers.Server] = []
        able = hello.agent_capabilities
        kinds = able.mcp_capabilities if able else None
        self._http, self._sse = bool(kinds and kinds.http), bool(kinds and kinds.sse)
        sessions = able.session_capabilities if able else None
        self._closes = bool(sessions and sessions.close is not None)
        self._resumes = bool(sessions and sessions.resume is not None)

    async def run(self, prompt: str, tell: Tell) -> None:
        instructions = self._seat.agent.prompt
        text = prompt if self._talked or not instructions else f"{instructions}\n\n{prompt}"
        async with self._host.telling(tell):
            ended = await self._asked(self._agent.prompt(session_id=self._session, prompt=[acp.text_block(text)]), None)
        self._talked = True
        if ended.stop_reason not in ("end_turn", "cancelled"):
            raise MooringError(f'The agent "{self._seat.agent.name}" stopped: {ended.stop_reason}')

    async def interrupt(self) -> None:
        with suppress(acp.RequestError, ConnectionError):
            await self._agent.cancel(session_id=self._session)

    async def refresh(self) -> None:
        """Give the session its servers as they are now, or see to it that the agent looks at them."""
        servers = await self._servers()
        if not self._session or not self._talked:
            self._seat.looked.clear()
            begun = await self._asked(self._agent.new_session(cwd=self._folder(), mcp_servers=servers), HELLO_LIMIT)
            self._session = begun.session_id
            await self._looked()
        elif self._resumes:
            if self._closes:  # a session that lives keeps its servers, with some agents
                await self._asked(self._agent.close_session(self._session), HELLO_LIMIT)
            self._seat.looked.clear()
            again = self._agent.resume_session(session_id=self._session, cwd=self._folder(), mcp_servers=servers)
            await self._asked(again, HELLO_LIMIT)
            await self._looked()
        else:
            await self._noticed(servers)
        self._given = servers

    async def _noticed(self, servers: list[acp_servers.Server]) -> None:
        """The session cannot be given other servers: it can only be told by Mooring's endpoint."""
        if servers != self._given:
            fresh = [s.server for s in self._seat.agent.direct if s.prefix not in {given.name for given in self._given}]
            await self._seat.through_mooring(fresh, "a running session of this agent takes no further servers")
        await self._looked()

    async def _looked(self) -> None:
        """Wait until the agent has asked for its lists: until then it would begin a turn with those of before."""
        try:
            async with asyncio.timeout(LOOK_LIMIT):
                await self._seat.looked.wait()
            await asyncio.sleep(SETTLE)
        except TimeoutError:
            _log.warning('The agent "%s" did not look at its changed tools.', self._seat.agent.name)

    async def _servers(self) -> list[acp_servers.Server]:
        unable = acp_servers.beyond(self._seat.agent.direct, http=self._http, sse=self._sse)
        if unable:
            await self._seat.through_mooring(unable, "this agent does not speak its transport")
        mooring = acp_servers.mooring(*await self._seat.ground.shim(self._seat.workspace))
        return [mooring, *(acp_servers.direct(server, self._absolute) for server in self._seat.agent.direct)]

    def _folder(self) -> str:
        launch = self._seat.agent.launch
        assert isinstance(launch, Process)
        return working_folder(launch.cwd, child_environment(launch.env, {}, os.environ))

    def _absolute(self, command: str) -> str:
        launch = self._seat.agent.launch
        assert isinstance(launch, Process)
        return find_command(command, child_environment(launch.env, {}, os.environ), self._folder())

    async def _asked(self, request: Any, limit: float | None) -> Any:
        return await _answer(self._program, request, limit)


@asynccontextmanager
async def opened(seat: Seat) -> AsyncGenerator[AcpDriver]:
    """The agent with a session of its own. Raises MooringError."""
    launch = seat.agent.launch
    assert isinstance(launch, Process)
    async with started(seat, launch) as program:
        host = Host(seat)
        # The library answers for what a client does not have: files and terminals of this machine.
        client = cast("acp.Client", host)
        connection = acp.connect_to_agent(client, program.writer, program.reader, use_unstable_protocol=True)
        try:
            yield await _met(seat, program, host, connection)
        finally:
            await connection.close()


async def _met(seat: Seat, program: Program, host: Host, connection: Any) -> AcpDriver:
    hello = connection.initialize(
        protocol_version=acp.PROTOCOL_VERSION,
        client_capabilities=_capabilities(seat),
        client_info=Implementation(name="mooring", title="Mooring", version=__version__),
    )
    answer: InitializeResponse = await _answer(program, hello, HELLO_LIMIT)
    if answer.protocol_version != acp.PROTOCOL_VERSION:
        raise UpstreamProtocol(
            f'The agent "{seat.agent.name}" speaks version {answer.protocol_version} of the Agent Client Protocol; '
            f"Mooring speaks {acp.PROTOCOL_VERSION}."
        )
    driver = AcpDriver(seat, program, host, connection, answer)
    await driver.refresh()
    return driver


def _capabilities(seat: Seat) -> ClientCapabilities:
    """Forms for the person, where somebody can be asked. Not yet a stable part of the protocol."""
    forms = ElicitationCapabilities(form=ElicitationFormCapabilities())
    return ClientCapabilities(elicitation=forms if seat.handler.elicit is not None else None)


async def _answer(program: Program, request: Coroutine[Any, Any, Any], limit: float | None) -> Any:
    """The answer to a request. Raises MooringError when it is refused, late, or the agent is gone."""
    answer = asyncio.ensure_future(request)
    try:
        done, _ = await asyncio.wait((answer, program.exited), timeout=limit, return_when="FIRST_COMPLETED")
        if answer in done:
            return answer.result()
        raise await program.ended() if done else MooringError(f'The agent "{program.name}" does not answer.')
    except acp.RequestError as error:
        raise MooringError(f'The agent "{program.name}" failed: {error}') from error
    except ConnectionError:
        raise await program.ended() from None
    finally:
        answer.cancel()


def _given(call: _Update) -> dict[str, Any]:
    return call.raw_input if isinstance(call.raw_input, dict) else {}  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _content(update: _Update) -> str:
    blocks = [block.content.model_dump() for block in update.content or () if block.type == "content"]
    raw = update.raw_output
    if not blocks and isinstance(raw, dict) and isinstance(raw.get("result"), dict):  # pyright: ignore[reportUnknownMemberType]
        return shown(cast("dict[str, Any]", raw["result"]))
    return shown({"content": blocks})
