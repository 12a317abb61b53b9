"""Fixtures that every test may use."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from chaos_table import pytest_runtest_logreport, pytest_terminal_summary  # noqa: F401  (hooks)
from mooring.testing.plugins import Site


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Logs and output of a test that are no Unicode come from the processes of pytest-xdist, too, which speak UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run as the product does: asyncio on uvloop."""
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder that this process and its children import from."""
    site = Site(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    monkeypatch.setattr(sys, "path", [*sys.path, str(site.folder)])
    return site
