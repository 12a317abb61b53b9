"""Directives: what the prompt tells the model to do, and how the next turn follows from it. Pure.

No state is kept between requests. Which step is due is counted in the conversation that each request carries, so that
retries, side requests (titles, reviews, routers) and any number of clients at once do not disturb each other.

    %call TOOL {"json": "arguments"}    a turn that calls a tool; each %call is a turn of its own
    %and TOOL {...}                     one more call in the same turn
    %wait SECONDS                       before the turn that follows
    %fail STATUS                        a turn that is refused with this HTTP status
    %say TEXT                           a last turn that says this
    %tools                              a last turn that names the tools that were offered

A directive stands at the start of a line of a user message. The newest message with directives counts.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from mooring.wire.http_messages import STATUS_LINES

JSON = dict[str, Any]

_DIRECTIVE = re.compile(r"^[ \t\"'`>]*%(call|and|wait|fail|say|tools)\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_TURN = re.compile(r"call_(\d+)_")
_decode = json.JSONDecoder().raw_decode


class Call(msgspec.Struct):
    """A call of a tool; ``id`` is empty as long as it is only planned."""

    tool: str
    arguments: JSON
    id: str = ""


class Step(msgspec.Struct):
    """One turn of the model. Without calls and text it names the offered tools."""

    wait: float = 0.0
    fail: int = 0
    calls: list[Call] = []
    text: str | None = None


class Answer(msgspec.Struct):
    """What the model does in this turn."""

    text: str | None = None
    calls: list[Call] = []
    wait: float = 0.0
    """Seconds before the answer."""
    fail: int = 0
    """HTTP status to refuse the request with; 0 for none."""


class Unreadable(ValueError):
    """A directive that cannot be understood; the model answers with the message."""


def parse(text: str) -> list[Step]:
    """The steps that a user message asks for, in order; none when it has no directives. Raises Unreadable."""
    steps: list[Step] = []
    wait = 0.0
    for name, rest in _DIRECTIVE.findall(text):
        if name == "wait":
            wait = _number(rest, float)
        elif name == "and":
            if not steps or not steps[-1].calls:
                raise Unreadable("%and needs a %call before it")
            steps[-1].calls.append(_call(rest))
        else:
            steps.append(_step(name, rest, wait))
            wait = 0.0
    if wait:
        steps.append(Step(wait=wait, text="waited"))
    return steps


def _step(name: str, rest: str, wait: float) -> Step:
    if name == "call":
        return Step(wait, calls=[_call(rest)])
    if name == "fail":
        status = _number(rest, int)
        if status < 400 or status not in STATUS_LINES:
            raise Unreadable(f"%fail {rest}: no status of a refusal that can be sent")
        return Step(wait, fail=status)
    return Step(wait, text=rest if name == "say" else None)


def _number(written: str, kind: type[float] | type[int]) -> Any:
    try:
        return kind(written)
    except ValueError:
        raise Unreadable(f"{written!r} is not a number") from None


def _call(written: str) -> Call:
    """``TOOL`` or ``TOOL {arguments}``; what follows the object is a client's own."""
    tool, _, rest = written.partition(" ")
    if not rest.strip():
        return Call(tool.strip("\"'`"), {})
    try:
        arguments, _ = _decode(rest.strip())
    except ValueError as error:
        raise Unreadable(f"the arguments of {tool} are not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise Unreadable(f"the arguments of {tool} are not an object")
    return Call(tool, msgspec.convert(arguments, JSON))


def find(name: str, offered: Sequence[str]) -> str | None:
    """The offered tool that is meant: the one of this name, else the only one that ends in it after a character that is
    no letter and no digit. Clients put the server's name, and more, in front."""
    if name in offered:
        return name
    ending = re.compile(rf"[^A-Za-z0-9]{re.escape(name)}$")
    found = [each for each in offered if ending.search(each)]
    return found[0] if len(found) == 1 else None


class Transcript:
    """What has happened since the newest user message with directives, as a wire format reads it, oldest first."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.unreadable = ""
        self.turns = 0
        """Turns of the model that called tools."""
        self.results: list[str] = []
        """What the calls of the newest turn gave."""

    def user(self, text: str) -> None:
        """The user said something."""
        try:
            steps, why = parse(text), ""
        except Unreadable as error:
            steps, why = [], str(error)
        if steps or why:
            self.steps, self.unreadable, self.turns, self.results = steps, why, 0, []

    def called(self) -> None:
        """The model took a turn and called tools."""
        self.turns += 1
        self.results = []

    def called_by(self, id: str) -> None:
        """The model called a tool; for formats in which only the id of a call tells its turn."""
        turn = _TURN.match(id)
        if turn and int(turn[1]) >= self.turns:
            self.called()

    def result(self, text: str) -> None:
        """A tool answered."""
        self.results.append(text)

    def answer(self, offered: Sequence[str]) -> Answer:
        """The next turn."""
        if self.unreadable:
            return Answer(f"unreadable: {self.unreadable}")
        if self.turns >= len(self.steps):
            return Answer("\n".join(("got:", *self.results)) if self.results else "nothing to do")
        step = self.steps[self.turns]
        if step.fail:
            return Answer(wait=step.wait, fail=step.fail)
        if not step.calls:
            return Answer(step.text if step.text is not None else f"offered: {_list(offered)}", wait=step.wait)
        calls: list[Call] = []
        for number, call in enumerate(step.calls):
            tool = find(call.tool, offered)
            if tool is None:
                return Answer(f"no tool {call.tool}; offered: {_list(offered)}", wait=step.wait)
            calls.append(Call(tool, call.arguments, f"call_{self.turns}_{number}_{secrets.token_hex(4)}"))
        return Answer(calls=calls, wait=step.wait)


def _list(offered: Sequence[str]) -> str:
    return ", ".join(sorted(offered))
