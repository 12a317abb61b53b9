"""The short comparison that the test suite runs: Mooring against the reference relay, CPU for each call.

Needs no quiet machine: both are up at once and take short turns, and only their ratio counts.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

from benchmarks.peers import Running, servers
from benchmarks.turns import Effort, Table, all_up, call_for, in_turns, small_call

LIMIT = 5.0
"""Mooring may use this many times the reference's CPU for a call."""
EFFORT = Effort(rounds=9, seconds=2.0, calls=250)


async def ratio(product: str) -> float:
    """How many times the reference's CPU the product uses for one call; the median of the rounds' ratios."""
    table: Table = {}
    used: defaultdict[str, list[float]] = defaultdict(list)

    async def measure(up: Running) -> None:
        session = await up.session()
        tool = up.peer.tool("s00", "echo")
        await call_for(session, small_call, tool, EFFORT, share=0.1)
        before = up.cpu()
        done = await call_for(session, small_call, tool, EFFORT)
        used[up.peer.name].append((up.cpu() - before) / len(done))
        session.close()

    async with all_up(["raw-relay", product], servers(2), table) as ups:
        await in_turns(ups, table, EFFORT.rounds, measure)
    if table:
        raise RuntimeError("; ".join(f"{name}: {row['failed']}" for name, row in table.items()))
    return statistics.median(mine / raw for mine, raw in zip(used[product], used["raw-relay"], strict=True))
