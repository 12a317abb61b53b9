"""What comes in between: a second caller, a close, a cancellation or a reload, while something of an agent goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

import mooring
from mooring.agents import native
from mooring.agents.agent import Driver
from mooring.agents.events import AnyEvent, Finished, Text
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.agents.pool import AgentPool
from mooring.agents.seat import Run, Seat
from mooring.errors import ConfigError, MooringError, StoreError
from mooring.serve.app import App
from mooring.testing import wait_for

AGENT = {"type": "native", "model": "test"}
CONFIG: dict[str, Any] = {"agents": {"a": AGENT}, "teams": {"crew": {"members": ["a"]}}}


@asynccontextmanager
async def opened(handler: Handler | None = None, config: Any = CONFIG) -> AsyncGenerator[tuple[AgentPool, App]]:
    models = {"test": TestModel(call_tools=[])}
    async with asyncio.timeout(60), mooring.open(config) as m, m.agents(handler, models) as pool:
        yield pool, m._control._app


def greet() -> str:
    """Says hello."""
    return "hello"


async def test_of_two_who_open_an_agent_at_the_same_moment_one_has_it() -> None:
    async with opened() as (pool, app):
        agent = pool.agent("a")
        both = await asyncio.gather(agent.__aenter__(), agent.__aenter__(), return_exceptions=True)
        assert both[0] is agent
        assert isinstance(both[1], MooringError)
        assert "open already" in str(both[1])
        assert len(app.keys.rows()) == 1
        await agent.__aexit__()
        assert app.keys.rows() == []


async def test_who_opens_an_agent_that_is_just_being_closed_gets_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending, end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(seat: Seat) -> AsyncGenerator[Driver]:
        async with native.opened(seat) as driver:
            yield driver
        ending.set()
        await end.wait()

    async with opened() as (pool, app):
        agent = pool.agent("a")
        with monkeypatch.context() as patch:
            patch.setattr("mooring.agents.agent.adapter", lambda _: SimpleNamespace(opened=slow))
            await agent.__aenter__()
        closing = asyncio.create_task(agent.__aexit__())
        await ending.wait()
        again = asyncio.create_task(agent.__aenter__())
        await asyncio.wait((again,), timeout=0.2)  # without a lock it is open by then
        end.set()
        await asyncio.gather(closing, again)
        assert list(app.relay.stewards) == ["agent/a"]
        assert [row.id for row in app.keys.rows()] == [agent._seat.key.id]
        assert (await agent.run("hello")).stop == "done"
        await agent.__aexit__()


async def test_an_agent_that_could_not_be_looked_at_can_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (pool, _):
        agent = pool.agent("a")

        async def failing() -> Any:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(agent._seat, "listed", failing)
            with pytest.raises(StoreError):
                await agent.__aenter__()
        async with agent:
            assert (await agent.run("hello")).stop == "done"


async def test_two_prompts_for_a_team_at_the_same_moment_are_both_answered() -> None:
    async with opened() as (pool, app):
        crew = pool.team("crew")
        results = await asyncio.gather(crew.run("one"), crew.run("two"))
        assert [(result["a"].stop, result["a"].text) for result in results] == [("done", "success (no tool calls)")] * 2
        assert app.keys.rows() == []


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_a_run_that_is_ended_while_its_program_is_shown_a_change_does_not_begin(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as (pool, _):
        agent = await pool.agent("a").__aenter__()
        shown, go, ran = asyncio.Event(), asyncio.Event(), list[str]()

        async def refresh() -> None:
            shown.set()
            await go.wait()

        async def run(prompt: str, tell: Any) -> None:
            ran.append(prompt)

        monkeypatch.setattr(agent._driver, "refresh", refresh)
        monkeypatch.setattr(agent._driver, "run", run)
        await agent.tools.add(greet)
        running = asyncio.create_task(agent.run("hello"))
        await shown.wait()
        await (agent.cancel() if end == "cancel" else agent.__aexit__())
        go.set()
        assert (await running).stop == "cancelled"
        assert ran == []
        if end == "cancel":
            assert (await agent.run("again")).stop == "done"
            await agent.__aexit__()


async def test_a_run_that_has_ended_by_itself_is_not_said_to_be_cancelled() -> None:
    async with opened() as (pool, _), pool.agent("a") as agent, aclosing(agent.stream("hello")) as events:
        first = await anext(events)
        assert isinstance(first, Text)
        assert agent._running is not None
        await asyncio.wait((agent._running,))
        await agent.cancel()
        last = [event async for event in events][-1]
        assert isinstance(last, Finished)
        assert last.stop == "done"


async def test_a_person_who_ends_a_run_late_does_not_end_the_next() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def approve(approval: Approval) -> Verdict:
        asked.set()
        await answered.wait()
        return "abort"

    async with opened(Handler(approve=approve)) as (pool, _), pool.agent("a") as agent:
        seat = agent._seat
        seat.run = Run(None)
        call = asyncio.create_task(seat.approved("x", {}, "so"))
        await asked.wait()
        following = seat.run = Run(None)
        answered.set()
        assert "not approved" in await call
        assert not following.aborted


async def test_a_function_whose_adding_was_broken_off_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (pool, _), pool.agent("a") as agent:
        seat, asking = agent._seat, asyncio.Event()

        async def hanging(workspace: str) -> None:
            asking.set()
            await asyncio.get_running_loop().create_future()

        async def block() -> None:
            async with agent.tools.temporary(greet):
                raise AssertionError("it was never entered")

        with monkeypatch.context() as patch:
            patch.setattr(seat.ground, "relisted", hanging)
            adding = asyncio.create_task(block())
            await asking.wait()
            adding.cancel()
            await asyncio.wait((adding,))
        assert agent.tools.names == []
        await agent.tools.add(greet)
        assert "own_greet" in await agent.refresh_tools()


async def test_functions_can_change_while_their_agent_closes() -> None:
    async with opened() as (pool, app):
        agent = await pool.agent("a").__aenter__()
        async with app._reloading:  # the close waits here
            closing = asyncio.create_task(agent.__aexit__())
            await wait_for(lambda: not app.additions.functions, 5)
            await agent.tools.add(greet)
        await closing
        assert agent.tools.names == ["greet"]


async def test_an_open_agent_that_is_taken_out_of_the_configuration_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    file.write_text('[agents.a]\ntype = "native"\nmodel = "test"\n')
    models = {"test": TestModel(call_tools=[])}
    async with asyncio.timeout(60), mooring.open(file) as m, m.agents(models=models) as pool, pool.agent("a") as agent:
        file.write_text("")
        assert (await m.reload()).applied
        with pytest.raises(ConfigError, match="not in the configuration any more"):
            await agent.run("hello")


async def test_an_agent_is_open_in_one_pool_at_a_time() -> None:
    """Else what is asked during calls of one would be answered by the other's people."""
    models = {"test": TestModel(call_tools=[])}
    async with (
        asyncio.timeout(60),
        mooring.open(CONFIG) as m,
        m.agents(models=models) as one,
        m.agents(models=models) as other,
        one.agent("a") as agent,
    ):
        with pytest.raises(MooringError, match="open already"):
            await other.agent("a").__aenter__()
        assert (await agent.run("hello")).stop == "done"


async def test_events_of_an_acp_agent_keep_their_order_and_none_is_lost() -> None:
    """The library gives each its own task; looking at the tools may take a moment."""
    from acp import text_block
    from acp.schema import AgentMessageChunk, ToolCallProgress, ToolCallStart

    from mooring.agents.acp import Host

    looking, listing = asyncio.Event(), asyncio.Event()
    listing.set()

    class Place:
        run = None

        async def listed(self) -> list[dict[str, Any]]:
            looking.set()
            await listing.wait()
            return [{"name": "mine_echo"}]

    host = Host(Place())  # type: ignore[arg-type]
    told: list[AnyEvent] = []
    updates = [
        ToolCallStart(session_update="tool_call", tool_call_id="1", title="mine_echo", kind="other"),
        ToolCallProgress(session_update="tool_call_update", tool_call_id="1", status="completed"),
        AgentMessageChunk(session_update="agent_message_chunk", content=text_block("the end")),
    ]
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks, host.telling(told.append):
        looking.clear()
        listing.clear()
        for update in updates:
            tasks.create_task(host.session_update("s", update))
        await looking.wait()
        asyncio.get_running_loop().call_later(0.05, listing.set)
    assert [type(event).__name__ for event in told] == ["ToolCall", "ToolResult", "Text"]


@pytest.mark.parametrize("late", [True, False])
async def test_what_is_left_of_a_turn_that_claude_did_not_end_is_none_of_the_next(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from claude_agent_sdk import AssistantMessage, ResultMessage, TextBlock

    from mooring.agents import claude_code

    def said(text: str) -> list[Any]:
        result = ResultMessage(
            subtype="success", duration_ms=1, duration_api_ms=1, is_error=False, num_turns=1, session_id="s"
        )
        return [AssistantMessage(content=[TextBlock(text)], model="m"), result]

    messages: asyncio.Queue[Any] = asyncio.Queue()

    class Client:
        async def query(self, prompt: str) -> None:
            for message in said("right") if prompt == "two" else ():
                messages.put_nowait(message)

        async def receive_response(self) -> AsyncGenerator[Any]:
            while True:
                message = await messages.get()
                yield message
                if isinstance(message, ResultMessage):
                    return

    place: Any = SimpleNamespace(agent=SimpleNamespace(name="a"))
    channel: Any = None
    monkeypatch.setattr(claude_code, "CONTROL_LIMIT", 0.05)
    driver = claude_code.ClaudeDriver(place, channel)
    driver.client = Client()  # type: ignore[assignment]
    told: list[AnyEvent] = []
    async with asyncio.timeout(10):
        first = asyncio.create_task(driver.run("one", told.append))
        await wait_for(lambda: messages._getters, 5)  # type: ignore[attr-defined]
        first.cancel()
        await asyncio.wait((first,))
        for message in said("late") if late else ():
            messages.put_nowait(message)
        if late:
            await driver.run("two", told.append)
            assert [event.text for event in told if isinstance(event, Text)] == ["right"]
        else:
            with pytest.raises(MooringError, match="still busy"):
                await driver.run("two", told.append)


async def test_a_session_that_ends_while_the_configuration_is_not_valid_is_forgotten_later(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    text = '[agents.a]\ntype = "native"\nmodel = "test"\n'
    file.write_text(text)
    models = {"test": TestModel(call_tools=[])}
    async with asyncio.timeout(60), mooring.open(file) as m, m.agents(models=models) as pool, pool.agent("a") as agent:
        async with await agent.session():
            file.write_text("not valid")
        file.write_text(text)
        assert (await m.reload()).applied
        async with await agent.session():
            pass
        assert list(m._control._app.plan.agents) == ["agent/a"]
