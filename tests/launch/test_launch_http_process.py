"""Commands that speak HTTP: they learn their port, their output is kept, their end is bounded."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Timeouts
from mooring.launch.base import Launched, Url
from mooring.launch.http_process import free_port, with_port
from mooring.launch.process import ProcessLauncher
from mooring.testing import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@asynccontextmanager
async def launched(bench, *argv: str, close: float = 5.0, **more: object) -> AsyncIterator[Launched]:
    what = Variant("it", "it", "{}", "d" * 8, Process(argv, port=1, **more), timeouts=Timeouts(close=close))
    async with ProcessLauncher(bench.keeper).launch(what, what.key(), {}) as it:
        yield it


def test_the_port_is_filled_in_everywhere() -> None:
    launch = Process(("x", "--port={port}", "{porto}"), env={"BIND": ":{port}"}, cwd="/run/{port}", port=80)
    filled = with_port(launch, 4711)
    assert filled.argv == ("x", "--port=4711", "{porto}")
    assert filled.env == {"BIND": ":4711", "PORT": "4711"}
    assert filled.cwd == "/run/4711"
    assert with_port(Process(("x",), env={"PORT": "9"}, port=80), 4711).env["PORT"] == "9"


def test_the_port_is_free() -> None:
    """R9"""
    with socket.socket() as it:
        it.bind(("127.0.0.1", free_port()))


async def test_it_has_a_url_and_its_output_is_followed(bench) -> None:
    """R10: both streams are drained, so that a chatty server never blocks."""
    code = "import os, sys, time; print(os.environ['PORT'], sys.argv[1]); sys.stdout.flush()"
    code += "; [os.write(n, b'x' * 1023 + b'\\n') for _ in range(1024) for n in (1, 2)]; print('done', flush=True)"
    code += "; time.sleep(1000)"
    lines: list[str] = []
    async with launched(bench, sys.executable, "-c", code, "{port}", path="/here", transport="sse", close=1) as it:
        it.stderr.follow(lines.append)
        assert isinstance(it.endpoint, Url)
        assert it.endpoint.transport == "sse"
        port = it.endpoint.url.removeprefix("http://localhost:").removesuffix("/here")
        await wait_for(lambda: "done" in lines, 20)
        assert lines[0] == f"{port} {port}"
        assert it.stderr.text(1) == "x" * 1023
        pid = it.pid
    assert it.exited.result() == -15
    assert not bench.alive(pid)


async def test_an_early_end_shows_what_it_said(bench) -> None:
    """R10, R13: on stderr, else on stdout."""
    async with launched(bench, "sh", "-c", "echo out; echo oops >&2; exit 3") as it:
        assert await asyncio.wait_for(it.exited, 20) == 3
        assert it.stderr.text() == "oops"
    async with launched(bench, "sh", "-c", "echo out; exit 3") as it:
        await asyncio.wait_for(it.exited, 20)
        assert it.stderr.text() == "out"


async def test_its_stdin_stays_open_until_the_end(bench) -> None:
    """Some servers take the end of their stdin for the end of their client."""
    async with launched(bench, "sh", "-c", "cat; echo bye; sleep 1000") as it:
        lines: list[str] = []
        it.stderr.follow(lines.append)
        await asyncio.sleep(0.1)
        assert lines == []


async def test_leaving_kills_what_does_not_go(bench) -> None:
    """A9: and all its descendants."""
    async with launched(bench, *bench.python(bench.stubborn), close=0.2) as it:
        await asyncio.sleep(0.1)
    assert not bench.alive(it.pid)
