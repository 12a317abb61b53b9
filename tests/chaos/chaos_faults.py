"""The classes of faults. One is a name, the servers it happens to, and what happens, so many times.

A class ends well when its callers were all answered; what else has to hold, in every class, ``test_chaos_faults`` looks
after: nothing left, nothing lost, nobody else hurt.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chaos_arena import CALL, Arena, keeper_of, marked

from mooring.errors import MooringError
from mooring.testing import StdioClient, echo, wait_for
from mooring.testing.daemon import server
from mooring.testing.processes import alive, descendants

CLOSE = {"close": "400ms"}
"""For those that do not go by themselves, so that a class takes seconds."""
TOGETHER = 5
"""Faults at the same time, where one takes a while."""

Servers = dict[str, dict[str, Any]]
Happen = Callable[[Arena, int], Awaitable[None]]


class Fault(NamedTuple):
    """One class."""

    name: str
    servers: Servers
    happen: Happen
    """Given the arena and how many faults there are to be."""
    beside: bool = True
    """Whether a bystander's calls go on meanwhile and must not notice; not when everything is killed."""
    gateway: dict[str, Any] = {}
    needs: Callable[[], str] = str
    """Why it cannot be tried here; "" when it can."""
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """What has to be there meanwhile."""


def each(strike: Callable[[Arena, str], Awaitable[None]]) -> Happen:
    """One fault after the other, to a server that luck chooses."""

    async def happen(arena: Arena, count: int) -> None:
        for _ in range(count):
            await strike(arena, arena.luck.choice(arena.names))
            arena.faults += 1

    return happen


def together(strike: Callable[[Arena, str], Awaitable[None]]) -> Happen:
    """To all servers of the arena at the same time, again and again."""

    async def happen(arena: Arena, count: int) -> None:
        while arena.faults < count:
            await asyncio.gather(*(strike(arena, name) for name in arena.names))
            arena.faults += len(arena.names)

    return happen


async def busy(arena: Arena, name: str, seconds: float = 30.0) -> asyncio.Task[dict[str, Any]]:
    """A call that is under way when this returns."""
    call = asyncio.create_task(arena.call(f"{name}_sleep", {"seconds": seconds, "steps": 1}))

    async def begun() -> bool:
        return call.done() or any(row.leases for row in await arena.running.rows(name))

    await wait_for(begun, CALL, 0.01)
    return call


# Processes that are killed, frozen, or hang up.


async def child_killed(arena: Arena, name: str) -> None:
    pid = await arena.pid(name)
    call = await busy(arena, name)
    await arena.kill(pid)
    assert (await call)["isError"]


async def grandchild_killed(arena: Arena, name: str) -> None:
    """Whatever a server started may die; that is between the two."""
    result = await arena.call(f"{name}_pid")
    found = [pid for pid in result["structuredContent"]["grandchildren"] if alive(pid)]
    if not found:
        await arena.running.mooring.restart(name)
        result = await wait_for(partial(arena.call, f"{name}_pid"), CALL)
        found = [pid for pid in result["structuredContent"]["grandchildren"] if alive(pid)]
    await arena.kill(arena.luck.choice(found))
    assert not (await arena.call(f"{name}_echo", {"n": 1})).get("isError")


async def group_killed(arena: Arena, name: str) -> None:
    """The server and what is in its group, but not the helper that left it: that one is the keeper's to end."""
    result = await arena.call(f"{name}_pid")
    if result.get("isError"):
        await arena.pid(name)
        return
    content = result["structuredContent"]
    with suppress(ProcessLookupError):
        os.killpg(content["pid"], signal.SIGKILL)
    await arena.gone({content["pid"], *content["grandchildren"]})


async def frozen_for_a_moment(arena: Arena, name: str) -> None:
    """Shorter than the limit of a call: nobody is told anything."""
    pid = await arena.pid(name)
    os.kill(pid, signal.SIGSTOP)
    call = asyncio.create_task(arena.call(f"{name}_echo", {"n": 1}))
    await asyncio.sleep(arena.luck.uniform(0.0, 0.15))
    os.kill(pid, signal.SIGCONT)
    assert not (await call).get("isError")


async def frozen_for_good(arena: Arena, name: str) -> None:
    """The call times out, so does a ping, and another process takes over."""
    pid = await arena.pid(name)
    os.kill(pid, signal.SIGSTOP)
    assert (await arena.call(f"{name}_echo", {"n": 1}))["isError"]
    await arena.gone({pid})
    assert await arena.pid(name) != pid


async def hung_up(arena: Arena, name: str) -> None:
    """It closes its stdin or its stdout, and lives on."""
    pid = await arena.pid(name)
    await arena.call(f"{name}_hang_up", {"what": arena.luck.choice(("input", "output"))})
    await arena.call(f"{name}_echo", {"n": 1})
    await arena.gone({pid})
    await arena.pid(name)


async def stubborn(arena: Arena, name: str) -> None:
    """It ignores the end of its input, or SIGTERM, or both; told to restart, it is gone all the same."""
    result = await wait_for(partial(arena.call, f"{name}_pid"), CALL)
    content = result["structuredContent"]
    await arena.running.mooring.restart(name)
    await arena.gone({content["pid"], *content["grandchildren"]})
    assert await arena.pid(name) != content["pid"]


async def many_processes(arena: Arena, name: str) -> None:
    """A tree of processes, some in sessions of their own, or one that is always somebody else. The server is killed, or
    crashes, or is told to restart: all of them go with it."""
    pid = await arena.pid(name)
    before = marked(arena.mark) - {await arena.pid("calm")}
    assert pid in before
    match arena.luck.choice(("kill", "crash", "restart")):
        case "kill":
            await arena.kill(pid)
        case "crash":
            await arena.call(f"{name}_crash")
        case _:
            await arena.running.mooring.restart(name)
    await arena.gone(before)
    assert await arena.pid(name) != pid


# The daemon and its keeper.


async def daemon_killed(arena: Arena, count: int) -> None:
    """At any moment, with calls under way, right after something was acknowledged."""
    for _ in range(count):
        await asyncio.gather(*(arena.pid(name) for name in arena.names))
        call = asyncio.create_task(arena.call(f"{arena.names[0]}_sleep", {"seconds": 30}))
        family = descendants(arena.root) | marked(arena.mark)
        await asyncio.sleep(arena.luck.uniform(0, 0.05))
        await arena.promise()
        os.kill(arena.root, signal.SIGKILL)
        await arena.running.ended()
        await arena.gone(family | marked(arena.mark))
        with suppress(ConnectionError, EOFError, TimeoutError, AssertionError):
            await call  # the connection is cut: that is an answer, too
        assert call.done()
        await arena.up()
        arena.faults += 1


async def daemon_stopped(arena: Arena, count: int) -> None:
    """SIGTERM in the middle of calls: each is answered before the daemon ends, and nothing is left."""
    for _ in range(count):
        await asyncio.gather(*(arena.pid(name) for name in arena.names))
        calls = [
            asyncio.create_task(
                arena.call(f"{name}_sleep", {"seconds": arena.luck.choice((0.0, 0.1, 0.2, 0.3, 0.4, 30))})
            )
            for name in arena.names
        ]
        await asyncio.sleep(arena.luck.uniform(0, 0.1))
        family = descendants(arena.root) | marked(arena.mark)
        arena.running.process.terminate()
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, ConnectionRefusedError), repr(answer)  # it came too late to be accepted
        assert await arena.running.ended() == 0
        await arena.gone(family)
        await arena.up()
        arena.faults += 1


async def keeper_killed(arena: Arena, count: int) -> None:
    """All servers go with it, and come back at once: it was not their fault."""
    for _ in range(count):
        before = await asyncio.gather(*(arena.pid(name) for name in arena.names))
        keeper = keeper_of(arena.root)
        family = marked(arena.mark)
        call = await busy(arena, arena.names[0])
        await arena.kill(keeper)
        assert (await call)["isError"]
        await arena.gone({keeper, *family})
        results = await asyncio.gather(*(arena.call(f"{name}_pid") for name in arena.names))
        assert not [result for result in results if result.get("isError")], results
        assert not {int(result["content"][0]["text"]) for result in results} & set(before)
        arena.faults += 1


# Output, input, and too much of everything.


async def long_line(arena: Arena, name: str) -> None:
    """Around the size of a pipe and of a read, and a few megabytes."""
    size = arena.luck.choice((65535, 65536, 65537, 131072, 262144, 3_000_000)) + arena.luck.randint(-200, 200)
    result = await arena.call(f"{name}_huge", {"bytes": size})
    assert len(result["content"][0]["text"]) == size


async def stderr_flood(arena: Arena, name: str) -> None:
    """Megabytes on stderr while calls go on."""
    text = "x" * arena.luck.choice((10, 4095, 4096, 65536, 1_000_000))
    floods = [arena.call(f"{name}_complain", {"text": text}) for _ in range(4)]
    results = await asyncio.gather(*floods, arena.call(f"{name}_echo", {"n": 1}))
    assert not [result for result in results if result.get("isError")]


async def caller_gone(arena: Arena, name: str) -> None:
    """A client that cuts its connection in the middle of a call: the server goes on, and is not in use for ever."""
    pid = await arena.pid(name)
    async with await arena.running.client("w", timeout=CALL) as client:
        await client.open()
        call = asyncio.create_task(client.call(f"{name}_sleep", {"seconds": 1}))
        await asyncio.sleep(arena.luck.uniform(0, 0.03))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert await arena.pid(name) == pid

    async def unused() -> bool:
        return not any(row.leases for row in await arena.running.rows(name))

    if arena.luck.random() < 0.3:
        await wait_for(unused, CALL, 0.02)


async def shim_killed(arena: Arena, count: int) -> None:
    """``mooring stdio`` dies with a call under way."""

    async def one() -> None:
        argv = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
        async with StdioClient(argv, env=arena.running.env, timeout=CALL) as shim:
            await shim.open()
            call = asyncio.create_task(shim.call(f"{arena.luck.choice(arena.names)}_sleep", {"seconds": 30}))
            await asyncio.sleep(arena.luck.uniform(0, 0.05))
            shim.process.kill()
            await shim.process.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    while arena.faults < count:
        await asyncio.gather(*(one() for _ in range(TOGETHER)))
        arena.faults += TOGETHER


# Storms.


async def start_storm(arena: Arena, count: int) -> None:
    """A hundred servers at once, first calls to all of them; then none."""
    while arena.faults < count:
        many = {f"storm{number}": arena.server() for number in range(100)}
        arena.configure({**arena.servers, **many})
        assert (await arena.running.mooring.reload()).applied
        for result in await asyncio.gather(*(arena.call(f"{name}_pid") for name in many)):
            told = result.get("_meta", {}).get("mooring/error", {})
            assert not result.get("isError") or told.get("kind") == "unavailable", result  # listed later than 3 s
        await asyncio.gather(*(arena.pid(name) for name in many))
        arena.configure(arena.servers)
        assert (await arena.running.mooring.reload()).applied
        wanted = 1 + len(arena.names) + 1
        await wait_for(lambda wanted=wanted: len(descendants(arena.root)) == wanted, CALL, 0.02)
        arena.faults += len(many)


async def reload_storm(arena: Arena, count: int) -> None:
    """Definitions come, change and go while calls to them, and to those that stay, are under way."""
    over = asyncio.Event()

    async def caller(name: str) -> None:
        async with await arena.running.client("w", timeout=CALL) as client:
            await client.open()
            while not over.is_set():
                result = await client.call(f"{name}_sleep", {"seconds": 0.05, "steps": 1})
                assert not result.get("isError"), result
                client.replies.clear()

    async with asyncio.TaskGroup() as group:
        for name in arena.names:
            group.create_task(caller(name))
        for number in range(count):
            moving = arena.server("--name", f"{number}")
            extra = {f"extra{n}": moving for n in range(number % 3)}
            arena.configure({**arena.servers, "moving": moving, **extra})
            if number % 4:
                with suppress(MooringError):
                    await arena.running.mooring.reload()
            await asyncio.sleep(arena.luck.uniform(0, 0.1))
            arena.faults += 1
        arena.configure(arena.servers)
        await arena.running.mooring.reload()
        over.set()


async def idle_stop(arena: Arena, name: str) -> None:
    """A call at the very moment when its server is stopped as idle: never cut, never refused."""
    await asyncio.sleep(arena.luck.uniform(0.02, 0.04))
    result = await arena.call(f"{name}_pid")
    assert not result.get("isError"), f"cut by idle stop: {result}"


# The store's disk.


async def refused_to_write(arena: Arena) -> bool:
    """Whether the store says no; what it takes has to stay."""
    try:
        await arena.promise()
    except MooringError as error:
        return error.facts()["kind"] == "store"
    return False


async def file_limit(arena: Arena, count: int) -> None:
    """The daemon may write no file beyond what it has: keys are refused, calls go on, and later keys are made."""
    soft, hard = resource.prlimit(arena.root, resource.RLIMIT_FSIZE)
    for _ in range(count):
        resource.prlimit(arena.root, resource.RLIMIT_FSIZE, (4096, hard))
        await wait_for(partial(refused_to_write, arena), CALL)
        assert not (await arena.call(f"{arena.names[0]}_echo", {"n": 1})).get("isError")
        resource.prlimit(arena.root, resource.RLIMIT_FSIZE, (soft, hard))
        await arena.promise()
        arena.faults += 1


async def full_disk(arena: Arena, count: int) -> None:
    """The file system of the store is full. Its log is emptied before, or it had room for hundreds of keys more."""
    filler = arena.home / "state" / "filler"
    for _ in range(count):
        with closing(sqlite3.connect(arena.home / "state" / "mooring.db", timeout=CALL)) as store:
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        await wait_for(partial(refused_to_write, arena), CALL)
        assert not (await arena.call(f"{arena.names[0]}_echo", {"n": 1})).get("isError")
        filler.unlink()
        await arena.promise()
        arena.faults += 1


def no_tmpfs() -> str:
    """Why the test may not make a small file system."""
    if os.getuid() or shutil.which("mount") is None:
        return "only root can mount a small file system"
    return "" if "tmpfs" in Path("/proc/filesystems").read_text() else "this system has no tmpfs"


# What the servers look like.

TREE = """
tree() { [ "$1" = 0 ] || { tree $(($1 - 1)) & tree $(($1 - 1)) & }; setsid sleep 600 & sleep 600; }
tree 3 &
exec "$0" "$@"
"""
"""Some thirty processes, half of them in sessions of their own."""
RUNNER = """
import os, time
while True:
    time.sleep(0.005)
    if os.fork():
        os._exit(0)
"""
"""One process that is another one every few milliseconds."""


def behind(script: str, *flags: str) -> dict[str, Any]:
    """An echo server whose process runs a shell script first."""
    command, *args = echo(*flags)
    return {"command": "sh", "args": ["-c", script, command, *args], "timeouts": CLOSE}


def runner() -> dict[str, Any]:
    return behind(f'{sys.executable} -c \'{RUNNER}\' & exec "$0" "$@"')


def several(count: int, *flags: str, **members: Any) -> Servers:
    return {f"s{number}": server(*flags, **members) for number in range(count)}


KINDS: Servers = {"dual": server(), "legacy": server("--era", "legacy"), "modern": server("--era", "modern")}
DEAF = ("--ignore-eof", "--ignore-term", "--spawn-grandchild")
FAMILY: Servers = {"family": server("--spawn-grandchild", "--ignore-term", timeouts=CLOSE)}

FAULTS = (
    Fault("child killed", KINDS, each(child_killed)),
    Fault("grandchild killed", several(3, "--spawn-grandchild", timeouts=CLOSE), each(grandchild_killed)),
    Fault("group killed", FAMILY, each(group_killed)),
    Fault("frozen for a moment", KINDS, each(frozen_for_a_moment)),
    Fault("frozen for good", several(25, timeouts={"call": "500ms", **CLOSE}), together(frozen_for_good)),
    Fault("pipe closed", several(5, timeouts=CLOSE), together(hung_up)),
    Fault("EOF ignored", several(5, "--ignore-eof", timeouts=CLOSE), together(stubborn)),
    Fault("TERM ignored", several(5, *DEAF, timeouts=CLOSE), together(stubborn)),
    Fault("fork tree", {"tree": behind(TREE)}, each(many_processes)),
    Fault("moving target", {"runner": runner()}, each(many_processes)),
    Fault("daemon killed", {"dual": server(), **FAMILY}, daemon_killed, beside=False),
    Fault("daemon stopped", {"dual": server(), "legacy": server("--era", "legacy")}, daemon_stopped, beside=False),
    Fault("keeper killed", {**KINDS, **FAMILY}, keeper_killed, beside=False),
    Fault("64 KiB lines", KINDS, each(long_line)),
    Fault("stderr flood", several(3, "--stderr-noise", "3000000"), each(stderr_flood)),
    Fault("caller gone", KINDS, each(caller_gone)),
    Fault("shim killed", KINDS, shim_killed),
    Fault("start storm", {}, start_storm),
    Fault("reload storm", {"moving": server(), "steady": server("--era", "legacy")}, reload_storm),
    Fault("idle stop", several(3, idle_timeout="30ms"), together(idle_stop)),
    Fault("file size limit", {"echo": server()}, file_limit),
    Fault("disk full", {"echo": server()}, full_disk, needs=no_tmpfs),
)
