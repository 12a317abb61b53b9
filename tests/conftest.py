"""Fixtures that every test may use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mooring.testing.plugins import Site


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
