"""The conversation with Codex's program, with a program that says anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mooring.agents import codex_wire
from mooring.agents.codex import CodexDriver
from mooring.agents.codex_wire import JSON, conversing
from mooring.agents.events import AnyEvent, Text
from mooring.errors import ConfigError, Crashed, MooringError, UpstreamProtocol


class Saying:
    """A program that says ``lines`` and then nothing more."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)

    async def send(self, line: bytes) -> None:
        """Nobody answers."""

    async def line(self) -> bytes | None:
        if not self.lines:
            await asyncio.get_running_loop().create_future()
        return self.lines.pop(0)

    async def ended(self) -> MooringError:
        raise AssertionError("it runs")


async def test_what_is_not_understood_ends_the_conversation_with_a_reason() -> None:
    """A notification without what is expected in it must not leave a run, or a request, without an end."""

    def noted(method: str, params: JSON) -> None:
        params["turn"]

    async def asked(method: str, params: JSON) -> JSON:
        return {}

    program: Any = Saying(b"stray\n", b'{"method": "turn/completed", "params": {}}\n')
    async with asyncio.timeout(5), conversing(program, noted, asked) as conversation:
        request = asyncio.ensure_future(conversation.request("turn/start", {}))
        for waiting in (conversation.gone, request):
            with pytest.raises(UpstreamProtocol, match="not understood"):
                await waiting


def noted(method: str, params: JSON) -> None:
    """Nobody listens."""


async def asked(method: str, params: JSON) -> JSON:
    return {}


class Stuck(Saying):
    """A program that reads nothing, so that nothing more can be written."""

    async def send(self, line: bytes) -> None:
        await asyncio.get_running_loop().create_future()


async def test_a_program_that_reads_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_wire, "LIMIT", 0.05)
    program: Any = Stuck()
    async with asyncio.timeout(5), conversing(program, noted, asked) as conversation:
        with pytest.raises(UpstreamProtocol, match="did not answer turn/start"):
            await conversation.request("turn/start", {})


async def test_a_question_that_fails_is_answered_all_the_same() -> None:
    """Else the program would wait for it for good."""
    sent = asyncio.Queue[bytes]()

    class Listening(Saying):
        async def send(self, line: bytes) -> None:
            sent.put_nowait(line)

    async def failing(method: str, params: JSON) -> JSON:
        raise ConfigError("it is gone")

    program: Any = Listening(b'{"id": 7, "method": "execCommandApproval", "params": {}}\n')
    async with asyncio.timeout(5), conversing(program, noted, failing):
        assert b'"id":7,"error"' in await sent.get()


async def test_a_program_that_ends_before_it_is_answered_is_no_failure_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = asyncio.Event()

    class Ended(Saying):
        async def send(self, line: bytes) -> None:
            tried.set()
            raise Crashed("it ended")

    program: Any = Ended(b'{"id": 7, "method": "execCommandApproval", "params": {}}\n')
    async with asyncio.timeout(5), conversing(program, noted, asked):
        await tried.wait()
        await asyncio.sleep(0)
    assert "failed" not in caplog.text


class Conversation:
    """Answers ``turn/start`` when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[str, Any]] = []
        self.begun = asyncio.Event()
        self.number = 0

    async def request(self, method: str, params: JSON) -> JSON:
        self.asked.append((method, params.get("turnId")))
        if method == "turn/start":
            await self.begun.wait()
            self.number += 1
            return {"turn": {"id": f"t{self.number}"}}
        return {}


def driver(conversation: Conversation) -> CodexDriver:
    place: Any = None
    driver = CodexDriver(place)
    driver._thread = "t"
    driver.conversation = conversation  # type: ignore[assignment]
    return driver


async def test_a_turn_that_is_interrupted_before_it_has_a_name_is_interrupted_then() -> None:
    conversation = Conversation()
    codex = driver(conversation)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(codex.run("hello", lambda _: None))
        await asyncio.sleep(0)
        await codex.interrupt()
        conversation.begun.set()
        while len(conversation.asked) < 2:
            await asyncio.sleep(0)
        assert conversation.asked[1] == ("turn/interrupt", "t1")
        codex.noted("turn/completed", {"threadId": "t", "turn": {"id": "t1", "status": "interrupted"}})


async def test_what_is_left_of_a_turn_that_did_not_end_is_none_of_the_next() -> None:
    conversation = Conversation()
    conversation.begun.set()
    codex, told = driver(conversation), list[AnyEvent]()
    async with asyncio.timeout(5):
        first = asyncio.create_task(codex.run("one", told.append))
        while not (codex._turn and codex._turn.id):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        second = asyncio.create_task(codex.run("two", told.append))
        while not (codex._turn and codex._turn.id):
            await asyncio.sleep(0)
        for turn, text in (("t1", "late"), ("t2", "right")):
            place = {"threadId": "t", "turnId": turn}
            codex.noted("item/agentMessage/delta", {**place, "itemId": turn, "delta": text})
            codex.noted("turn/completed", {"threadId": "t", "turn": {"id": turn, "status": "completed"}})
        await second
    assert [event.text for event in told if isinstance(event, Text)] == ["right"]
