"""What the scripted model does in which turn."""

from __future__ import annotations

import re

import pytest

from mooring.testing.model.script import Answer, Call, Step, Transcript, Unreadable, find, parse

OFFERED = ["mcp__gw__box_echo", "mcp__gw__box_counter", "read"]


def after(*told: str | int, results: tuple[str, ...] = ("r",)) -> Transcript:
    """A conversation: what the user said, and (as numbers) so many turns with calls that gave ``results``."""
    transcript = Transcript()
    for each in told:
        if isinstance(each, str):
            transcript.user(each)
            continue
        for _ in range(each):
            transcript.called()
            for result in results:
                transcript.result(result)
    return transcript


def test_each_call_is_a_turn_and_the_last_one_says_what_came_back() -> None:
    prompt = 'Please.\n%call box_echo {"text": "a"}\n%call read'
    first = after(prompt).answer(OFFERED)
    assert [(call.tool, call.arguments) for call in first.calls] == [("mcp__gw__box_echo", {"text": "a"})]
    assert [call.tool for call in after(prompt, 1).answer(OFFERED).calls] == ["read"]
    assert after(prompt, 2).answer(OFFERED) == Answer("got:\nr")


def test_calls_of_one_turn_have_ids_of_their_own_that_tell_the_turn() -> None:
    prompt = "%call read\n%call read\n%and box_echo {}"
    calls = after(prompt, 1).answer(OFFERED).calls
    assert [call.tool for call in calls] == ["read", "mcp__gw__box_echo"]
    assert [call.id[:9] for call in calls] == ["call_1_0_", "call_1_1_"]
    assert calls[0].id != after(prompt, 1).answer(OFFERED).calls[0].id
    assert after(prompt, 2, results=("one", "two")).answer(OFFERED) == Answer("got:\none\ntwo")


def test_turns_are_counted_by_the_ids_of_calls_where_there_is_nothing_else() -> None:
    transcript = after("%call read\n%and read\n%call read")
    for id in ("call_0_0_aa", "call_0_1_bb", "another"):
        transcript.called_by(id)
    assert transcript.turns == 1
    transcript.called_by("call_1_0_cc")
    assert transcript.turns == 2


def test_the_newest_message_with_directives_counts() -> None:
    assert after("%call read", 1, "%say hello").answer(OFFERED) == Answer("hello")
    assert after("%call read", 1, "and now?").answer(OFFERED) == Answer("got:\nr")


def test_without_directives_there_is_nothing_to_do() -> None:
    assert after("What is 5%call?", "100 %say").answer(OFFERED) == Answer("nothing to do")


def test_what_clients_put_around_a_prompt_does_no_harm() -> None:
    assert parse('> "%call echo {"a": 1}" and so on') == [Step(calls=[Call("echo", {"a": 1})])]
    assert parse("`%call echo`") == [Step(calls=[Call("echo", {})])]


def test_tools_are_named_as_they_are_offered() -> None:
    assert after("%tools").answer(["b", "a"]) == Answer("offered: a, b")
    assert after("%call nothing").answer(["b", "a"]) == Answer("no tool nothing; offered: a, b")


def test_waiting_belongs_to_the_turn_after_it() -> None:
    prompt = "%call read\n%wait 0.5\n%call read\n%wait 2"
    assert after(prompt).answer(OFFERED).wait == 0
    assert after(prompt, 1).answer(OFFERED).wait == 0.5
    assert after(prompt, 2).answer(OFFERED) == Answer("waited", wait=2)


def test_a_turn_is_refused_with_a_status() -> None:
    assert after("%call read\n%fail 429", 1).answer(OFFERED) == Answer(fail=429)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("%and echo", "needs a %call before it"),
        ("%wait\n%and echo", "is not a number"),
        ("%say a\n%and echo", "needs a %call before it"),
        ("%fail soon", "'soon' is not a number"),
        ("%fail 200", "no status of a refusal"),
        ("%fail 799", "no status of a refusal"),
        ("%call echo {", "the arguments of echo are not JSON"),
        ("%call echo [1]", "the arguments of echo are not an object"),
    ],
)
def test_what_cannot_be_understood_is_said(prompt: str, why: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(why)):
        parse(prompt)
    answer = after(prompt).answer(OFFERED)
    assert why in (answer.text or "")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("read", "read"),
        ("box_echo", "mcp__gw__box_echo"),
        ("echo", "mcp__gw__box_echo"),
        ("ho", None),
        ("x", None),
        ("", None),
    ],
)
def test_a_tool_is_found_by_its_name_or_by_the_only_ending(name: str, found: str | None) -> None:
    assert find(name, OFFERED) == found


def test_an_ending_that_two_tools_share_finds_none() -> None:
    assert find("echo", ["a_echo", "b_echo"]) is None
    assert find("echo", ["echo", "b_echo"]) == "echo"
