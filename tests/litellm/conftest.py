"""LiteLLM for tests: the real one, once a session, and the fake."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from litellm_api import Api
from litellm_stack import MASTER_KEY, Database, Proxy, missing, running

from mooring.testing.litellm import FakeLiteLLM


@pytest.fixture(scope="session")
def real() -> Generator[tuple[Database, Proxy]]:
    """The real LiteLLM on a PostgreSQL of its own."""
    if why := missing():
        pytest.skip(why)
    # Not among pytest's folders, which are closed to whom PostgreSQL runs as.
    with TemporaryDirectory(prefix="mooring-litellm-") as folder:
        os.chmod(folder, 0o755)
        with running(Path(folder)) as both:
            yield both
            _, proxy = both
            assert "engine stand-in:" not in proxy.log


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.litellm)])
async def api(request: pytest.FixtureRequest) -> AsyncGenerator[Api]:
    """Either of the two, empty."""
    async with _either(request) as api:
        yield api


@asynccontextmanager
async def _either(request: pytest.FixtureRequest) -> AsyncGenerator[Api]:
    if request.param == "fake":
        async with FakeLiteLLM() as fake:
            yield Api(fake.url, fake.master_key)
        return
    _, proxy = request.getfixturevalue("real")
    api = Api(proxy.url, MASTER_KEY)
    yield api
    await api.clear()
