"""``python -m benchmarks``: runs suites, prints a markdown report, and writes it with the figures as JSON.

``python -m benchmarks guard`` is the short comparison of ``tests/test_performance_guard.py``. Exit code 1: the guard's
limit was passed, a peer could not be measured, or the run is invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import costs, engines, guard, report, resources
from benchmarks.peers import PEERS, Mooring
from benchmarks.turns import Effort

SUITES = {
    suite.__name__: suite
    for suite in (
        costs.calls,
        costs.modern,
        costs.large,
        costs.throughput,
        costs.lists,
        resources.memory,
        resources.start,
        resources.cold,
        engines.container_start,
        engines.container_end,
    )
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Mooring against other gateways.")
    main.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}, or guard alone; default: all")
    main.add_argument("--peers", default=",".join(PEERS), help="comma separated; default: %(default)s")
    main.add_argument("--rounds", type=int, default=5, help="every peer's turns in a suite; default: %(default)s")
    main.add_argument("--seconds", type=float, default=1.0, help="length of a turn; default: %(default)s")
    main.add_argument("--calls", type=int, default=300, help="most sequential calls in a turn; default: %(default)s")
    main.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    return main


def check_guard(product: str) -> int:
    """Print the ratio; the exit code."""
    found = uvloop.run(guard.ratio(product))
    print(f"{product} uses {found:.2f} times the CPU of raw-relay for a call; the limit is {guard.LIMIT}.")
    return int(found > guard.LIMIT)


async def measure(names: list[str], peers: list[str], effort: Effort) -> dict[str, Any]:
    """Run the suites one after the other."""
    suites: dict[str, Any] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        suites[name] = await SUITES[name](peers, effort)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "environment": {
            "Python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "rounds": effort.rounds,
        },
        "mooring": Mooring.on if Mooring.name in peers else "",
        "about": {name: SUITES[name].__doc__ for name in names},
        "invalid": report.invalid(suites),
        "suites": suites,
    }


def main() -> int:
    """Run what was asked for; the exit code."""
    arguments = parser().parse_args()
    peers = arguments.peers.split(",")
    if arguments.suites == ["guard"]:
        return check_guard(peers[0] if len(peers) == 1 else "mooring")
    names = arguments.suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES] + [peer for peer in peers if peer not in PEERS]:
        print(f"Unknown: {', '.join(unknown)}. Suites: {', '.join(SUITES)}; peers: {', '.join(PEERS)}", file=sys.stderr)
        return 2
    effort = Effort(arguments.rounds, arguments.seconds, arguments.calls)
    run = {"command": " ".join(["python -m benchmarks", *sys.argv[1:]]), **uvloop.run(measure(names, peers, effort))}
    text = report.markdown(run)
    print(text)
    if arguments.out:
        arguments.out.with_suffix(".json").write_text(json.dumps(run, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(text)
    failed = any("failed" in row for rows in run["suites"].values() for row in rows.values())
    return int(failed or bool(run["invalid"]))


if __name__ == "__main__":
    sys.exit(main())
