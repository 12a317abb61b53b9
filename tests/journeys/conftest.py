"""A real daemon for whole stories."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mooring.testing.daemon import Daemon, daemon

Start = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncGenerator[Start]:
    """``await start(servers, workspaces, gateway)`` gives a running daemon with that configuration."""
    async with AsyncExitStack() as stack:
        count = 0

        async def started(*configuration: Any, **more: Any) -> Daemon:
            nonlocal count
            count += 1
            home = tmp_path / f"home{count}"
            home.mkdir()
            return await stack.enter_async_context(daemon(home, *configuration, **more))

        yield started
