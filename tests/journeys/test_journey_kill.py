"""Whatever ends the daemon or its keeper, no server and no descendant of one is left; looked at from outside."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import mooring
from mooring.testing import HttpClient, wait_for
from mooring.testing.daemon import write_config
from mooring.testing.processes import alive, descendants, state

NOBODY = 65534
READY = 20.0
"""Seconds for a start on a loaded machine."""
GONE = 2.0
"""Seconds after which nothing may be left."""
SETPRIV = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SOURCE = Path(mooring.__file__).parents[1]


class User:
    """Who runs the daemon: ``prefix`` becomes that user, ``python`` is an interpreter that this user may run."""

    def __init__(self, prefix: tuple[str, ...], python: str) -> None:
        self.prefix = prefix
        self.python = python
        self.path = os.pathsep.join((str(SOURCE), sysconfig.get_path("purelib")))

    def echo(self, *flags: str) -> list[str]:
        """The command line of an echo server."""
        return [self.python, "-m", "mooring.testing.echo", *flags]

    def server(self, *argv: str, **members: Any) -> dict[str, Any]:
        """An ``[mcp_servers.X]`` table for this command."""
        return {"command": argv[0], "args": list(argv[1:]), "env": {"PYTHONPATH": self.path}, **members}


def plain_user() -> User:
    """Root runs the daemon as nobody; skips where that cannot be tried."""
    if os.getuid():
        pytest.skip("these tests run as a plain user already")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not installed")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python{version}"):
        user = User(SETPRIV, python)
        probe = [*SETPRIV, "env", f"PYTHONPATH={user.path}", python, "-c", "import mooring, httptools, msgspec, uvloop"]
        if os.path.exists(python) and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return user
    pytest.skip(f"no Python {version} with Mooring that a plain user may run")


@pytest.fixture(params=["self", "plain"])
def user(request: pytest.FixtureRequest) -> User:
    return User((), sys.executable) if request.param == "self" else plain_user()


class Run:
    """A daemon whose workspace needs no key from this machine."""

    def __init__(self, home: Path, process: asyncio.subprocess.Process, env: dict[str, str]) -> None:
        self.home = home
        self.process = process
        self.env = env

    @property
    def endpoint(self) -> str:
        for line in (self.home / "output.txt").read_text().splitlines():
            if line.strip().startswith("endpoint"):
                return line.split()[1]
        assert self.process.returncode is None, (self.home / "output.txt").read_text()
        return ""

    @property
    def pid(self) -> int:
        """The daemon's; ``setpriv`` has become it."""
        return self.process.pid

    @property
    def keeper(self) -> int:
        """Found from outside: the child that runs keeper.py."""
        (pid,) = [pid for pid in descendants(self.pid) if b"keeper.py" in command_line(pid)]
        return pid

    def client(self) -> HttpClient:
        return HttpClient(self.endpoint.replace("/mcp", "/w/w/mcp"), timeout=60.0)

    async def ended(self, within: float) -> int:
        async with asyncio.timeout(within):
            return await self.process.wait()


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@asynccontextmanager
async def run(user: User, servers: dict[str, Any]) -> AsyncGenerator[Run]:
    """A daemon of this user, in a home of its own that no folder above hides from it. Killed at the end."""
    with TemporaryDirectory(prefix="mooring-kill-") as folder:
        home = Path(folder)
        write_config(home / "mooring.toml", servers, {"w": {"mcp_servers": ["*"], "anonymous": "loopback"}})
        (home / "output.txt").touch()
        if user.prefix:
            for path in (home, *home.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        env = {**os.environ, "MOORING_HOME": folder, "HOME": folder, "PYTHONPATH": user.path}
        env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
        with (home / "output.txt").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(*user.prefix, user.python, "-m", "mooring", "up"),
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        running = Run(home, process, env)
        try:
            await wait_for(lambda: running.endpoint, READY)
            yield running
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


STUBBORN = ("--spawn-grandchild", "--ignore-term", "--ignore-eof")


def stubborn_servers(user: User) -> dict[str, Any]:
    """Every way we know of to outlive one's parent."""
    echo = user.echo(*STUBBORN)
    return {
        "plain": user.server(*echo),
        "session": user.server("setsid", "--wait", *echo),
        "shell": user.server("sh", "-c", '"$0" "$@"; true', *echo),
        "background": user.server("sh", "-c", 'sleep 600 & setsid sleep 601 & exec "$0" "$@"', *echo),
        "nohup": user.server("nohup", *echo),
        "bare": user.server("env", "-i", f"PYTHONPATH={user.path}", *echo),
    }


async def called(run: Run, servers: Iterable[str]) -> set[int]:
    """Call all of them; every descendant of the daemon there is afterwards."""
    async with run.client() as client:
        await client.open()
        await client.result("tools/list")
        for result in await asyncio.gather(*(client.call(f"{name}_pid") for name in servers)):
            assert not result.get("isError"), result
    return descendants(run.pid)


async def none_left(pids: set[int], since: float) -> float:
    """Seconds from ``since`` until none of these processes is alive."""
    await wait_for(lambda: not any(map(alive, pids)), GONE)
    return time.perf_counter() - since


def figure(line: str) -> None:
    """Something measured, for who runs this with -s."""
    sys.stderr.write(f"\n{line}\n")


async def test_killing_the_daemon_leaves_no_descendant(user: User) -> None:
    """R15, A12: kill -9; setsid, ignored signals, empty environments, wrappers and grandchildren do not help."""
    servers = stubborn_servers(user)
    async with run(user, servers) as running:
        everyone = await called(running, servers)
        assert len(everyone) >= 1 + 3 * len(servers) + 4, "the keeper, servers, grandchildren, wrappers"
        began = time.perf_counter()
        os.kill(running.pid, signal.SIGKILL)
        await running.ended(READY)
        figure(f"daemon killed: {len(everyone)} gone after {await none_left(everyone, began) * 1000:.0f} ms")


async def test_killing_the_keeper_leaves_no_descendant_and_the_daemon_goes_on(user: User) -> None:
    """R15, A12: the daemon inherits and ends them all, starts another keeper, and the servers work again."""
    servers = stubborn_servers(user)
    async with run(user, servers) as running:
        everyone = await called(running, servers)
        began = time.perf_counter()
        os.kill(running.keeper, signal.SIGKILL)
        seconds = await none_left(everyone, began)
        figure(f"keeper killed: {len(everyone)} gone after {seconds * 1000:.0f} ms")
        # Dead at once; collected at the daemon's next look.
        await wait_for(lambda: not [pid for pid in descendants(running.pid) & everyone if state(pid) == "Z"], 10)
        async with running.client() as client:
            await client.open()
            for name in servers:

                async def works(name: str = name) -> bool:
                    return not (await client.call(f"{name}_pid")).get("isError")

                await wait_for(works, 10, 0.02)
        assert alive(running.keeper)
        figure(f"all {len(servers)} work again {time.perf_counter() - began:.2f} s after the kill")


async def test_a_wrapper_that_leaves_its_server_behind_leaves_nothing(user: User) -> None:
    """R13: ``setsid`` without --wait ends at once; what it started is no server of ours and does not stay."""
    async with run(user, {"gone": user.server("setsid", *user.echo(*STUBBORN), timeouts={"close": "1s"})}) as running:
        async with running.client() as client:
            await client.open()
            await client.result("tools/list")
            result = await client.call("gone_pid")
        assert result["isError"]
        await wait_for(lambda: descendants(running.pid) == {running.keeper}, 10)


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "mooring stop"])
async def test_fifty_servers_stop_together_and_nothing_is_left(way: str) -> None:
    """R15, A13: bounded, in parallel, no orphan."""
    user = User((), sys.executable)
    servers = {f"echo{number}": user.server(*user.echo()) for number in range(50)}
    async with run(user, servers) as running:
        everyone = await called(running, servers)
        assert len(everyone) >= 51
        began = time.perf_counter()
        if way == "mooring stop":
            command = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mooring", "stop"), env=running.env, stdout=asyncio.subprocess.DEVNULL
            )
            assert await command.wait() == 0
        else:
            running.process.send_signal(signal.Signals[way])
        assert await running.ended(10) == 0
        seconds = time.perf_counter() - began
        assert not [pid for pid in everyone if alive(pid)]
        assert not (running.home / "run" / "control.sock").exists()
    figure(f"{way}: 50 servers ended in {seconds:.2f} s")
    assert seconds < (5.0 if way == "mooring stop" else 3.0)  # a command has to start first


async def test_a_stop_in_the_middle_of_everything_is_bounded_and_leaves_nothing() -> None:
    """A13, invariant 4: calls under way, servers starting, somebody impatient; every call ends, nothing is left."""
    user = User((), sys.executable)
    servers = {
        "busy": user.server(*user.echo("--ignore-term"), timeouts={"close": "1s"}),
        "hung": user.server(*user.echo("--never-answer", "--ignore-eof"), timeouts={"close": "1s"}),
        **{f"slow{number}": user.server(*user.echo("--start-delay", "5")) for number in range(5)},
    }
    async with run(user, servers) as running, running.client() as client:
        await client.open()
        await client.call("busy_pid")
        long = {"seconds": 30, "steps": 300}
        calls = [
            asyncio.create_task(client.call("busy_sleep", long, _meta={"progressToken": number})) for number in range(4)
        ]
        calls += [asyncio.create_task(client.call(f"{name}_pid")) for name in ("hung", "slow0")]
        await wait_for(lambda: len(descendants(running.pid)) == 1 + len(servers), 10)
        for number in range(4):
            await client.heard(
                "notifications/progress", lambda params, number=number: params["progressToken"] == number
            )
        everyone = descendants(running.pid)
        began = time.perf_counter()
        running.process.terminate()
        running.process.send_signal(signal.SIGINT)
        assert await running.ended(10) == 0
        seconds = time.perf_counter() - began
        async with asyncio.timeout(10):
            await asyncio.wait(calls)
        assert not [pid for pid in everyone if alive(pid)]
        assert "Traceback" not in (running.home / "output.txt").read_text()
    figure(f"stopped in {seconds:.2f} s, calls: {[repr(call.exception() or call.result())[:80] for call in calls]}")
    assert seconds < 6.0  # the fronts' grace, and half of the default timeouts.close


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.3])
async def test_killing_the_daemon_while_it_starts_servers_leaves_none(delay: float) -> None:
    """R15, A12: at whatever moment of its life, and of theirs."""
    user = User((), sys.executable)
    servers = {f"echo{number}": user.server(*user.echo(*STUBBORN)) for number in range(10)}
    async with run(user, servers) as running:
        family = descendants(running.pid)
        await asyncio.sleep(delay)
        family |= descendants(running.pid)
        os.kill(running.pid, signal.SIGKILL)
        began = time.perf_counter()
        await running.ended(READY)
        await none_left(family, began)
        assert not relatives(str(running.home)), "started while the daemon was dying"


def relatives(home: str) -> set[int]:
    """Living processes whose environment names this home, wherever they hang in the tree."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"HOME={home}".encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
    return {pid for pid in found if alive(pid)}


async def test_servers_that_resist_are_ended_within_their_limit(user: User) -> None:
    """A13: end of input, SIGTERM and their limits, SIGKILL; all at once, the whole family."""
    servers = {name: {**table, "timeouts": {"close": "1s"}} for name, table in stubborn_servers(user).items()}
    async with run(user, servers) as running:
        everyone = await called(running, servers)
        began = time.perf_counter()
        running.process.terminate()
        assert await running.ended(10) == 0
        seconds = time.perf_counter() - began
        assert not [pid for pid in everyone if alive(pid)]
    figure(f"{len(everyone)} stubborn processes ended in {seconds:.2f} s")
    assert seconds < 4.0


def packaged() -> dict[str, tuple[str, ...]]:
    """Servers that come out of a registry, by the program that brings them."""
    local = Path(sys.executable).with_name("uvx")
    uvx = str(local) if local.exists() else shutil.which("uvx")
    found: dict[str, tuple[str, ...]] = {}
    if uvx:
        found["uvx"] = (uvx, "mcp-server-time")
    if npx := shutil.which("npx"):
        found["npx"] = (npx, "-y", "@modelcontextprotocol/server-memory")
    return found


TOOLS = {"uvx": "packaged_get_current_time", "npx": "packaged_read_graph"}
ARGUMENTS = {"uvx": {"timezone": "UTC"}, "npx": {}}


@pytest.mark.network
@pytest.mark.parametrize("program", TOOLS)
@pytest.mark.timeout(300)
async def test_packaged_servers_die_with_the_keeper_and_with_the_daemon(user: User, program: str) -> None:
    """R15, A12: npx and uvx put processes of their own between us and the server."""
    argv = packaged().get(program)
    if argv is None:
        pytest.skip(f"{program} is not installed")
    if subprocess.run([*user.prefix, argv[0], "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"this user may not run {argv[0]}")
    table = user.server(*argv, timeouts={"start": "100s", "initialize": "100s"})
    async with run(user, {"packaged": table}) as running, running.client() as client:
        client.timeout = 110.0
        await client.open()

        async def answered() -> bool:
            result = await client.call(TOOLS[program], ARGUMENTS[program])
            told = json.dumps(result)
            if result.get("isError") and '"kind": "start_failed"' in told:
                pytest.skip(f"{program} could not get the package: {told[:500]}")
            return not result.get("isError")

        for victim in ("keeper", "daemon"):
            await wait_for(answered, 110, 0.1)
            everyone = descendants(running.pid)
            assert len(everyone) >= 3, "the keeper, the program, the server"
            began = time.perf_counter()
            os.kill(running.pid if victim == "daemon" else running.keeper, signal.SIGKILL)
            seconds = await none_left(everyone, began)
            figure(f"{program}, {victim} killed: {len(everyone)} gone after {seconds * 1000:.0f} ms")
