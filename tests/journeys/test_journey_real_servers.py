"""Servers that other people wrote, fetched from the package registries, behind Mooring. Whatever cannot be had here is
skipped with the reason."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import HttpClient, wait_for
from mooring.testing.daemon import Daemon
from mooring.testing.speech import Era
from mooring.wire.http import HttpServer, Reply, Request

pytestmark = [pytest.mark.network, pytest.mark.timeout(400)]

Start = Callable[..., Awaitable[Daemon]]
FETCH = 300.0
"""Seconds for a download from a registry."""
SLOW = {"timeouts": {"start": "120s", "initialize": "120s"}}
"""The first start of a package downloads it."""
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))


def program(name: str) -> str:
    """Where a program is: beside our Python, or on the path; the test is skipped without it."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def warmed(argv: list[str], what: str) -> None:
    """Start a server once without input, so that its package is in the cache; it ends with its stdin."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=FETCH, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} did not start and end within {FETCH:g} s")
    if done.returncode:
        pytest.skip(f"{what} could not be fetched: {done.stderr.decode(errors='replace').strip()[-300:]}")


def repository(folder: Path) -> Path:
    """A git repository with one commit."""
    folder.mkdir()
    (folder / "note.txt").write_text("hello")
    own = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for step in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first commit"]):
        subprocess.run([*own, *step], check=True, timeout=30)
    return folder


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


def filled(written: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        written = written.replace(place, value)
    return written


@pytest.fixture
async def page() -> AsyncGenerator[str]:
    """A web page on this machine."""

    async def served(request: Request) -> Reply:
        return Reply(200, b"<html><body><p>ahoy from a page</p></body></html>", b"Content-Type: text/html\r\n")

    async with HttpServer(served) as site:
        _, port = await site.listen("127.0.0.1", 0)
        yield f"http://127.0.0.1:{port}/"


CASES: dict[str, tuple[list[str], str, dict[str, Any], str]] = {
    "time": (["uvx", "mcp-server-time", "--local-timezone", "UTC"], "get_current_time", {"timezone": "UTC"}, "UTC"),
    "git": (["uvx", "mcp-server-git"], "git_log", {"repo_path": "{repo}"}, "first commit"),
    "fetch": (
        ["uvx", "mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"],
        "fetch",
        {"url": "{page}"},
        "ahoy from a page",
    ),
    "sqlite": (  # written for the SDK before 2.0, and speaks the legacy era only
        ["uvx", "--with", "mcp<2", "mcp-server-sqlite", "--db-path", "{folder}/notes.db"],
        "create_table",
        {"query": "CREATE TABLE IF NOT EXISTS notes (id INTEGER)"},
        "created",
    ),
    "filesystem": (
        ["npx", "-y", "@modelcontextprotocol/server-filesystem", "{repo}"],
        "list_directory",
        {"path": "{repo}"},
        "note.txt",
    ),
    "memory": (
        ["npx", "-y", "@modelcontextprotocol/server-memory"],
        "create_entities",
        {"entities": [{"name": "Ann", "entityType": "person", "observations": ["sails"]}]},
        "sails",
    ),
    "everything": (["npx", "-y", "@modelcontextprotocol/server-everything"], "echo", {"message": "ahoy"}, "ahoy"),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_published_server_is_listed_and_called_in_both_eras(
    start: Start, name: str, tmp_path: Path, page: str
) -> None:
    """R27, A16: one process serves a legacy and a modern client."""
    (launcher, *rest), tool, arguments, expected = CASES[name]
    places = {"{repo}": str(repository(tmp_path / "repo")), "{folder}": str(tmp_path), "{page}": page}
    args = [filled(arg, places) for arg in rest]
    own = {key: filled(value, places) if isinstance(value, str) else value for key, value in arguments.items()}
    command = program(launcher)
    await asyncio.to_thread(warmed, [command, *args], name)
    env = {"PATH": PATH, "MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    running = await start({"it": {"command": command, "args": args, "env": env, **SLOW}})
    eras: tuple[Era, ...] = ("legacy", "modern")
    for era in eras:
        async with await running.client("w", era, timeout=120.0) as client:
            await client.open()

            async def listed(client: HttpClient = client) -> bool:  # a cold start takes longer than one list waits
                return f"it_{tool}" in {each["name"] for each in (await client.result("tools/list"))["tools"]}

            await wait_for(listed, 120)
            result = await client.call(f"it_{tool}", own)
            assert not result.get("isError"), text(result)
            if name != "memory" or era == "legacy":  # the second time Ann is known already
                assert expected in text(result)
    (row,) = await running.rows("it")
    assert (row.state, row.restarts) == ("ready", 0)
    assert "Traceback" not in running.output
