"""AG-UI servers that keep state, or that ask before they call a tool of their own: real ones, of pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from ag_ui.core import EventType, StateDeltaEvent, StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent as Pydantic
from pydantic_ai import DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.ui import StateDeps

import agent_kinds
import mooring
from mooring.agents.ag_ui_round import Round
from mooring.agents.agent import Agent
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.testing.daemon import server
from mooring.testing.model import Model


class Notes(BaseModel):
    """What the server keeps with its client."""

    items: list[str] = []


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@asynccontextmanager
async def opened(served: Pydantic[Any, Any], handler: Handler | None = None, **given: Any) -> AsyncGenerator[Agent]:
    async with agent_kinds.serving(served, **given) as url:
        config = {
            "mcp_servers": {"box": server()},
            "agents": {"a": {"type": "ag_ui", "url": url, "mcp_servers": ["box"]}},
        }
        async with mooring.open(config) as m, m.agents(handler) as pool, pool.agent("a") as agent:
            yield agent


async def test_the_state_of_a_server_comes_back_to_it_with_each_run(model: Model) -> None:
    """A29: snapshots and deltas add up, over rounds and runs."""
    seen: list[list[str]] = []
    async with agent_kinds.scripted(model) as chat:
        served = Pydantic(chat, deps_type=StateDeps[Notes])

        @served.tool
        async def note(ctx: RunContext[StateDeps[Notes]], text: str) -> ToolReturn:
            """Takes a note"""
            seen.append(list(ctx.deps.state.items))
            if not ctx.deps.state.items:
                event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot={"items": [text]})
            else:
                added = [{"op": "add", "path": "/items/-", "value": text}]
                event = StateDeltaEvent(type=EventType.STATE_DELTA, delta=added)
            return ToolReturn("noted", metadata=[event])

        async with opened(served, deps=StateDeps(Notes())) as agent:
            for text in ("one", "two", "three"):
                result = await agent.run(f'%call note {{"text": "{text}"}}\n%call box_counter\n%say ok')
                assert (result.text, result.calls) == ("ok", ("note", "box_counter"))
    assert seen == [[], ["one"], ["one", "two"]]


@pytest.mark.parametrize(
    ("verdict", "sent", "stop"), [("allow", ["it"], "done"), ("skip", [], "done"), ("abort", [], "aborted")]
)
async def test_a_server_that_asks_first_goes_on_with_what_the_person_said(
    model: Model, verdict: Verdict, sent: list[str], stop: str
) -> None:
    """A29 A31: its run ends with an interrupt, the next one resumes it."""
    asked: list[Approval] = []
    letters: list[str] = []

    async def approve(approval: Approval) -> Verdict:
        asked.append(approval)
        return verdict

    async with agent_kinds.scripted(model) as chat:
        served = Pydantic(chat, output_type=[str, DeferredToolRequests])

        @served.tool_plain(requires_approval=True)
        def send(letter: str) -> str:
            """Sends"""
            letters.append(letter)
            return f"sent {letter}"

        async with opened(served, Handler(approve=approve)) as agent:
            result = await agent.run('%call send {"letter": "it"}\n%call box_counter\n%say ok')
    assert letters == sent
    assert len(asked) == 1
    assert result.stop == stop
    if stop == "done":
        assert result.text == "ok"


async def test_a_delta_that_does_not_fit_is_an_error_of_the_run() -> None:
    """A29"""
    got = Round(lambda event: None, {"a": 1})
    got.took({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a", "value": 2}]})
    assert (got.state, got.error) == ({"a": 2}, "")
    got.took({"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/nothing"}]})
    assert "does not fit" in got.error
    fresh = Round(lambda event: None)
    fresh.took({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/b", "value": [msgspec.json.decode("1e2")]}]})
    assert fresh.state == {"b": [100.0]}
