"""The results as a page of the documentation. Pure."""

from __future__ import annotations

from mooring.testing.conformance.results import Results, losses
from mooring.testing.conformance.runs import CELLS, CLIENT, DIRECT, Runs
from mooring.testing.conformance.suite import REVISIONS, VERSION

Baseline = dict[str, dict[str, str]]
"""By revision, or by cell and revision with a blank between: expected losses and their reasons."""

_WHAT = {
    DIRECT: "the server itself, over HTTP",
    "stdio": 'behind stdio, both eras, `dialogue = "session"`',
    "http": "behind HTTP, both eras",
    "stdio-legacy": "behind stdio, only legacy",
    "stdio-modern": "behind stdio, only modern",
    "http-legacy": "behind HTTP, only legacy",
    "http-modern": "behind HTTP, only modern",
}
_HEAD = f"""# Conformance

What the official conformance suite (`@modelcontextprotocol/conformance` {VERSION}) finds when it is run against our
conformance server, and against Mooring in front of that server. The suite's client speaks one revision in all of its
scenarios, so a server of one era makes half of the runs cross-era ones.

This page is written by `python tests/conformance/test_conformance.py`; the tests compare it with what they measure.

Required scenarios passed, then checks lost: those that pass directly and do not through Mooring.

"""

_CLIENT = """
## Mooring as a client

For these scenarios the suite is the server, and the authorization server. A gateway is put in front of it, a client in
front of that, and `mooring auth login` with a scripted browser where a login is asked for. Required scenarios passed.
"""


def page(runs: Runs, baseline: Baseline) -> str:
    """The page."""
    rows = [f"| the server | {' | '.join(REVISIONS)} |", f"| --- |{' --- |' * len(REVISIONS)}"]
    for cell in (DIRECT, *CELLS):
        scores = [_score(runs, cell, each) for each in REVISIONS]
        rows += [f"| {_WHAT[cell]} | {' | '.join(scores)} |"]
    rows += [_CLIENT, *rows[:2], f"| the suite's, behind Mooring | {' | '.join(_passed(runs, CLIENT))} |"]
    return _HEAD + "\n".join(rows) + "\n\n## Expected losses\n\n" + "\n".join(_reasons(baseline)) + "\n"


def expected(baseline: Baseline, cell: str, revision: str) -> dict[str, str]:
    """The part of a baseline that holds for one run."""
    return {**baseline.get(revision, {}), **baseline.get(f"{cell} {revision}", {})}


def _passed(runs: Runs, cell: str) -> list[str]:
    return [f"{len(runs[cell, each].passed)}/{len(runs[cell, each].required)}" for each in REVISIONS]


def _score(runs: Runs, cell: str, revision: str) -> str:
    found: Results = runs[cell, revision]
    score = f"{len(found.passed)}/{len(found.required)}"
    return score if cell == DIRECT else f"{score}, {len(losses(runs[DIRECT, revision], found))}"


def _reasons(baseline: Baseline) -> list[str]:
    lines: list[str] = []
    for where, entries in baseline.items():
        by_reason: dict[str, list[str]] = {}
        for place, reason in entries.items():
            by_reason.setdefault(reason, []).append(f"`{place}`")
        lines += [f"- **{where}**: {reason}: {', '.join(places)}" for reason, places in by_reason.items()]
    return lines or ["None."]
