"""``mooring stdio`` with a real daemon: it starts one, survives its restart, and starts fast. And what a daemon has
imported when it is ready."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mooring.config.home import Home
from mooring.serve.remembered import SETTLED
from mooring.testing import StdioClient, wait_for
from mooring.testing.daemon import Daemon, daemon, launched, server, write_config
from mooring.testing.processes import alive
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
SHIM = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
TOO_SLOW = 6.0
"""Times a bare interpreter; the aim is 3, but other work may share the machine."""
HEAVY = (
    *("mcp", "mcp_types", "pydantic", "pydantic_core", "click", "rich", "tomlkit", "keyring", "cryptography"),
    *("watchfiles", "httpx", "httpx2", "anyio", "mooring.testing"),
)


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


def daemons(home: Path) -> list[psutil.Process]:
    """The daemons of a home, ready or not: no pid file is there yet when one has just been started."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        given = process.info["environ"] or {}
        if given.get("MOORING_HOME") == str(home) and "up" in (process.info["cmdline"] or ()):
            found.append(process)
    return found


@asynccontextmanager
async def ended_afterwards(home: Path) -> AsyncGenerator[None]:
    """Whatever daemon uses ``home`` within the block is ended with it."""

    def gone() -> bool:
        left = daemons(home)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        return not left

    try:
        yield
    finally:
        await wait_for(gone, 20, interval=0.1)


def env(home: Path) -> dict[str, str]:
    return {**os.environ, "MOORING_HOME": str(home)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_conversation_survives_the_restart_of_the_daemon(tmp_path: Path, era: Era, number: int) -> None:
    """The call under way gets an error, one made meanwhile waits, later ones work; the client notices nothing."""
    async with AsyncExitStack() as stack:
        client = StdioClient(SHIM, era=era, env=env(tmp_path), timeout=20)
        async with daemon(tmp_path, {"echo": server()}) as first:
            await stack.enter_async_context(client)
            await client.open()
            old = int((await client.call("echo_pid"))["content"][0]["text"])
            params = {"name": "echo_sleep", "arguments": {"seconds": 60, "steps": 6000}, "_meta": {"progressToken": 1}}
            _, lost = client.begin("tools/call", params)
            await client.heard("notifications/progress")
            first.process.send_signal(number)
            await first.ended()
            async with asyncio.timeout(20):
                answer = await lost
            assert "error" in answer or answer["result"]["isError"], answer
        await wait_for(lambda: not alive(old), 10)
        held_id, held = client.begin("tools/call", {"name": "echo_pid"})
        async with launched(tmp_path) as second:
            async with asyncio.timeout(20):
                new = int((await held)["result"]["content"][0]["text"])
            assert new not in (old, 0)
            assert (await client.call("echo_echo", {"a": 1}))["structuredContent"] == {"a": 1}
            answered = [message["id"] for message in map(json.loads, client.received) if "id" in message]
            assert sorted(answered) == list(range(1, held_id + 2))
            assert "Traceback" not in second.output
        assert client.stderr == ""


async def test_list_changes_are_heard_after_a_restart(tmp_path: Path) -> None:
    """The replayed handshake makes it a session again."""
    async with AsyncExitStack() as stack:
        client = StdioClient(SHIM, env=env(tmp_path), timeout=20)
        async with daemon(tmp_path, {"echo": server()}) as first:
            await stack.enter_async_context(client)
            await client.open()
            first.process.kill()
            await first.ended()
        async with launched(tmp_path) as second:
            assert (await client.call("echo_echo", {"a": 1}))["structuredContent"] == {"a": 1}
            client.notifications.clear()
            write_config(tmp_path / "mooring.toml", {"echo": server(), "more": server()})
            assert (await second.mooring.reload()).applied
            await client.heard("notifications/tools/list_changed")


async def test_without_a_daemon_the_shims_start_one(tmp_path: Path, era: Era) -> None:
    """Several at once start one between them, and it outlives them."""
    write_config(tmp_path / "mooring.toml", {"echo": server()})
    async with ended_afterwards(tmp_path):
        async with (
            StdioClient(SHIM, era=era, env=env(tmp_path), timeout=30) as one,
            StdioClient(SHIM, era=era, env=env(tmp_path), timeout=30) as two,
        ):
            await asyncio.gather(one.open(), two.open())
            calls = await asyncio.gather(one.call("echo_pid"), two.call("echo_pid"))
            assert calls[0]["content"] == calls[1]["content"]
            assert await asyncio.gather(one.close_stdin(), two.close_stdin()) == [0, 0]
            assert (one.stderr, two.stderr) == ("", "")
        await wait_for(lambda: len(daemons(tmp_path)) == 1, 10)  # the one that came second may just be giving up
        log = Path(Home.below(tmp_path).state, "daemon.log")
        assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("config", "options", "code", "says"),
    [
        ("", ["--no-spawn"], 3, "mooring up"),
        ("nonsense = 1\n", [], 3, "nonsense"),
    ],
)
async def test_without_a_daemon_it_says_what_is_wrong(
    tmp_path: Path, config: str, options: list[str], code: int, says: str
) -> None:
    """A22: nothing on stdout, the reason on stderr, exit code 3; a configuration that cannot be used is quoted."""
    (tmp_path / "mooring.toml").write_text(config)
    async with StdioClient([*SHIM, *options], env=env(tmp_path), timeout=30) as client:
        async with asyncio.timeout(30):
            assert await client.process.wait() == code
        await wait_for(lambda: says in client.stderr)
        assert client.received == []


async def test_a_workspace_that_is_not_there_is_refused_with_the_ones_that_are(start: Start) -> None:
    running = await start({"echo": server()}, {"alice": {"mcp_servers": ["echo"]}})
    code, out, err = await running.command("stdio", "-w", "bob")
    assert (code, out) == (1, "")
    assert "bob" in err
    assert "alice" in err


async def test_the_shim_starts_within_a_few_bare_interpreters(start: Start) -> None:
    """From its start to the answer to ``initialize``, the best of several."""
    running = await start({"echo": server()})

    async def bare() -> float:
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
        await process.wait()
        return time.perf_counter() - begun

    async def shim() -> float:
        begun = time.perf_counter()
        async with StdioClient(SHIM, env=running.env) as client:
            await client.open()
            return time.perf_counter() - begun

    times = [(await bare(), await shim()) for _ in range(7)]
    interpreter, started = (min(column) for column in zip(*times, strict=True))
    assert started <= TOO_SLOW * interpreter, f"{started * 1000:.0f} ms; a bare interpreter {interpreter * 1000:.0f} ms"


WITNESS = """
import json, os, sys

def witness(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("control.sock"):
        with open(os.environ["WITNESS"], "w") as file:
            json.dump(sorted(sys.modules), file)

sys.addaudithook(witness)
"""
"""Run by every Python at its start: writes down what is imported at the moment the control socket appears."""


async def test_a_daemon_that_is_ready_has_imported_nothing_heavy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line, SDK, TLS and telemetry libraries are loaded when something needs them, not at boot. The second boot
    does not even read the configuration again."""
    site = tmp_path / "site"  # of its own: a change beside it could be a plugin that was installed
    site.mkdir()
    (site / "sitecustomize.py").write_text(WITNESS)
    record = tmp_path / "modules.json"
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("WITNESS", str(record))
    home = Home.below(tmp_path / "home")
    home.prepare()
    write_config(Path(home.config_file), {"echo": server()})
    os.utime(home.config_file, (1, 1))
    await wait_for(lambda: time.time_ns() - os.stat(home.config_file).st_ctime_ns > 2 * SETTLED, 5)
    for boot in (1, 2):
        async with launched(Path(home.config)) as running:
            loaded: list[str] = json.loads(record.read_text())
            assert await running.mooring.call("w", "echo_echo", {"text": "hi"})
            assert "mooring.serve.app" in loaded
            assert ("mooring.config.resolve" in loaded) is (boot == 1)
            offenders = [
                name for name in loaded if name.startswith(tuple(f"{each}." for each in HEAVY)) or name in HEAVY
            ]
            assert offenders == []
