"""One call under way: what restarts its clock, what stops it, what ends with it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from relay_bench import BOUND, FakeRequest, FakeSession, until

from mooring.errors import TimedOut
from mooring.nouns import Era, Principal
from mooring.relay import exchange
from mooring.relay.deadlines import Deadlines
from mooring.relay.exchange import Exchange
from mooring.wire.jsonrpc import Answer

SILENCE = 0.15
PROGRESS = "notifications/progress"
ASK = "elicitation/create"


def request(era: Era = "legacy", params: bytes = b"{}") -> FakeRequest:
    session = FakeSession(cast("Any", None), Principal("k", "w"), era)
    return FakeRequest(session, "tools/call", params, era)


async def silence() -> None:
    """Longer than a call may be silent."""
    await asyncio.sleep(SILENCE * 1.6)


async def test_silence_ends_a_call_and_says_which_limit_it_was() -> None:
    """R27, A15: a time limit that names server, method and setting."""
    late = pytest.raises(TimedOut, match=r"^slow was silent for 0.15 s in tools/call.*timeouts\.call")
    with late, Exchange(request(), "slow", SILENCE, Deadlines()):
        await asyncio.sleep(BOUND)


async def test_progress_restarts_the_clock_and_reaches_the_caller() -> None:
    made = request()
    with Exchange(made, "s", SILENCE, Deadlines()) as call:
        for _ in range(4):
            await asyncio.sleep(SILENCE * 0.5)
            call.heard(PROGRESS, b"{}")
    assert len(made.told) == 4


async def test_a_lively_call_ends_at_the_total_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "TOTAL_LIMIT", 1.0)

    async def lively() -> None:
        with Exchange(request(), "s", 0.7, Deadlines()) as call:
            async with asyncio.timeout(BOUND):
                while True:
                    await asyncio.sleep(0.02)
                    call.heard(PROGRESS, b"{}")

    with pytest.raises(TimedOut, match=r"ran for 1 s in all"):
        await lively()


async def test_a_parked_question_stops_the_clock_even_when_progress_comes_meanwhile() -> None:
    """A18: a user may take longer than a server."""
    made = request()
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def later() -> Answer:
        return await answered

    made.answer = later
    with Exchange(made, "s", SILENCE, Deadlines()) as call:
        question = asyncio.ensure_future(call.ask(ASK, b"{}"))
        await until(lambda: made.questions)
        call.heard(PROGRESS, b"{}")
        await silence()
        answered.set_result(Answer(result=b'{"action":"accept"}'))
        assert (await question).result == b'{"action":"accept"}'


async def test_the_clock_stands_still_until_the_last_of_several_questions_is_answered() -> None:
    made = request()
    answers: list[asyncio.Future[Answer]] = []

    def later() -> asyncio.Future[Answer]:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    made.answer = later
    with Exchange(made, "s", SILENCE, Deadlines()) as call:
        questions = [asyncio.ensure_future(call.ask(ASK, b"{}")) for _ in range(2)]
        await until(lambda: len(answers) == 2)
        answers[0].set_result(Answer(result=b"{}"))
        await silence()
        answers[1].set_result(Answer(result=b"{}"))
        await asyncio.gather(*questions)


async def test_the_clock_runs_again_after_a_question() -> None:
    async def silent() -> None:
        with Exchange(request(), "s", SILENCE, Deadlines()) as call:
            await call.ask(ASK, b"{}")
            await asyncio.sleep(BOUND)

    with pytest.raises(TimedOut, match="silent"):
        await silent()


@pytest.mark.parametrize(("method", "expected"), [(ASK, b'{"action":"cancel"}'), ("sampling/createMessage", None)])
async def test_an_unanswered_question_expires(
    method: str, expected: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18: unanswered questions expire to cancel."""
    monkeypatch.setattr(exchange, "QUESTION_LIMIT", 0.05)
    made = request()
    made.answer = lambda: asyncio.sleep(BOUND, Answer(result=b"{}"))
    with Exchange(made, "s", BOUND, Deadlines()) as call:
        answer = await call.ask(method, b"{}")
    assert answer.result == expected
    assert (answer.error is None) is (expected is not None)


async def test_questions_end_with_their_call_and_none_begins_after_it() -> None:
    made = request()
    made.answer = lambda: asyncio.sleep(BOUND, Answer(result=b"{}"))
    with Exchange(made, "s", BOUND, Deadlines()) as call:
        question = asyncio.ensure_future(call.ask(ASK, b"{}"))
        await until(lambda: made.questions)
    async with asyncio.timeout(BOUND / 2):
        assert (await question).result == b'{"action":"cancel"}'
    assert (await call.ask(ASK, b"{}")).result == b'{"action":"cancel"}'
    assert made.questions == [ASK]
    call.heard(PROGRESS, b"{}")


async def test_a_question_of_a_call_that_timed_out_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "TOTAL_LIMIT", 0.05)
    made = request()
    made.answer = lambda: asyncio.sleep(BOUND, Answer(result=b"{}"))
    questions: list[asyncio.Future[Answer]] = []

    async def late() -> None:
        with Exchange(made, "s", BOUND, Deadlines()) as call:
            questions.append(asyncio.ensure_future(call.ask(ASK, b"{}")))
            await asyncio.sleep(BOUND)

    with pytest.raises(TimedOut):
        await late()
    async with asyncio.timeout(BOUND / 2):
        await questions[0]


async def test_an_exception_in_the_call_is_not_mistaken_for_a_deadline() -> None:
    with pytest.raises(ValueError, match="mine"), Exchange(request(), "s", BOUND, Deadlines()):
        raise ValueError("mine")


LOG = "notifications/message"
WANTED = b'{"_meta":{"io.modelcontextprotocol/logLevel":"warning"}}'


@pytest.mark.parametrize(
    ("era", "session_level", "params", "level", "told"),
    [
        ("legacy", None, b"{}", "debug", True),
        ("legacy", "error", b"{}", "warning", False),
        ("legacy", "error", b"{}", "error", True),
        ("legacy", None, b"{}", "shouting", False),
        ("modern", None, b"{}", "emergency", False),
        ("modern", None, WANTED, "info", False),
        ("modern", None, WANTED, "warning", True),
        ("modern", None, b'{"_meta":7}', "error", False),
    ],
)
async def test_log_messages_below_the_wanted_level_are_kept_from_the_caller(
    era: Era, session_level: str | None, params: bytes, level: str, told: bool
) -> None:
    made = request(era, params)
    made.session.log_level = session_level
    with Exchange(made, "s", BOUND, Deadlines()) as call:
        call.heard(LOG, b'{"level":"%s"}' % level.encode())
        call.heard(LOG, b"[]")
    assert bool(made.told) is told
