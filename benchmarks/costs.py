"""Suites: what a call costs. CPU seconds of the gateway for 1000 calls is the figure to trust; see ``turns``."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from functools import partial

from benchmarks.direct import DirectSession
from benchmarks.peers import PEERS, Running, servers
from benchmarks.turns import Call, Effort, Table, all_up, call_for, in_turns, large_call, median, percentile, small_call

LISTS_A_TURN = 5


async def calls(names: list[str], effort: Effort) -> Table:
    """100 bytes, one caller, protocol 2025-11-25 with a session."""
    return await sequential(names, effort, small_call, "echo")


async def modern(names: list[str], effort: Effort) -> Table:
    """100 bytes, one caller, protocol 2026-07-28, stateless; only peers that speak it."""
    able = [name for name in names if PEERS[name].modern]
    return await sequential(able, effort, small_call, "echo", modern=True)


async def large(names: list[str], effort: Effort) -> Table:
    """1 MB results, one caller."""
    able = [name for name in names if PEERS[name].relays]
    return await sequential(able, effort, large_call, "blob")


async def sequential(names: list[str], effort: Effort, call: Call, tool: str, *, modern: bool = False) -> Table:
    """One call after the other. Added latency is against the same server without a gateway, in the same rounds."""
    table: Table = {}
    cpu: defaultdict[str, list[float]] = defaultdict(list)
    times: defaultdict[str, list[list[float]]] = defaultdict(list)
    direct_times: list[float] = []
    direct = await DirectSession(servers(1)[0].argv).open()

    async def measure(up: Running) -> None:
        direct_times.append(percentile(await call_for(direct, call, tool, effort, share=0.3), 0.5))
        session = await up.session(modern=modern)
        name = up.peer.tool("s00", tool)
        await call_for(session, call, name, effort, share=0.1)
        before = up.cpu()
        taken = await call_for(session, call, name, effort)
        cpu[up.peer.name].append((up.cpu() - before) / len(taken) * 1000)
        times[up.peer.name].append(taken)
        session.close()

    async with all_up(names, servers(4), table) as ups:
        await in_turns(ups, table, effort.rounds, measure)
    await direct.close()
    base = statistics.median(direct_times) * 1000
    for name in ups:
        half, most = ([percentile(taken, share) * 1000 for taken in times[name]] for share in (0.5, 0.99))
        table[name] = {
            "CPU s/1000": median(cpu[name]),
            "p50 ms": median(half, 3),
            "p99 ms": median(most, 3),
            "added p50 ms": round(statistics.median(half) - base, 3),
            "calls": sum(map(len, times[name])),
        }
    return table


async def throughput(names: list[str], effort: Effort) -> Table:
    """100 bytes; 1, 8, 32 and 128 callers at once in at most 8 sessions, 4 servers."""
    table: Table = {}
    figures: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    async def measure(width: int, up: Running) -> None:
        for title, value in (await crowd(up, width, effort.seconds)).items():
            figures[f"c={width} {up.peer.name}"][title].append(value)

    async with all_up(names, servers(4), table) as ups:
        for width in (1, 8, 32, 128):
            await in_turns(ups, table, effort.rounds, partial(measure, width))
    for name, row in figures.items():
        table[name] = {title: median(values) for title, values in row.items()}
    return table


async def crowd(up: Running, width: int, seconds: float) -> dict[str, float]:
    """One turn with that many callers."""
    names = [server.name for server in up.peer.servers]
    sessions = [await up.session(names[number % len(names)]) for number in range(min(width, 8))]
    callers = sessions + [await sessions[number % 8].sibling() for number in range(width - len(sessions))]
    taken: list[float] = []

    async def caller(number: int, end: float) -> None:
        tool = up.peer.tool(names[number % 8 % len(names)], "echo")
        while time.perf_counter() < end:
            taken.append(await small_call(callers[number], tool, number))

    async def together(length: float) -> float:
        taken.clear()
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(width):
                tasks.create_task(caller(number, begun + length))
        return time.perf_counter() - begun

    await together(seconds / 4)
    before, busy = up.cpu(), time.process_time()
    length = await together(seconds)
    used, busy = up.cpu() - before, time.process_time() - busy
    for session in callers:
        session.close()
    return {
        "calls/s": len(taken) // length,
        "CPU s/1000": used / len(taken) * 1000,
        "p99 ms": percentile(taken, 0.99) * 1000,
        "client busy": busy / length,
    }


async def lists(names: list[str], effort: Effort) -> Table:
    """tools/list with 50 servers of 40 tools each, taken from a session that has listed before."""
    table: Table = {}
    cpu: defaultdict[str, list[float]] = defaultdict(list)
    times: defaultdict[str, list[float]] = defaultdict(list)
    count: dict[str, int] = {}

    async def measure(up: Running) -> None:
        session = await up.session()
        await session.tools()
        before = up.cpu()
        taken = [await session.tools() for _ in range(LISTS_A_TURN)]
        cpu[up.peer.name].append((up.cpu() - before) / LISTS_A_TURN * 1000)
        times[up.peer.name] += [seconds * 1000 for _, seconds in taken]
        count[up.peer.name] = len(taken[-1][0])
        session.close()

    able = [name for name in names if PEERS[name].aggregates]
    async with all_up(able, servers(50, tools=40), table) as ups:
        await in_turns(ups, table, effort.rounds, measure)
    for name in ups:
        table[name] = {"CPU ms": median(cpu[name], 2), "p50 ms": median(times[name], 1), "tools": count[name]}
    return table
