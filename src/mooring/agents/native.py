"""Agents of type native: pydantic-ai in this process, over the view itself; nothing is started and no key leaves.

The view is a toolset that is asked before each request to the model, so that what changes is seen within a run, too.
Source: pydantic-ai 2, "Toolsets".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from pydantic_ai import Agent, BinaryContent, RunContext, ToolDefinition
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import AgentRunError, ToolFailed, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserPromptPart,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.toolsets.external import TOOL_SCHEMA_VALIDATOR

from mooring.agents.agent import Tell
from mooring.agents.events import AnyEvent, Text, Thought, ToolCall, ToolResult
from mooring.agents.results import shown
from mooring.agents.seat import Seat
from mooring.errors import MooringError


class View(AbstractToolset[None]):
    """What the agent may see, as pydantic-ai wants it."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    @property
    def id(self) -> str:
        return self._seat.workspace

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return {tool["name"]: self._tool(tool) for tool in await self._seat.listed()}

    def _tool(self, tool: dict[str, Any]) -> ToolsetTool[None]:
        definition = ToolDefinition(
            name=tool["name"],
            description=tool.get("description"),
            parameters_json_schema=tool["inputSchema"],
            metadata={"annotations": tool.get("annotations")},
        )
        # The server validates the arguments: its schema is the one that counts.
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=TOOL_SCHEMA_VALIDATOR)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        result = await self._seat.called(name, tool_args, ctx.tool_call_id or "")
        if result.get("isError"):
            raise ToolFailed(shown(result))
        pictures = list(filter(None, map(_binary, result.get("content", ()))))
        return [shown(result), *pictures] if pictures else shown(result)


class NativeDriver:
    """Implements ``agents.agent.Driver``."""

    def __init__(self, seat: Seat) -> None:
        agent = seat.agent
        model: Any = seat.ground.models.get(agent.model, agent.model)
        self._name = agent.name
        self._model = model
        self._agent = Agent[None, str](
            model, deps_type=type(None), instructions=agent.prompt or None, toolsets=[View(seat)]
        )
        self._history: Sequence[ModelMessage] = ()
        self._running: asyncio.Task[Any] | None = None

    async def run(self, prompt: str, tell: Tell) -> None:
        async def handle(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
            async for event in events:
                if (told := _told(event)) is not None:
                    tell(told)

        self._running = asyncio.current_task()
        try:
            done = await self._agent.run(prompt, message_history=self._history, event_stream_handler=handle)
        except (AgentRunError, UserError) as error:
            raise MooringError(f'The agent "{self._name}" failed: {error}') from error
        finally:
            self._running = None
        self._history = done.all_messages()

    async def interrupt(self) -> None:
        """What a cancelled run has said is forgotten."""
        if self._running is not None:
            self._running.cancel()

    async def refresh(self) -> None:
        """The view is looked at before each request anyway."""

    async def sample(self, params: dict[str, Any]) -> dict[str, Any]:
        """``sampling/createMessage`` by the agent's own model."""
        messages: list[ModelMessage] = []
        if params.get("systemPrompt"):
            messages.append(ModelRequest([SystemPromptPart(params["systemPrompt"])]))
        for message in params.get("messages", ()):
            text = shown({"content": _listed(message.get("content", ()))})
            said = message.get("role") == "assistant"
            messages.append(ModelResponse([TextPart(text)]) if said else ModelRequest([UserPromptPart(text)]))
        wanted = {"maxTokens": "max_tokens", "temperature": "temperature", "stopSequences": "stop_sequences"}
        settings: Any = {ours: params[theirs] for theirs, ours in wanted.items() if theirs in params}
        answer = await model_request(self._model, messages, model_settings=settings)
        text = "".join(part.content for part in answer.parts if isinstance(part, TextPart))
        said = {"role": "assistant", "content": {"type": "text", "text": text}}
        return {**said, "model": answer.model_name or "", "stopReason": "endTurn"}


@asynccontextmanager
async def opened(seat: Seat) -> AsyncGenerator[NativeDriver]:
    """The agent, ready to run. Raises MooringError for a model that does not exist."""
    try:
        driver = NativeDriver(seat)
    except (UserError, ImportError, ValueError) as error:
        raise MooringError(f'The model of the agent "{seat.agent.name}" cannot be used: {error}') from error
    if seat.handler.sample is None:
        seat.session.answered_by(msgspec.structs.replace(seat.handler, sample=driver.sample))
    yield driver


def _told(event: AgentStreamEvent) -> AnyEvent | None:
    match event:
        case PartStartEvent(part=TextPart(content=str(text))) if text:
            return Text(text=text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return Text(text=text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return Thought(text=text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
            return Thought(text=text)
        case FunctionToolCallEvent():
            return ToolCall(id=event.part.tool_call_id, tool=event.part.tool_name, arguments=event.part.args_as_dict())
        case FunctionToolResultEvent():
            failed = event.part.outcome != "success"
            return ToolResult(id=event.tool_call_id, text=event.part.model_response_str(), failed=failed)
        case _:
            return None


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]  # pyright: ignore[reportUnknownVariableType]


def _binary(block: dict[str, Any]) -> BinaryContent | None:
    """An image or a sound; None for anything else, or for what is no base64."""
    if block.get("type") not in ("image", "audio"):
        return None
    try:
        data = base64.b64decode(block.get("data", ""), validate=True)
    except (binascii.Error, ValueError):
        return None
    return BinaryContent(data, media_type=block.get("mimeType", "application/octet-stream"))
