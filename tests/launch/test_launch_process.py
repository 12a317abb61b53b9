"""The process launcher, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from mooring.config.plan import Variant
from mooring.config.plan_servers import Container, Process, Remote, SecretRef, Timeouts
from mooring.errors import LaunchMissing, NoLauncher, StartFailed
from mooring.launch import kept
from mooring.launch.base import Launched, Launcher, Pipes
from mooring.launch.command import run
from mooring.launch.process import ProcessLauncher, unsupported, working_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def variant(*argv: str, close: float = 5.0, **more: object) -> Variant:
    return Variant("it", "it", "{}", "d" * 8, Process(argv, **more), timeouts=Timeouts(close=close))


@asynccontextmanager
async def launched(bench, what: Variant, **secrets: str):
    """As a connection would: takes the pipes, closes them before the server is left."""
    async with ProcessLauncher(bench.keeper).launch(what, what.key(), secrets) as it:
        assert isinstance(it.endpoint, Pipes)
        bench.mine += [it.endpoint.reader, it.endpoint.writer]
        try:
            yield it
        finally:
            for fd in (it.endpoint.reader, it.endpoint.writer):
                if fd in bench.mine:
                    bench.close(fd)


async def test_it_is_a_launcher_and_gives_what_launchers_give(bench) -> None:
    launcher: Launcher = ProcessLauncher(bench.keeper)
    assert launcher.kinds == ("process",)
    async with launched(bench, variant("cat")) as it:
        given: Launched = it
        assert psutil.Process(given.pid).name() == "cat"
        assert given.container is None
        os.write(given.endpoint.writer, b"ping\n")
        assert await bench.line(given.endpoint.reader) == "ping"
        assert not given.exited.done()
    assert given.exited.result() == 0


async def test_a_server_gets_declared_environment_and_secrets_and_no_more(bench, monkeypatch, tmp_path: Path) -> None:
    """R22 A7"""
    monkeypatch.setenv("DAEMON_SECRET", "x")
    monkeypatch.setenv("HOME", str(tmp_path))
    secrets = {"TOKEN": SecretRef("env", "T"), "OPTIONAL": SecretRef("env", "O", optional=True)}
    what = variant("sh", "-c", "env; pwd; echo .", env={"MODE": "dark"}, secrets=secrets)
    async with launched(bench, what, TOKEN="t", UNDECLARED="u") as it:
        lines = []
        while not lines or lines[-1] != ".":
            lines.append(await bench.line(it.endpoint.reader))
    assert {"MODE=dark", "TOKEN=t", f"HOME={tmp_path}"} <= set(lines)
    assert not any("DAEMON_SECRET" in line or "UNDECLARED" in line for line in lines)
    assert lines[-2] == str(tmp_path)
    assert not any("TOKEN" in word or word == "t" for word in psutil.Process(bench.keeper.pid).environ())


async def test_a_missing_program_is_launch_missing(bench) -> None:
    """R12"""
    with pytest.raises(LaunchMissing, match="uvx"):
        async with launched(bench, variant("uvx", "x", env={"PATH": "/nowhere"})):
            pass


async def test_a_program_that_cannot_be_run_and_a_missing_folder_are_start_failed(bench, tmp_path: Path) -> None:
    """R12"""
    (tmp_path / "text").write_text("")
    (tmp_path / "text").chmod(0o755)
    for what, says in (
        (variant(str(tmp_path / "text")), "Exec format error"),
        (variant("cat", cwd=str(tmp_path / "no")), "No such file or directory: " + str(tmp_path / "no")),
        (variant("cat", "a\0b"), "NUL"),
    ):
        with pytest.raises(StartFailed, match=says) as caught:
            async with launched(bench, what):
                pass
        assert caught.value.facts()["phase"] == "start"


async def test_a_program_that_does_not_come_to_run_in_time_is_said_so(bench, monkeypatch) -> None:
    """Such as one on a file system that hangs."""
    monkeypatch.setattr(kept, "SPAWN_LIMIT", 0.0)
    os.kill(bench.keeper.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StartFailed, match=r"did not start: it was not running within 0 s.*Command: \S*cat"):
            async with launched(bench, variant("cat")):
                pass
    finally:
        os.kill(bench.keeper.pid, signal.SIGCONT)


async def test_the_reason_of_an_early_end_is_in_the_tail_as_soon_as_the_exit_is_known(bench) -> None:
    """R13 A14"""
    async with launched(bench, variant("sh", "-c", "echo no database >&2; exit 3")) as it:
        assert await asyncio.wait_for(it.exited, 5) == 3
        assert it.stderr.text() == "no database"
    assert it.stderr.text() == "no database"


async def test_a_chatty_server_never_blocks(bench) -> None:
    """A14 R15: a megabyte on stderr, then an answer."""
    code = "import os; [os.write(2, b'x' * 1023 + b'\\n') for _ in range(1024)]; print('done', flush=True); input()"
    async with launched(bench, variant(*bench.python(code))) as it:
        assert await bench.line(it.endpoint.reader) == "done"
        assert len(it.stderr.text(lines=1000)) <= 65536


async def test_a_server_that_heeds_the_end_of_its_stdin_is_not_signalled(bench) -> None:
    """A13"""
    async with launched(bench, variant("sh", "-c", "trap 'exit 9' TERM; cat; exit 4")) as it:
        pass
    assert it.exited.result() == 4


async def test_a_server_that_ignores_its_stdin_gets_sigterm_then(bench) -> None:
    """A13"""
    async with launched(bench, variant("sleep", "1000", close=0.4)) as it:
        began = time.monotonic()
    assert it.exited.result() == -signal.SIGTERM
    assert 0.2 <= time.monotonic() - began < 3


async def test_a_stubborn_server_and_its_strays_are_killed_in_bounded_time(bench) -> None:
    """A13 A12 R15"""
    for code in (bench.stubborn, bench.straying + "time.sleep(1000)"):
        async with launched(bench, variant(*bench.python(code), close=0.4)) as it:
            other = int(await bench.line(it.endpoint.reader))
            began = time.monotonic()
        assert 0.4 <= time.monotonic() - began < 3
        assert not bench.alive(other)
        assert not bench.alive(it.pid)


async def test_what_a_crashed_server_left_behind_goes_with_it(bench) -> None:
    """R15"""
    async with launched(bench, variant(*bench.python(bench.straying), close=0.2)) as it:
        stray = int(await bench.line(it.endpoint.reader))
        assert await asyncio.wait_for(it.exited, 5) == 0
        assert bench.alive(stray)
    assert not bench.alive(stray)


async def test_a_cancellation_does_not_cut_the_end_short(bench) -> None:
    """A13: cancelled twice while it ends; all is gone when the block is left."""
    pids: list[int] = []
    running = asyncio.Event()

    async def own() -> None:
        async with launched(bench, variant(*bench.python(bench.stubborn), close=0.4)) as it:
            pids.append(int(await bench.line(it.endpoint.reader)))
            running.set()
            await asyncio.sleep(1000)

    owner = asyncio.create_task(own())
    await asyncio.wait_for(running.wait(), 10)
    owner.cancel()
    await asyncio.sleep(0.05)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert not bench.alive(pids[0])


async def _cancelled_twice(owner: asyncio.Task[None]) -> None:
    owner.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner


async def test_an_end_that_is_cancelled_closes_what_somebody_else_keeps_open(bench, open_descriptors) -> None:
    """A13: such as a helper that could not be killed; there is no end of file then."""
    pids: list[int] = []

    async def own() -> None:
        async with launched(bench, variant("cat")) as it:
            pids.append(it.pid)
            await asyncio.sleep(1000)

    before = open_descriptors()
    owner = asyncio.create_task(own())
    while not pids:
        await asyncio.sleep(0.005)
    held = os.open(f"/proc/{pids[0]}/fd/2", os.O_WRONLY)
    await _cancelled_twice(owner)
    os.close(held)
    assert open_descriptors() == before


async def test_a_command_that_is_cancelled_while_it_ends_leaves_no_descriptor(bench, open_descriptors) -> None:
    """A13"""
    before = open_descriptors()
    mine = set(psutil.Process(bench.keeper.pid).children())
    running = asyncio.create_task(run(bench.keeper, ["/bin/sleep", "1000"], {}, limit=None))
    while not (found := set(psutil.Process(bench.keeper.pid).children()) - mine):
        await asyncio.sleep(0.005)
    held = os.open(f"/proc/{found.pop().pid}/fd/2", os.O_WRONLY)
    await _cancelled_twice(running)
    os.close(held)
    assert open_descriptors() == before


async def test_an_error_in_the_block_passes_and_the_server_is_gone(bench) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        async with launched(bench, variant("cat")) as it:
            raise RuntimeError("mine")
    assert it.exited.result() == 0


async def test_fifty_servers_stop_within_three_seconds(bench) -> None:
    """A13: half of them well-behaved, half stubborn."""
    code = bench.stubborn
    kinds = [variant("cat"), variant(*bench.python(code), close=1.0)]
    leave = asyncio.Event()
    running = 0

    async def own(what: Variant) -> int:
        nonlocal running
        async with launched(bench, what) as it:
            if what is kinds[1]:
                await bench.line(it.endpoint.reader, within=30)
            running += 1
            await leave.wait()
        return it.pid

    owners = [asyncio.create_task(own(kinds[n % 2])) for n in range(50)]
    while running < 50:
        assert not any(owner.done() for owner in owners)
        await asyncio.sleep(0.01)
    began = time.monotonic()
    leave.set()
    pids = await asyncio.gather(*owners)
    assert time.monotonic() - began < 3
    assert not any(bench.alive(pid) for pid in pids)


async def test_a_hundred_launches_leak_no_descriptor(bench, open_descriptors) -> None:
    """A13"""
    before = open_descriptors()
    for _ in range(100):
        async with launched(bench, variant("cat")):
            pass
    assert open_descriptors() == before


async def test_a_dead_keeper_ends_its_servers_and_the_next_launch_works(bench) -> None:
    """A12"""
    async with launched(bench, variant(*bench.python(bench.stubborn))) as it:
        await bench.line(it.endpoint.reader)
        os.kill(bench.keeper.pid, signal.SIGKILL)
        assert await asyncio.wait_for(it.exited, 5) is None
        async with launched(bench, variant("cat")) as other:
            os.write(other.endpoint.writer, b"x\n")
            assert await bench.line(other.endpoint.reader) == "x"
    assert not bench.alive(it.pid)


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (Process(("cat",)), ""),
        (Process(("cat",), credentials={}), ""),
        (Process(("cat",), secrets={"T": SecretRef("env", "T", as_file=True)}), "file"),
        (Container("image"), "not a command"),
        (Remote("http://x"), "not a command"),
    ],
)
async def test_what_it_cannot_start_has_a_reason(launch, why: str, bench) -> None:
    """R12"""
    assert why in unsupported(launch)
    assert bool(why) == bool(unsupported(launch))
    if why:
        with pytest.raises(NoLauncher, match=why):
            async with launched(bench, msgspec.structs.replace(variant("cat"), launch=launch)):
                pass


def test_a_server_runs_at_home_unless_told_otherwise(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert working_folder(None, {"HOME": home}) == home
    assert working_folder(None, {"HOME": "/nonexistent"}) == "/"
    assert working_folder("/srv", {"HOME": home}) == "/srv"
    assert working_folder("sub", {"HOME": home}) == f"{home}/sub"
