"""The table of what happened, printed at the end of the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

ROWS: list[tuple[str, ...]] = []
"""One a class of faults; the first is the head. Filled by the tests."""


@pytest.fixture
def rows() -> list[tuple[str, ...]]:
    return ROWS


def _lines(rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print it, whatever else is printed."""
    if ROWS:
        terminalreporter.section("chaos")
        for line in _lines(ROWS):
            terminalreporter.write_line(line)
