"""Fixtures that every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run as the product does: asyncio on uvloop."""
    return ("asyncio", {"use_uvloop": True})
