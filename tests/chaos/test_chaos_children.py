"""Random violence against servers under load: every call ends exactly once, and nothing leaks.

``MOORING_CHAOS=1000`` makes it that many blows; ``MOORING_CHAOS_SEED`` repeats a run (the seed is printed).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chaos_arena import keeper_of, settled

from mooring.errors import MooringError
from mooring.testing import HttpClient, StdioClient, wait_for
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.processes import alive, descendants, descriptors, state
from mooring.testing.speech import Era

BLOWS = int(os.environ.get("MOORING_CHAOS", "200"))
SEED = int(os.environ.get("MOORING_CHAOS_SEED", str(random.SystemRandom().randrange(1 << 32))))
PACE = 0.015
"""Seconds between two blows, on average."""
CALL = 20.0
"""Seconds within which every call must have ended."""
HTTP_CALLERS = 6
STDIO_CALLERS = 2
ERAS: tuple[Era, ...] = ("legacy", "modern")
KNOWN = {"crashed", "backing_off", "start_failed", "unavailable", "busy"}
"""Failures that a caller may meet here."""


def servers(mark: str) -> dict[str, Any]:
    """Well-behaved and not; ``mark`` stands in every command line, for the look from outside."""

    def one(*flags: str) -> dict[str, Any]:
        return server("--name", mark, *flags, timeouts={"close": "1s"})

    return {
        "dual": one(),
        "legacy": one("--era", "legacy"),
        "modern": one("--era", "modern"),
        "family": one("--spawn-grandchild", "--ignore-term"),
        "dirty": one("--garbage", "--non-utf8", "--era", "legacy"),
        "stubborn": one("--ignore-eof", "--ignore-term"),
    }


def marked(mark: str) -> set[int]:
    """Every living process of this run, wherever it hangs in the tree."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return {pid for pid in found if alive(pid)}


class Storm:
    """What happens to one daemon, and what its callers see."""

    def __init__(self, running: Daemon, names: tuple[str, ...], mark: str) -> None:
        self.running = running
        self.names = names
        self.mark = mark
        self.luck = random.Random(SEED)
        self.over = asyncio.Event()
        self.outcomes: Counter[str] = Counter()
        self.blows: Counter[str] = Counter()
        self.slowest = 0.0

    async def blow(self) -> None:
        """Hurt one server, somehow."""
        victims = sorted(marked(self.mark))
        how = self.luck.choice(("kill", "freeze", "crash", "kill group"))
        if how == "crash" or not victims:
            how = "crash"
            with suppress(MooringError):
                await self.running.mooring.call("w", f"{self.luck.choice(self.names)}_crash", {})
        else:
            pid = self.luck.choice(victims)
            with suppress(ProcessLookupError):
                match how:
                    case "kill":
                        os.kill(pid, signal.SIGKILL)
                    case "kill group":
                        os.killpg(pid, signal.SIGKILL)
                    case _:
                        os.kill(pid, signal.SIGSTOP)
                        await asyncio.sleep(self.luck.uniform(0.0, 0.2))
                        os.kill(pid, signal.SIGCONT)
        self.blows[how] += 1

    async def rage(self) -> None:
        """All blows; now and then somebody restarts what backs off, so that there is something to hurt."""
        for _ in range(BLOWS):
            await self.blow()
            for name in self.names:
                if self.luck.random() < 0.4:
                    await self.running.mooring.restart(name)
            await asyncio.sleep(self.luck.uniform(0, 2 * PACE))
        self.over.set()

    async def call(self, client: HttpClient | StdioClient, luck: random.Random) -> None:
        """One call; it must end in time, with one answer that makes sense."""
        tool, arguments = luck.choice(
            (("echo", {"n": luck.random()}), ("sleep", {"seconds": 0.1}), ("huge", {"bytes": 200_000}), ("pid", {}))
        )
        began = time.perf_counter()
        params = {"name": f"{luck.choice(self.names)}_{tool}", "arguments": arguments}
        message = await client.request("tools/call", params)
        self.slowest = max(self.slowest, time.perf_counter() - began)
        result = message["result"]
        if result.get("isError"):
            kind = result["_meta"]["mooring/error"]["kind"]
            assert kind in KNOWN, result
            self.outcomes[kind] += 1
        else:
            assert tool != "echo" or result["structuredContent"] == arguments
            self.outcomes["ok"] += 1

    async def over_http(self, number: int) -> None:
        luck = random.Random(SEED + number)
        async with await self.running.client("w", ERAS[number % 2], timeout=CALL) as client:
            await client.open()
            while not self.over.is_set():
                await self.call(client, luck)
                raw = client.replies.pop().raw
                assert raw.count(b'"jsonrpc"') == 1, f"more than one message: {raw[:2000]!r}"
                client.replies.clear()

    async def over_stdio(self, number: int) -> None:
        luck = random.Random(SEED - number)
        argv = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
        async with StdioClient(argv, era=ERAS[number % 2], env=self.running.env, timeout=CALL) as client:
            await client.open()
            while not self.over.is_set():
                await self.call(client, luck)
            ids = [message["id"] for line in client.received if "id" in (message := json.loads(line))]
            assert sorted(ids) == list(range(1, len(ids) + 1)), "every request has one answer"


async def all_well(running: Daemon, names: tuple[str, ...]) -> None:
    """Every server answers again, bounded."""
    async with await running.client("w", timeout=CALL) as client:
        await client.open()
        for name in names:

            async def answers(name: str = name) -> bool:
                if any(row.state == "backoff" for row in await running.rows(name)):
                    await running.mooring.restart(name)
                return not (await client.call(f"{name}_pid")).get("isError")

            await wait_for(answers, 30, 0.05)


@pytest.mark.timeout(120 + BLOWS)
async def test_every_call_ends_once_and_nothing_leaks_whatever_happens_to_servers(tmp_path: Path) -> None:
    """R13, R15, A13, A15, A16: killed, frozen, crashed; an outside walker counts processes and descriptors."""
    mark = f"chaos-{os.getpid()}-{SEED}"
    sys.stderr.write(f"\nMOORING_CHAOS={BLOWS} MOORING_CHAOS_SEED={SEED}\n")
    table = servers(mark)
    names = tuple(table)
    async with daemon(tmp_path, table) as running:
        await all_well(running, names)
        root = running.process.pid
        before = {pid: await settled(partial(descriptors, pid)) for pid in (root, keeper_of(root))}
        family = await settled(lambda: len(descendants(root)))
        assert family == 1 + len(names) + 2, "the keeper, the servers, two grandchildren"

        storm = Storm(running, names, mark)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(HTTP_CALLERS):
                group.create_task(storm.over_http(number))
            for number in range(STDIO_CALLERS):
                group.create_task(storm.over_stdio(number))
            group.create_task(storm.rage())
        seconds = time.perf_counter() - began

        await all_well(running, names)
        await wait_for(lambda: len(descendants(root)) == family, 20, 0.05)
        everyone = descendants(root)
        assert not [pid for pid in everyone if state(pid) == "Z"]
        assert marked(mark) <= everyone, "one got away"
        for pid, count in before.items():
            await wait_for(lambda pid=pid, count=count: descriptors(pid) <= count, 10, 0.05)
        assert "Traceback" not in running.output
    assert not marked(mark)
    assert not [pid for pid in everyone if alive(pid)]
    sys.stderr.write(
        f"{dict(storm.blows)} in {seconds:.1f} s; {dict(storm.outcomes)}; slowest call {storm.slowest:.2f} s\n"
    )
    assert storm.outcomes["ok"] > BLOWS / 2
