"""Where faults happen: one daemon with servers that may be hurt and one that may not, and somebody who watches.

The watcher is outside: it walks /proc, by ancestry and by a mark in the environment that every server passes on to
whatever it starts, and it never asks the daemon what is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from mooring.errors import MooringError
from mooring.launch.family import nested
from mooring.testing import HttpClient, containers, wait_for
from mooring.testing.daemon import Daemon, launched, server, write_config
from mooring.testing.processes import alive, descendants, descriptors, parent, state

CALL = 60.0
"""Seconds within which every call must be answered, on a machine that is busy with other things too; a start has as
many."""
GONE = 30.0
"""Seconds after which nothing may be left of what was ended."""
PACE = 0.02
"""Seconds between two calls to the bystander."""
KNOWN = {"crashed", "backing_off", "start_failed", "unavailable", "busy", "timed_out"}
"""What a caller may be told about a server that was hurt."""
MARK = "MOORING_CHAOS_MARK"
T = TypeVar("T")


class Count(NamedTuple):
    """What the daemon has, seen from outside."""

    family: Counter[str]
    """The programs that run below it: how many of each."""
    daemon: int
    """Its descriptors."""
    keeper: int
    """Those of its keeper."""


def marked(mark: str) -> set[int]:
    """Every living process with this mark in its environment, wherever it hangs in the tree."""
    sign = f"{MARK}={mark}".encode()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and sign in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return {pid for pid in found if alive(pid)}


def keeper_of(root: int) -> int:
    """The daemon's keeper, found from outside: its only child. (Between fork and exec a server looks like one.)"""
    children = [pid for pid in descendants(root) if parent(pid) == root]
    return children[0] if len(children) == 1 else 0


def programs(root: int) -> Counter[str]:
    """What runs below a process: how many of each program."""
    found: Counter[str] = Counter()
    for pid in descendants(root):
        with suppress(OSError):
            found[Path(f"/proc/{pid}/comm").read_text().strip()] += 1
    return found


def command_line(pid: int) -> str:
    """With what a process was started; "" when it is gone or a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


async def settled(look: Callable[[], T], quiet: int = 30) -> T:
    """What ``look`` finds once it has stayed the same for some looks; bounded."""
    last, same = look(), 0
    async with asyncio.timeout(CALL):
        while same < quiet:
            await asyncio.sleep(0.01)
            value = look()
            last, same = value, same + 1 if value == last else 0
    return last


class Arena:
    """``servers`` are to be hurt; "calm" is beside them. ``seed`` makes everything that is random."""

    def __init__(self, home: Path, servers: dict[str, dict[str, Any]], seed: int, gateway: dict[str, Any]) -> None:
        self.home = home
        self.luck = random.Random(seed)
        self.mark = f"{os.getpid()}-{seed}-{home.name}"
        env = {MARK: self.mark}
        self.servers = {name: {**table, "env": {**table.get("env", {}), **env}} for name, table in servers.items()}
        self.calm = server(env=env)
        self.names = tuple(servers)
        self.gateway = gateway
        self.engine = gateway.get("engine", "")
        """Whose containers the servers are in; "" when they are processes."""
        self.faults = 0
        self.outcomes: Counter[str] = Counter()
        self.bystander: list[float] = []
        self.promised: set[str] = set()
        """Ids of keys whose making was acknowledged."""
        self.running: Daemon
        self.client: HttpClient
        self._stack = AsyncExitStack()
        self._up = AsyncExitStack()
        self._connected = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.configure(self.servers)
        await self.up()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            error.add_note(await self.told())
        await self._up.aclose()
        await self._stack.aclose()

    @property
    def root(self) -> int:
        """The daemon's pid."""
        return self.running.process.pid

    def configure(self, servers: dict[str, Any]) -> None:
        """Write the configuration, as an editor does."""
        write_config(self.home / "mooring.toml", {**servers, "calm": self.calm}, gateway=self.gateway)

    def server(self, *flags: str, **members: Any) -> dict[str, Any]:
        """A further server with this arena's mark."""
        return server(*flags, env={MARK: self.mark}, **members)

    async def up(self) -> None:
        """Start the daemon, again if need be."""
        await self._up.aclose()
        self._up = AsyncExitStack()
        self.running = await self._up.enter_async_context(launched(self.home))
        await self.reconnect()

    async def reconnect(self) -> None:
        """Callers at the same time leave several connections open; from now on there is one, with its session."""
        await self._connected.aclose()
        self._connected = AsyncExitStack()
        self._up.push_async_callback(self._connected.aclose)
        self.client = await self._connected.enter_async_context(await self.running.client("w", timeout=CALL))
        await self.client.open()

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """A call that has to be answered, well or with a failure that makes sense."""
        result = await self.client.call(tool, arguments, **more)
        self.client.replies.clear()
        if result.get("isError") and "mooring/error" in result.get("_meta", {}):
            kind = result["_meta"]["mooring/error"]["kind"]
            assert kind in KNOWN, result
            self.outcomes[kind] += 1
        else:
            self.outcomes["ok"] += 1
        return result

    async def pid(self, name: str) -> int:
        """The process of a server that works, which is started or restarted for this if need be."""

        async def answered() -> int:
            if any(row.state == "backoff" for row in await self.running.rows(name)):
                with suppress(MooringError):
                    await self.running.mooring.restart(name)
            result = await self.client.call(f"{name}_pid")
            return 0 if result.get("isError") else int(result["content"][0]["text"])

        return await wait_for(answered, CALL, 0.02)

    async def kill(self, pid: int) -> None:
        """``kill -9``."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def gone(self, pids: set[int]) -> None:
        """None of these is alive; else TimeoutError. (Who reaps what a dead daemon leaves is the system's affair.)"""
        await wait_for(lambda: not [pid for pid in pids if alive(pid)], GONE, 0.01)

    async def promise(self) -> None:
        """Something that has to survive: a key whose making is acknowledged."""
        self.promised.add((await self.running.mooring.key_create("w", name=f"chaos-{len(self.promised)}")).id)

    async def lost(self) -> int:
        """How many acknowledged keys are not there."""
        return len(self.promised - {row.id for row in await self.running.mooring.key_list()})

    async def beside(self, work: Awaitable[None]) -> None:
        """Do ``work`` while somebody steadily calls the calm server, who must notice nothing."""
        over = asyncio.Event()

        async def bystander() -> None:
            async with await self.running.client("w", timeout=CALL) as client:
                await client.open()
                while not over.is_set():
                    began = time.perf_counter()
                    result = await client.call("calm_echo", {"n": len(self.bystander)})
                    self.bystander.append(time.perf_counter() - began)
                    assert not result.get("isError"), f"the bystander was hurt: {result}"
                    client.replies.clear()
                    await asyncio.sleep(PACE)

        async def then() -> None:
            try:
                await work
            finally:
                over.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(bystander())
            group.create_task(then())

    async def all_well(self) -> None:
        """Every server answers, and its spares wait; their containers run, not only the engine's programs."""
        for name in (*self.names, "calm"):
            await self.pid(name)

        async def waiting(name: str) -> bool:
            rows = await self.running.rows(name)
            spares = sum(row.reason.startswith("started in advance") for row in rows)
            return spares == self.servers[name].get("spare", 0)

        for name in self.names:
            await wait_for(partial(waiting, name), CALL, 0.05)
        wanted = sum(1 + table.get("spare", 0) for table in self.servers.values()) if self.engine else 0
        await wait_for(lambda: len(self.contained(running=True)) == wanted, CALL, 0.1)

    async def count(self) -> Count:
        """Once it keeps still."""
        root, keeper = self.root, keeper_of(self.root)
        return Count(
            await settled(lambda: programs(root)),
            await settled(lambda: descriptors(root)),
            await settled(lambda: descriptors(keeper)),
        )

    async def none_more(self, before: Counter[str]) -> None:
        """No program runs more often below the daemon than ``before``; else AssertionError."""
        try:
            await wait_for(lambda: programs(self.root) <= before, CALL, 0.05)
        except TimeoutError:
            more = programs(self.root) - before
            raise AssertionError(f"more than before: {more}; before: {before}") from None

    async def told(self) -> str:
        """What explains a failure: the processes below the daemon, what it says that runs, and its last words."""
        there = sorted(descendants(self.root))
        lines = [f"{pid} below {parent(pid)}, {state(pid)}: {command_line(pid)}" for pid in there]
        with suppress(MooringError, OSError):
            lines += map(str, await self.running.mooring.ps())
        return "\n".join([*lines, *self.running.output.splitlines()[-20:]])

    def orphans(self) -> set[int]:
        """Marked processes that the daemon is no ancestor of. What is in a container hangs where its engine wants it
        to; that is counted by the label that the engine knows it by."""
        return {pid for pid in marked(self.mark) - descendants(self.root) if not nested(pid)}

    def contained(self, *, running: bool = False) -> set[str]:
        """The containers that the engine has of this home, running or not, or those that run."""
        return containers.names(self.engine, containers.label(self.home), running=running) if self.engine else set()

    async def no_strays(self) -> bool:
        """The engine has no container of this home but those that the daemon shows."""
        shown = {row.container.partition(":")[2] for row in await self.running.mooring.ps() if row.container}
        return self.contained() <= shown

    def zombies(self) -> set[int]:
        """What the daemon or its keeper has not reaped; what a server leaves unreaped is its own affair."""
        ours = {self.root, keeper_of(self.root)}
        return {pid for pid in descendants(self.root) if state(pid) == "Z" and parent(pid) in ours}

    @property
    def delay(self) -> tuple[float, float]:
        """Milliseconds of a bystander's call: in the middle, and the longest."""
        if not self.bystander:
            return 0.0, 0.0
        return statistics.median(self.bystander) * 1000, max(self.bystander) * 1000
