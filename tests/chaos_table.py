"""The table of what the fault suite did, printed at the end of the run.

Its tests tell their rows as properties, which come from the processes of pytest-xdist too. These are hooks, loaded by
the first conftest: with pytest-xdist no other is there where it is printed.
"""

from __future__ import annotations

from typing import Any

import pytest

HEAD = ("fault", "times", "s", "ok", "told", "late", "beside", "mid ms", "max ms", "orphans", "zombies", "fds", "lost")
ROWS: list[tuple[str, ...]] = []
RUNS: dict[str, None] = {}
"""How to repeat what was run."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take in what a test told."""
    if report.when == "call":
        for name, value in report.user_properties:
            if name == "chaos":
                ROWS.append(tuple(map(str, value)))
            elif name == "chaos run":
                RUNS[str(value)] = None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print it, whatever else is printed."""
    if not ROWS:
        return
    terminalreporter.section("chaos")
    widths = [max(map(len, column)) for column in zip(HEAD, *ROWS, strict=True)]
    for row in (HEAD, *ROWS):
        cells = zip(row, widths, strict=True)
        terminalreporter.write_line(
            "  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(cells))
        )
    for run in RUNS:
        terminalreporter.write_line(run)
