"""Places in which plugins are installed."""

from __future__ import annotations

import pytest
from plugin_kit import Venv


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """An environment for real installs; each test takes out what it put in."""
    return Venv(tmp_path_factory.mktemp("venv") / "v")
