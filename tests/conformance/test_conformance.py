"""The official conformance suite, against the conformance server and through Mooring, check by check.

``baseline.toml`` names what is expected to be lost on the way and why; an entry that is not lost any more fails.
``python tests/conformance/test_conformance.py`` writes ``docs/conformance.md`` anew.
"""

from __future__ import annotations

import asyncio
import tempfile
import tomllib
from pathlib import Path

import pytest

from mooring.testing.conformance import page, suite
from mooring.testing.conformance.results import losses, stale, unexpected
from mooring.testing.conformance.runs import CELLS, CLIENT, DIRECT, SAME_ERA, Runs, measure, measure_client

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(900)]

BASELINE: page.Baseline = tomllib.loads((Path(__file__).parent / "baseline.toml").read_text("utf-8"))
PAGE = Path(__file__).parent.parent.parent / "docs" / "conformance.md"
DRIVER = Path(__file__).parent / "client_driver.py"
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}
REQUIRED_CLIENT = {"2025-11-25": 18, "2026-07-28": 32}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All runs, made once."""
    try:
        found = suite.fetched()
    except suite.NotToBeHad as error:
        pytest.skip(str(error))
    return asyncio.run(measured(found, tmp_path_factory.mktemp("conformance")))


async def measured(found: suite.Suite, folder: Path) -> Runs:
    """Both halves of the suite."""
    return {**await measure(found, folder), **await measure_client(found, DRIVER, folder)}


def shown(failures: list[object]) -> str:
    return "\n".join(str(each) for each in failures)


@pytest.mark.parametrize("revision", suite.REVISIONS)
def test_the_conformance_server_passes_all_required_scenarios(runs: Runs, revision: str) -> None:
    found = runs[DIRECT, revision]
    failures = [(scenario, check) for scenario in found.required for check in found.failed(scenario)]
    assert not failures, shown([*failures])
    assert len(found.passed) == len(found.required) == REQUIRED[revision]


@pytest.mark.parametrize("revision", suite.REVISIONS)
@pytest.mark.parametrize("cell", SAME_ERA)
def test_all_required_scenarios_pass_through_the_gateway(runs: Runs, cell: str, revision: str) -> None:
    """R27, A16: the gateway speaks each revision as completely as the server behind it."""
    found = runs[cell, revision]
    failures = [f"{each}: {check.id}: {check.error_message}" for each in found.required for check in found.failed(each)]
    assert not failures, shown([*failures])
    assert len(found.passed) == REQUIRED[revision]


@pytest.mark.parametrize("revision", suite.REVISIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_no_check_that_passes_directly_is_lost_on_the_way(runs: Runs, cell: str, revision: str) -> None:
    lost = losses(runs[DIRECT, revision], runs[cell, revision])
    surprising = unexpected(lost, page.expected(BASELINE, cell, revision))
    assert not surprising, f"{cell}, {revision}:\n{shown([*surprising])}"


@pytest.mark.parametrize("revision", suite.REVISIONS)
@pytest.mark.parametrize("cell", CELLS)
def test_the_baseline_names_nothing_that_works(runs: Runs, cell: str, revision: str) -> None:
    lost = losses(runs[DIRECT, revision], runs[cell, revision])
    entries = stale(lost, page.expected(BASELINE, cell, revision))
    assert not entries, f"take these out of baseline.toml ({cell}, {revision}): {entries}"


@pytest.mark.parametrize("revision", suite.REVISIONS)
def test_all_required_scenarios_pass_with_mooring_as_the_client(runs: Runs, revision: str) -> None:
    """R27: logins included, each by a person at a (scripted) browser."""
    found = runs[CLIENT, revision]
    failures = [f"{each}: {check.id}: {check.error_message}" for each in found.required for check in found.failed(each)]
    assert not failures, shown([*failures])
    assert len(found.passed) == REQUIRED_CLIENT[revision]


def test_the_page_of_results_is_what_was_measured(runs: Runs) -> None:
    assert PAGE.read_text("utf-8") == page.page(runs, BASELINE), f"run: python {Path(__file__).name}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        PAGE.write_text(page.page(asyncio.run(measured(suite.fetched(), Path(scratch))), BASELINE), "utf-8")
