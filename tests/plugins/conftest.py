"""Places in which plugins are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_kit import Venv

from mooring.testing.plugins import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder that this process and its children import from."""
    site = Site(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    monkeypatch.setattr(sys, "path", [*sys.path, str(site.folder)])
    return site


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """An environment for real installs; each test takes out what it put in."""
    return Venv(tmp_path_factory.mktemp("venv") / "v")
