"""The classes of faults that happen to containers and to their engines. Several containers at a time: each takes longer
than a process.

Docker's daemon is killed, too: a private one, whose containers, images and socket are in a folder of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chaos_arena import CALL, GONE, Arena
from chaos_faults import CLOSE, Fault, Servers, busy, together

from mooring.nouns import InstanceRow
from mooring.testing import containers, wait_for
from mooring.testing.containers import lacks

TOGETHER = 13
"""Containers that are hurt at the same time."""
UP = 30.0
"""Seconds that a Docker daemon has to come up, or to go."""


def boxes(count: int, *flags: str, **members: Any) -> Servers:
    """Echo servers in containers without a network."""
    table = containers.python("-m", "mooring.testing.echo", *flags, network="none", timeouts=CLOSE, **members)
    return {f"box{number}": table for number in range(count)}


async def row_of(arena: Arena, name: str, state: str = "ready") -> InstanceRow:
    """The line of the container of a server that works."""

    async def found() -> InstanceRow | None:
        await arena.pid(name)
        rows = [row for row in await arena.running.rows(name) if row.state == state and row.container and row.pid]
        return rows[0] if rows else None

    return await wait_for(found, CALL, 0.02)


def container(row: InstanceRow) -> str:
    """Its name."""
    assert row.container is not None
    return row.container.partition(":")[2]


async def engine_does(arena: Arena, *arguments: str) -> bool:
    """A command that somebody else gives; whether it came at the right time."""
    process = await asyncio.create_subprocess_exec(
        arena.engine, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(CALL):
        return await process.wait() == 0


# Faults.


async def program_killed(arena: Arena, name: str) -> None:
    """``kill -9`` of the engine's program that is attached to the container."""
    row = await row_of(arena, name)
    call = await busy(arena, name)
    assert row.pid is not None
    await arena.kill(row.pid)
    assert (await call)["isError"]
    assert (await row_of(arena, name)).pid != row.pid


async def monitor_killed(arena: Arena, name: str) -> None:
    """``kill -9`` of conmon, which watches the container: the server goes on, and is gone when told to restart."""
    row = await row_of(arena, name)
    (monitor,) = monitors(container(row))
    await arena.kill(monitor)
    await arena.call(f"{name}_echo", {"n": 1})
    await arena.running.mooring.restart(name)
    assert (await row_of(arena, name)).pid != row.pid


async def container_killed(arena: Arena, name: str) -> None:
    """Its first process is killed, or somebody kills or removes it with the engine, or the server crashes, or is told
    to restart, being deaf perhaps."""
    row = await row_of(arena, name)
    call = await busy(arena, name)
    match arena.luck.choice(("first", "kill", "rm", "crash", "restart")):
        case "first":
            await arena.kill(containers.inspected(arena.engine, container(row))["State"]["Pid"])
        case "kill":
            await engine_does(arena, "kill", container(row))
        case "rm":
            await engine_does(arena, "rm", "--force", container(row))
        case "crash":
            await arena.call(f"{name}_crash")
        case _:
            await arena.running.mooring.restart(name)
    assert (await call)["isError"]
    assert (await row_of(arena, name)).pid != row.pid


async def spare_killed(arena: Arena, name: str) -> None:
    """The container that waits is killed; the one that works does not notice, another one waits, and the next start
    takes that, which ends the back-off."""
    await arena.pid(name)
    spare = await wait_for(partial(waiting, arena, name), CALL, 0.05)
    assert spare.pid is not None
    if arena.luck.random() < 0.5:
        await arena.kill(spare.pid)
    else:  # its program runs, but the engine may not have made the container yet
        await wait_for(lambda: engine_does(arena, "kill", container(spare)), CALL, 0.05)
    assert not (await arena.call(f"{name}_echo", {"n": 1})).get("isError")

    async def another() -> bool:
        found = await waiting(arena, name)
        return found is not None and found.pid != spare.pid

    await wait_for(another, CALL, 0.05)
    await arena.running.mooring.restart(name)
    await arena.pid(name)


async def waiting(arena: Arena, name: str) -> InstanceRow | None:
    """The line of a spare that runs."""
    rows = [row for row in await arena.running.rows(name) if row.reason.startswith("started in advance")]
    return rows[0] if rows else None


async def daemon_killed(arena: Arena, count: int) -> None:
    """With everything running, and a call under way; its keeper has the engine remove them all."""
    while arena.faults < count:
        await asyncio.gather(*(arena.pid(name) for name in arena.names))
        call = asyncio.create_task(arena.call(f"{arena.names[0]}_sleep", {"seconds": 30}))
        await asyncio.sleep(arena.luck.uniform(0, 0.05))
        await arena.promise()
        os.kill(arena.root, signal.SIGKILL)
        await arena.running.ended()
        await wait_for(lambda: not arena.contained(), GONE, 0.1)
        await asyncio.gather(call, return_exceptions=True)  # the connection is cut: that is an answer, too
        await arena.up()
        arena.faults += len(arena.names)


async def engine_killed(arena: Arena, count: int) -> None:
    """Docker's own daemon is killed and comes back: all its containers are lost, and start again."""
    while arena.faults < count:
        before = {(await row_of(arena, name)).pid for name in arena.names}
        calls = [await busy(arena, name) for name in arena.names]
        ENGINE.kill()
        assert [call for call in await asyncio.gather(*calls) if not call["isError"]] == []
        results = await asyncio.gather(*(arena.call(f"{name}_echo", {"n": 1}) for name in arena.names))
        assert [result for result in results if not result.get("isError")] == []
        await asyncio.to_thread(ENGINE.start)
        assert not before & {(await row_of(arena, name)).pid for name in arena.names}
        arena.faults += len(arena.names)


def monitors(name: str) -> list[int]:
    """The conmon of a container."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
            if words[0].endswith(b"conmon") and name.encode() in words:
                found.append(int(entry.name))
    return found


# A Docker daemon that may be killed.


class PrivateDocker:
    """Nobody else's: found by DOCKER_HOST as long as the block lasts."""

    @contextmanager
    def __call__(self) -> Generator[None]:
        with TemporaryDirectory(prefix="mooring-dockerd-", ignore_cleanup_errors=True) as folder:
            self._folder = Path(folder)
            os.environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
            try:
                self.start()
                containers.image("docker")
                yield
            finally:
                del os.environ["DOCKER_HOST"]
                self._end()

    def start(self) -> None:
        """Start it, again if need be, and wait until it answers."""
        (self._folder / "docker.pid").unlink(missing_ok=True)
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "docker.pid"}
        names = ("containerd-namespace", "containerd-plugins-namespace")
        # In a network of its own: a dockerd without a bridge takes away docker0, which would be the machine's.
        alone = ("unshare", "--net", "dockerd")
        argv = [*alone, "--host", os.environ["DOCKER_HOST"], "--bridge=none", "--iptables=false"]
        argv += (f"--{option}={self._folder / place}" for option, place in places.items())
        argv += (f"--{option}=mooring-{os.getpid()}-{number}" for number, option in enumerate(names))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(int(UP / 0.1)):
            if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0:
                return
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        raise TimeoutError((self._folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """``kill -9``, its containerd included, whose number the next one would take for a living one's."""
        self._process.kill()
        self._process.wait()
        written = self._folder / "exec" / "containerd" / "containerd.pid"
        with suppress(OSError):
            os.kill(int(written.read_text()), signal.SIGKILL)
        written.unlink(missing_ok=True)

    def _end(self) -> None:
        """It, and what its containers have left: processes and mounts below its folder."""
        self._process.terminate()
        try:
            self._process.wait(UP)
        except subprocess.TimeoutExpired:
            self.kill()
        mine = str(self._folder).encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mine in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if (place := line.split()[1]).startswith(str(self._folder)):
                subprocess.run(["umount", "-l", place], capture_output=True, check=False)


ENGINE = PrivateDocker()


def no_private_docker() -> str:
    """Why no Docker daemon of one's own can be tried."""
    if os.getuid():
        return "only root can run a Docker daemon"
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        return "dockerd is not installed (as root on Debian: apt-get install docker.io)"
    return ""


DEAF = ("--ignore-eof", "--ignore-term")
MIXED: Servers = boxes(TOGETHER) | {f"deaf{number}": table for number, table in enumerate(boxes(2, *DEAF).values())}


def in_both(name: str, servers: Servers, happen: Callable[[Arena, int], Awaitable[None]], **more: Any) -> list[Fault]:
    """The class with Podman and with Docker."""
    return [
        Fault(f"{engine} {name}", servers, happen, gateway={"engine": engine}, needs=partial(lacks, engine), **more)
        for engine in ("podman", "docker")
    ]


CONTAINER_FAULTS = (
    *in_both("program killed", boxes(TOGETHER), together(program_killed)),
    *in_both("container killed", MIXED, together(container_killed)),
    *in_both("spare killed", boxes(TOGETHER, spare=1), together(spare_killed)),
    *in_both("daemon killed", boxes(TOGETHER), daemon_killed, beside=False),
    Fault(
        *("conmon killed", boxes(TOGETHER), together(monitor_killed)),
        gateway={"engine": "podman"},
        needs=partial(lacks, "podman"),
    ),
    Fault(
        *("dockerd killed", boxes(TOGETHER), engine_killed),
        gateway={"engine": "docker"},
        needs=no_private_docker,
        around=ENGINE,
    ),
)
