"""What a server on stdio asks, and who answers."""

from __future__ import annotations

import asyncio

import pytest
from stdio_bench import LIMIT, Ear, StdioBench, call

from mooring.errors import TimedOut
from mooring.wire import stdio_upstream
from mooring.wire.jsonrpc import Answer


async def test_ping_is_answered_here_and_what_nobody_knows_is_asked(stdio_bench: StdioBench) -> None:
    """A15"""
    connection = await stdio_bench.connect(
        "legacy(); request = read(); send(id='p', method='ping'); send(id=10**30, method='future/ask', params={})\n"
        "reply(request, answers=[read(), read()]); read()"
    )
    stdio_bench.listener.answer.set_result(Answer(result=b'{"vendor":1}'))
    pong, answer = (await call(connection))["answers"]
    assert pong == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert answer == {"jsonrpc": "2.0", "id": 10**30, "result": {"vendor": 1}}
    assert stdio_bench.listener.questions.get_nowait()[0] == "future/ask"


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
async def test_a_question_within_the_only_call_goes_to_its_caller(stdio_bench: StdioBench, method: str) -> None:
    """A15, A18: while other things go on; the answer goes back under the server's id."""
    connection = await stdio_bench.connect(
        f"legacy(); request = read(); send(id='q1', method='{method}', params={{'message': 'sure?'}})\n"
        "note('notifications/tools/list_changed'); reply(request, answer=read()); read()"
    )
    ear = Ear()
    task = asyncio.create_task(call(connection, caller=ear))
    assert await asyncio.wait_for(ear.questions.get(), LIMIT) == (method, {"message": "sure?"})
    await stdio_bench.listener.next()
    ear.answer.set_result(Answer(result=b'{"action":"accept"}'))
    assert (await task)["answer"] == {"jsonrpc": "2.0", "id": "q1", "result": {"action": "accept"}}
    assert stdio_bench.listener.questions.empty()


async def test_a_question_that_fits_no_single_call_goes_to_the_listener(stdio_bench: StdioBench) -> None:
    """A18: two calls at once, or one that was just cancelled and may still be worked on."""
    connection = await stdio_bench.connect(
        "legacy(); calls = [read(), read()]; send(id=1, method='roots/list'); answer = read()\n"
        "for request in calls: reply(request, answer=answer)\n"
        "read(); expect('notifications/cancelled'); request = read()\n"
        "send(id=2, method='roots/list'); reply(request, answer=read()); read()"
    )
    stdio_bench.listener.answer.set_result(Answer(error=b'{"code":-32601,"message":"no"}'))
    ears = Ear(), Ear(), Ear(), Ear()
    answers = await asyncio.gather(*(call(connection, caller=ear) for ear in ears[:2]))
    assert answers[0]["answer"]["error"]["code"] == -32601
    gone = asyncio.create_task(connection.request("tools/call", b"{}", ears[2]))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await call(connection, caller=ears[3]))["answer"]["error"]["code"] == -32601
    assert stdio_bench.listener.questions.qsize() == 2
    assert all(ear.questions.empty() for ear in ears)


async def test_what_mooring_itself_asks_of_a_server_does_not_hide_whose_a_question_is(stdio_bench: StdioBench) -> None:
    """A18: a server is listed at its start, just when its first caller calls."""
    connection = await stdio_bench.connect(
        "legacy(); listing = read(); request = read(); send(id=1, method='roots/list')\n"
        "reply(request, answer=read()); reply(listing); read()"
    )
    caller = Ear()
    caller.answer.set_result(Answer(result=b'{"roots":[]}'))
    listing = asyncio.create_task(connection.request("tools/list", b"{}"))
    await asyncio.sleep(0)
    assert (await call(connection, caller=caller))["answer"]["result"] == {"roots": []}
    await listing
    assert stdio_bench.listener.questions.empty()


@pytest.mark.parametrize("alone", [True, False])
async def test_a_call_left_waiting_for_an_answer_does_not_silence_the_other_calls_of_its_client(
    stdio_bench: StdioBench, alone: bool
) -> None:
    """A18: a server that waits for an answer does not go on; but between clients nothing is guessed."""
    connection = await stdio_bench.connect(
        "legacy(); first = read(); send(id=1, method='roots/list'); second = read()\n"
        "note('notifications/message', data='of the second'); send(id=2, method='roots/list')\n"
        "reply(second, answer=read()); read()"
    )
    stdio_bench.listener.alone = alone
    stdio_bench.listener.answer.set_result(Answer(result=b'{"nobody":true}'))
    left, right = Ear(), Ear()
    right.answer.set_result(Answer(result=b'{"right":true}'))
    hanging = asyncio.create_task(call(connection, caller=left))
    assert (await asyncio.wait_for(left.questions.get(), LIMIT))[0] == "roots/list"
    answer = (await call(connection, caller=right))["answer"]["result"]
    assert answer == ({"right": True} if alone else {"nobody": True})
    assert right.said.qsize() == int(alone)
    assert left.questions.empty()
    hanging.cancel()


async def test_a_question_that_cannot_be_asked_is_answered_with_an_error(stdio_bench: StdioBench) -> None:
    """A18"""
    connection = await stdio_bench.connect(
        "legacy(); request = read(); send(id=1, method='roots/list'); reply(request, answer=read()); read()"
    )
    ear = Ear()
    ear.answer.set_exception(TimedOut())
    assert (await call(connection, caller=ear))["answer"]["error"]["code"] == -32603


async def test_the_server_may_take_its_question_back(stdio_bench: StdioBench) -> None:
    """A18: then nothing is answered."""
    connection = await stdio_bench.connect(
        "legacy(); request = read(); send(id='q', method='roots/list'); second = read()\n"
        "note('notifications/cancelled', requestId='other'); note('notifications/cancelled', requestId='q')\n"
        "reply(second); reply(request, next=read()['method']); read()"
    )
    ear = Ear()
    first = asyncio.create_task(call(connection, caller=ear))
    await asyncio.wait_for(ear.questions.get(), LIMIT)
    await call(connection)
    await asyncio.wait_for(ear.cancelled.wait(), LIMIT)
    connection.notify("notifications/x", b"{}")
    assert await first == {"next": "notifications/x"}


async def test_open_questions_are_bounded_and_end_with_the_conversation(
    stdio_bench: StdioBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18"""
    monkeypatch.setattr(stdio_upstream, "QUESTIONS", 1)
    connection = await stdio_bench.connect(
        "legacy(); request = read()\nfor n in range(2): send(id=n, method='roots/list')\n"
        "reply(request, answer=read()); read()"
    )
    ear = Ear()
    answer = (await call(connection, caller=ear))["answer"]
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    await connection.close()
    assert ear.cancelled.is_set()


async def test_a_modern_server_cannot_ask(stdio_bench: StdioBench) -> None:
    """A18: questions are part of results there."""
    connection = await stdio_bench.connect(
        "describe(expect('server/discover')); request = read(); send(id=1, method='roots/list')\n"
        "reply(request, answer=read()); read()",
        era="modern",
    )
    assert (await call(connection, caller=Ear()))["answer"]["error"]["code"] == -32601


async def test_list_changes_of_a_modern_server_are_listened_for(stdio_bench: StdioBench) -> None:
    """A16: as far as it offers them; the tag of our subscription stays here, and does not count as a call."""
    capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {}, "logging": 5}
    connection = await stdio_bench.connect(
        f"describe(expect('server/discover'), capabilities={capabilities}); listen = expect('subscriptions/listen')\n"
        "tag = {'io.modelcontextprotocol/subscriptionId': listen['id']}\n"
        "note('notifications/subscriptions/acknowledged', _meta=tag, notifications={'toolsListChanged': True})\n"
        "note('notifications/tools/list_changed', _meta=tag)\n"
        "note('notifications/resources/updated', _meta={**tag, 'x': 1})\n"
        "request = read(); note('notifications/message', data=1); reply(request, listen=listen); read()",
        era="modern",
    )
    assert await stdio_bench.listener.next() == ("notifications/tools/list_changed", {})
    assert await stdio_bench.listener.next() == ("notifications/resources/updated", {"_meta": {"x": 1}})
    ear = Ear()
    listen = (await call(connection, caller=ear))["listen"]
    assert await ear.next() == ("notifications/message", {"data": 1})
    assert listen["params"]["notifications"] == {"toolsListChanged": True}
    assert listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
