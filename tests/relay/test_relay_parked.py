"""Modern clients and a legacy server that asks: which questions are told, and what uses a handle up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relay_bench import BOUND, FakeServer, FakeSession, benched, ok, planned, until

from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

META = "io.modelcontextprotocol/"
ASK, SAMPLE = "elicitation/create", "sampling/createMessage"


class Asking(FakeServer):
    """Its tool asks what it is told to, all at once or when ``asks`` is called, and answers with what it heard."""

    def __init__(self, *questions: tuple[str, str]) -> None:
        super().__init__("t")
        self.at_once = questions
        self.heard: dict[str, Any] = {}
        self.open: list[asyncio.Task[None]] = []
        self.replies["tools/call"] = lambda _, caller: self.carried(caller)

    def asks(self, caller: Caller, method: str, message: str) -> None:
        async def asked() -> None:
            answer = await caller.ask(method, jsonrpc.text({"message": message}))
            self.heard[message] = jsonrpc.value(answer.result or answer.error or b"null")

        self.open.append(asyncio.create_task(asked()))

    async def carried(self, caller: Caller | None) -> Answer:
        assert caller is not None
        self.caller = caller
        for question in self.at_once:
            self.asks(caller, *question)
        while pending := [task for task in self.open if not task.done()]:
            await asyncio.wait(pending)
        return ok(self.heard)


async def call(session: FakeSession, *declared: str, state: str = "", responses: Any = None) -> Any:
    meta = {f"{META}clientCapabilities": {name: {} for name in declared}}
    retry = {"requestState": state, "inputResponses": responses} if state else {}
    return await session.do("tools/call", {"name": "a_t", "arguments": {}, "_meta": meta, **retry})


def questions(result: Any) -> dict[str, str]:
    return {asked["params"]["message"]: name for name, asked in result["inputRequests"].items()}


async def test_a_question_that_comes_while_the_client_asks_its_user_is_told_next() -> None:
    """R27: nobody gives up what nobody was asked."""
    server = Asking((ASK, "one?"))
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        first = await call(session, "elicitation")
        assert list(questions(first)) == ["one?"]
        server.asks(server.caller, ASK, "two?")
        await asyncio.sleep(0)
        said = {questions(first)["one?"]: {"action": "accept"}}
        second = await call(session, "elicitation", state=first["requestState"], responses=said)
        assert list(questions(second)) == ["two?"]
        said = {questions(second)["two?"]: {"action": "decline"}}
        done = await call(session, "elicitation", state=second["requestState"], responses=said)
        assert (done["one?"], done["two?"]) == ({"action": "accept"}, {"action": "decline"})


async def test_a_question_that_was_taken_back_before_it_was_told_is_none() -> None:
    server = Asking((ASK, "one?"))
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        first = await call(session, "elicitation")
        server.asks(server.caller, ASK, "two?")
        await asyncio.sleep(0)
        server.open[-1].cancel()
        await until(server.open[-1].done)
        said = {questions(first)["one?"]: {"action": "accept"}}
        done = await call(session, "elicitation", state=first["requestState"], responses=said)
        assert done["one?"] == {"action": "accept"}


async def test_a_client_is_asked_only_for_what_it_declared() -> None:
    server = Asking((SAMPLE, "think!"), (ASK, "well?"))
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        assert (await call(session))["think!"]["code"] == -32601
        server.open.clear()
        asked = await call(session, "elicitation")
        assert list(questions(asked)) == ["well?"]


async def test_answers_that_cannot_be_read_do_not_use_the_handle_up() -> None:
    server = Asking((ASK, "one?"))
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        asked = await call(session, "elicitation")
        refused = await call(session, "elicitation", state=asked["requestState"], responses=["accept"])
        assert refused["code"] == -32602
        said = {questions(asked)["one?"]: {"action": "accept"}}
        async with asyncio.timeout(BOUND):
            done = await call(session, "elicitation", state=asked["requestState"], responses=said)
        assert done["one?"] == {"action": "accept"}


VISIT = {"mode": "url", "elicitationId": "e1", "url": "https://login.example/x", "message": "Log in."}


@pytest.mark.parametrize(
    ("declared", "method", "data", "code"),
    [
        ({"url": {}}, "tools/call", {"elicitations": [VISIT]}, None),
        ({"form": {}}, "tools/call", {"elicitations": [VISIT]}, -32021),
        ({"url": {}}, "tools/call", {"elicitations": "none"}, -32603),
        ({"url": {}}, "completion/complete", {"elicitations": [VISIT]}, -32603),
    ],
)
async def test_the_url_that_a_legacy_server_wants_visited_is_a_question(
    declared: Any, method: str, data: Any, code: int | None
) -> None:
    """R27: the error for it is not part of the modern era."""
    server = FakeServer("t")
    server.items["prompts"] = [{"name": "p"}]
    wanted = jsonrpc.failure(-32042, "visit this first", data)
    answers = [ok({"content": []}), wanted]
    server.replies[method] = lambda *_: answers.pop()
    async with benched({"a": server}) as bench:
        session = bench.session(era="modern")
        meta = {f"{META}clientCapabilities": {"elicitation": declared}, f"{META}protocolVersion": "2026-07-28"}
        params = {"name": "a_t", "ref": {"type": "ref/prompt", "name": "a_p"}, "_meta": meta}
        asked = await session.do(method, params)
        assert asked.get("code") == code
        if code is None:
            assert asked["resultType"] == "input_required"
            assert asked["inputRequests"] == {"q1": {"method": ASK, "params": VISIT}}
            retry = {**params, "inputResponses": {"q1": {"action": "accept"}}}
            assert (await session.do(method, retry))["resultType"] == "complete"
            assert "inputResponses" not in jsonrpc.value(server.asked(method)[-1])


async def test_only_what_may_be_answered_with_questions_is() -> None:
    """A completion is not called again."""
    server = Asking((ASK, "which?"))
    server.items["prompts"] = [{"name": "p"}]
    server.replies["completion/complete"] = server.replies["tools/call"]
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        meta = {f"{META}clientCapabilities": {"elicitation": {}}}
        params = {"ref": {"type": "ref/prompt", "name": "a_p"}, "argument": {"name": "x", "value": ""}, "_meta": meta}
        assert "which?" in await session.do("completion/complete", params)
