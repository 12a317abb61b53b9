"""Servers in a sandbox through the daemon: they answer as any other, reach what is listed, and refusals are seen."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.processes import alive
from small_web import web

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap"),
]

Start = Callable[..., Awaitable[Daemon]]
SOURCE = str(Path(__file__).parents[2] / "src")
PYTHON = [f"{path}:ro" for path in dict.fromkeys((sys.prefix, sys.base_prefix, SOURCE))]
LIMIT = 60.0

FETCHER = """
import sys, urllib.request
from mcp.server import MCPServer
app = MCPServer("fetcher")

@app.tool()
def fetch(url: str) -> str:
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except OSError as error:
        return f"{error} {error.read().decode() if hasattr(error, 'read') else ''}"

app.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


async def test_a_sandboxed_server_answers_sleeps_and_wakes_like_any_other(start: Start, tmp_path: Path) -> None:
    """On stdio, with a network of its own."""
    (tmp_path / "data").mkdir()
    sandbox = {"paths": [*PYTHON, str(tmp_path / "data")]}
    table = server(
        "--spawn-grandchild", sandbox=sandbox, network="none", idle_timeout="300ms", env={"PYTHONPATH": SOURCE}
    )
    async with asyncio.timeout(2 * LIMIT):
        running = await start({"echo": table})
        client = await running.client("w")
        async with client:
            await client.open()
            for _ in range(2):
                assert json.loads(text(await client.call("echo_echo", {"text": "hi"}))) == {"text": "hi"}
                (row,) = await running.rows("echo")
                assert row.state == "ready"
                pid = row.pid

                async def asleep() -> bool:
                    (row,) = await running.rows("echo")
                    return row.state == "stopped"

                await wait_for(asleep, 20)
                assert pid is not None
                assert not alive(pid)


async def test_an_http_server_with_a_list_reaches_the_list_and_the_rest_is_told(start: Start, tmp_path: Path) -> None:
    """Nothing is published; what it may not reach is in its log, in ps and in the daemon's log, once."""
    (tmp_path / "server.py").write_text(FETCHER)
    async with web() as allowed, web() as other, asyncio.timeout(2 * LIMIT):
        table = {
            "command": sys.executable,
            "args": ["-W", "ignore", str(tmp_path / "server.py"), "{port}"],
            "port": 8000,
            "sandbox": {"paths": [*PYTHON, f"{tmp_path}/server.py:ro"]},
            "network": [allowed],
        }
        running = await start({"web": table})
        client = await running.client("w", "modern", timeout=LIMIT)
        async with client:
            await client.open()
            await wait_for(lambda: called(client, f"http://{allowed}/"), 30)
            for _ in range(2):
                refused = text(await client.call("web_fetch", {"url": f"http://{other}/"}))
                assert "403" in refused
                assert f"{other} is refused" in refused
        (row,) = await running.rows("web")
        assert row.denied == (other,)
        assert f"refused to reach {other}" in (await running.command("ps"))[1]
        log = (await running.command("logs", "web"))[1]
        assert log.count(f"[mooring] egress.denied server=web peer={other}") == 1
        assert running.output.count(f"egress.denied server=web peer={other}") == 1


async def called(client: Any, url: str) -> bool:
    result = await client.call("web_fetch", {"url": url})
    assert result.get("isError") or text(result) == "hi", result
    return not result.get("isError")


async def test_a_sandbox_ends_with_the_daemon_however_that_ends(start: Start) -> None:
    """Kill -9 of the daemon: what the server started, in sessions of its own too, goes with it."""
    table = server(
        "--spawn-grandchild", "--ignore-eof", "--ignore-term", sandbox={"paths": PYTHON}, env={"PYTHONPATH": SOURCE}
    )
    async with asyncio.timeout(2 * LIMIT):
        running = await start({"echo": table})
        async with await running.client("w") as client:
            await client.open()
            await client.call("echo_pid")
            (row,) = await running.rows("echo")
            assert row.pid is not None
            tree = [row.pid, *(one.pid for one in psutil.Process(row.pid).children(recursive=True))]
            assert len(tree) >= 5
            running.process.kill()
            await wait_for(lambda: not any(map(alive, tree)), 20)


async def test_check_says_that_a_sandbox_has_an_open_network(start: Start) -> None:
    running = await start({"echo": server(sandbox=True)})
    _, out, err = await running.command("check")
    assert "its sandbox has an open network" in out + err
