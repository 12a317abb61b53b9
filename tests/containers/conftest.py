"""Real engines for the tests of containers: each test runs with Podman and with Docker, as far as they are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from container_kit import Kept

from mooring.testing import containers

SERVERS = Path(__file__).parent / "servers"


@pytest.fixture(params=["podman", "docker"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine that works here and has the test image."""
    if why := containers.lacks(request.param):
        pytest.skip(why)
    return request.param


@pytest.fixture
def kept(engine: str) -> Iterator[Kept]:
    """What a test runs; nothing of it may be left, and nothing is."""
    kept = Kept(engine)
    yield kept
    left = {name for home in kept.homes for name in kept.names(home)}
    containers.remove(engine, sorted(left))
    assert not left
    assert not {name for home in kept.homes for name in kept.secrets(home)}


@pytest.fixture
def probe() -> Callable[..., dict[str, Any]]:
    """Makes the table of a server that is ``servers/probe.py`` in a container."""

    def table(*arguments: str, **members: Any) -> dict[str, Any]:
        volumes = [f"{SERVERS}:/srv:ro", *members.pop("volumes", ())]
        return containers.python("/srv/probe.py", *arguments, volumes=volumes, **members)

    return table


@pytest.fixture
def node_probe() -> Callable[..., dict[str, Any]]:
    """The same for Node; skips without it."""
    if not os.path.exists("/usr/bin/node"):
        pytest.skip("node is not in /usr/bin (as root on Debian: apt-get install nodejs)")

    def table(*arguments: str, **members: Any) -> dict[str, Any]:
        volumes = [f"{SERVERS}:/srv:ro", *members.pop("volumes", ())]
        return containers.program("/usr/bin/node", "/srv/probe.mjs", *arguments, volumes=volumes, **members)

    return table


@pytest.fixture
def echo() -> Callable[..., dict[str, Any]]:
    """Makes the table of an echo server in a container."""

    def table(*flags: str, **members: Any) -> dict[str, Any]:
        return containers.python("-m", "mooring.testing.echo", *flags, **members)

    return table
