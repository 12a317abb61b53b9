"""Conversations that end with the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from http_bench import LIMIT, HttpBench
from stdio_bench import StdioBench

from mooring.wire import http_upstream, upstream_listening


@pytest.fixture
async def stdio_bench() -> AsyncIterator[StdioBench]:
    stdio_bench = StdioBench()
    async with asyncio.timeout(LIMIT * 3), stdio_bench.stack:
        yield stdio_bench


@pytest.fixture
async def http_bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBench]:
    monkeypatch.setattr(upstream_listening, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(http_upstream, "PAUSE", 0.02)
    http_bench = HttpBench()
    async with asyncio.timeout(LIMIT * 3), http_bench.stack:
        yield http_bench
