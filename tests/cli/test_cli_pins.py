"""``mooring pins approve``: what is approved is what was shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooring.cli import pins
from mooring.nouns import PinRow

Run = Callable[..., Any]
ROW = PinRow("echo", "echo", "t", "changed", "ab" * 32, 0.0, "changed: title", '+  "title": "x"')


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[PinRow]]:
    """What the daemon says, one after the other: it cannot be made to change a tool between the two."""
    given: list[list[PinRow]] = []
    said: Iterator[list[PinRow]] = iter(given)
    monkeypatch.setattr(pins, "attached", lambda ask, spawn: next(said))
    return given


def test_what_changed_after_it_was_shown_is_said(run: Run, answers: list[list[PinRow]]) -> None:
    answers += [[ROW], []]
    result = run("pins", "approve", "echo", "--yes")
    assert (result.exit_code, "now abababababab)" in result.stdout) == (1, True)
    assert "look again: mooring pins diff echo" in result.stderr


def test_json_asks_nothing(run: Run, answers: list[list[PinRow]]) -> None:
    result = run("pins", "approve", "echo", "--json")
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)


def test_where_nothing_waits_nothing_is_asked(run: Run, answers: list[list[PinRow]]) -> None:
    answers += [[]]
    result = run("pins", "approve", "echo")
    assert (result.exit_code, result.stdout) == (0, "")
