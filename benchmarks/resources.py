"""Suites: memory, and how long a gateway takes to be there. One peer at a time for the starts; see ``turns``."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections import defaultdict

from benchmarks.direct import DirectSession
from benchmarks.peers import PEERS, Running, Server, servers
from benchmarks.turns import Effort, Row, Table, all_up, bring_up, failed, in_turns, median, small_call

IDLE_SECONDS = 3


async def memory(names: list[str], effort: Effort) -> Table:
    """20 servers that nobody calls: memory of the gateway, and the CPU it uses for nothing; one reading."""
    table: Table = {}
    rows: dict[str, Row] = {}

    async def measure(up: Running) -> None:
        session = await up.session()
        await small_call(session, up.peer.tool("s00", "echo"), 0)
        session.close()
        rss, pss = up.memory()
        before = up.cpu()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (up.cpu() - before) / IDLE_SECONDS * 1000
        row = {"RSS MB": round(rss, 1), "PSS MB": round(pss, 1), "idle CPU ms/s": round(idle, 2)}
        rows[up.peer.name] = {**row, "servers up": up.group.backends()}

    async with all_up([name for name in names if PEERS[name].relays], servers(20), table) as ups:
        await in_turns(ups, table, 1, measure)
    return table | rows


async def start(names: list[str], effort: Effort) -> Table:
    """From the spawn, with 1 server: says it is ready, shakes hands. With 20 that sleep 0.5 s: all are listed."""
    table: Table = {}
    figures: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    bare: list[float] = []
    for _ in range(effort.rounds):
        for name in names:
            try:
                for title, seconds in (await one_start(name, bare)).items():
                    figures[name][title].append(seconds)
            except Exception as error:
                table[name] = failed(error)
    for name in (name for name in names if name not in table):
        table[name] = {title: median(values, 3) for title, values in figures[name].items()}
        for what in ("ready", "answers"):
            if seconds := figures[name].get(f"{what} s"):
                times = statistics.median(seconds) / statistics.median(bare)
                table[name][f"{what}, x bare interpreter"] = round(times, 1)
    return table


def bare_interpreter() -> float:
    """Seconds of an interpreter that starts and ends, with the flags that the gateways' have: none."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begun


async def one_start(name: str, bare: list[float]) -> dict[str, float]:
    """The times, in seconds. Its first life with one server is not timed: byte code and lists are there then. ``bare``
    gets the time of a bare interpreter before each, on a machine that is as warm."""
    figures: dict[str, float] = {}

    def compare() -> None:
        bare.append(bare_interpreter())

    if PEERS[name].health:
        async with bring_up(name, servers(1), lives=2, before=compare) as up:
            figures["ready s"] = await up.ready()
    async with bring_up(name, servers(1), lives=2, before=compare) as up:
        figures["answers s"] = await up.answers()
    if PEERS[name].relays:
        async with bring_up(name, servers(20, delay=0.5)) as up:
            figures["20 slow servers listed s"] = await up.complete()
    return figures


async def cold(names: list[str], effort: Effort) -> Table:
    """The first call to each of 5 servers after a restart; only one that starts servers on demand is cold."""
    table: Table = {}
    for name in (name for name in names if PEERS[name].relays):
        try:
            table[name] = await cold_row(name)
        except Exception as error:
            table[name] = failed(error)
    return table


async def cold_row(name: str) -> Row:
    """Medians over the servers; each is compared with a start of the same server without a gateway, right before."""
    first: list[float] = []
    own: list[float] = []
    async with bring_up(name, servers(5), lives=2) as up:
        await up.complete()
        before = up.group.backends()
        for server in up.peer.servers:
            own.append(await cold_backend(server) * 1000)
            session = await up.session(server.name)
            first.append(await small_call(session, up.peer.tool(server.name, "echo"), 0) * 1000)
            session.close()
    row: Row = {"servers up before": before, "first call ms": median(first, 2)}
    if before == 0:
        row["added to the server's own start ms"] = round(statistics.median(first) - statistics.median(own), 2)
    return row


async def cold_backend(server: Server) -> float:
    """Seconds from the spawn of a server, with nothing between, to its first answer."""
    begun = time.perf_counter()
    session = await DirectSession(server.argv).open()
    await small_call(session, "echo", 0)
    seconds = time.perf_counter() - begun
    await session.close()
    return seconds
