"""What real clients talk to: a daemon, a scripted model, and a home that is thrown away."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.model import Model
from real_clients.place import Place, Reach, reach


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[Daemon]:
    """A daemon with one server, ``box``, in the workspace ``w``."""
    home = tmp_path / "mooring"
    home.mkdir()
    async with daemon(home, {"box": server("--changing")}) as running:
        yield running


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    """The model of the agents."""
    async with Model() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where the client lives."""
    return Place(tmp_path)


@pytest.fixture(params=["http", "stdio"])
async def way(request: pytest.FixtureRequest, gateway: Daemon) -> Reach:
    """Both ways in: with a key over HTTP, and ``mooring stdio``."""
    return await reach(gateway, request.param)
