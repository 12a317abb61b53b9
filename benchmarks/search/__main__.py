"""``python -m benchmarks.search``: recall at 1 and at 5 of each third, and latency over 20,000 entries.

``--docker PATH`` (a checkout of https://github.com/docker/mcp-registry) adds held-out queries; ``--misses`` shows what
was not found; ``--out NAME`` writes NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.search import corpus
from benchmarks.search.first import asked
from benchmarks.search.queries import THIRDS, Query, labelled, of_docker, without_tools
from mooring.catalog.entry import Entry
from mooring.catalog.search import Question
from mooring.catalog.shelf import Shelf
from mooring.store.sqlite import MEMORY, SqliteStore

MANY = 20_000
FIRST = {"name": "sqlite", "misspelt": "postgress databse"}
"""What a process is asked first."""


async def recall(entries: list[Entry], queries: Iterable[Query], misses: bool) -> dict[str, dict[str, float]]:
    """Third to how many queries there are, and the share answered by the first and by one of the first five. By answer:
    each entry that is to be found counts once, however many queries ask for it."""
    ranks: dict[str, list[int]] = {third: [] for third in THIRDS}
    of_answer: dict[str, dict[frozenset[str], list[int]]] = {third: {} for third in THIRDS}
    async with SqliteStore(MEMORY) as store:
        shelf = Shelf(store)
        await shelf.put("all", entries, 1, time.time())
        for query in queries:
            found = [kept.entry.id for kept in await shelf.find(Question(query=query.text, limit=10), ["all"])]
            rank = next((number for number, id in enumerate(found) if id in query.want), 10)
            ranks[query.third].append(rank)
            of_answer[query.third].setdefault(query.want, []).append(rank)
            if misses and rank > 0:
                print(f"{query.third}\t{rank}\t{query.text}\t{', '.join(sorted(query.want))}\t{', '.join(found[:5])}")
    return {
        third: {
            "queries": len(found),
            "recall@1": round(sum(rank < 1 for rank in found) / len(found), 3),
            "recall@5": round(sum(rank < 5 for rank in found) / len(found), 3),
            "answers": len(of_answer[third]),
            "recall@5 by answer": round(statistics.mean(map(_five, of_answer[third].values())), 3),
        }
        for third, found in ranks.items()
        if found
    }


def _five(ranks: list[int]) -> float:
    return sum(rank < 5 for rank in ranks) / len(ranks)


async def speed(queries: list[Query]) -> dict[str, float]:
    """Milliseconds for a query (the best of three) over many entries in a file, and for what comes before it."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "catalog.db"
        imported = await _imported(file)
        gc.collect()  # of the entries; a daemon that is asked does not hold them
        first = {kind: _best_process(file, text) for kind, text in FIRST.items()}
        async with SqliteStore(file) as store:
            shelf = Shelf(store)
            took = [await _best(shelf, query.text) for query in queries]
            changed = await _after_a_change(shelf)
    wall, cpu = (sorted(times) for times in zip(*took, strict=True))
    return {
        "entries": MANY,
        "import s": round(imported, 2),
        **{f"first {kind} ms": round(times[0], 1) for kind, times in first.items()},
        **{f"first {kind} CPU ms": round(times[1], 1) for kind, times in first.items()},
        "misspelt after a change CPU ms": round(changed, 1),
        "median ms": round(statistics.median(wall), 2),
        "p95 ms": round(wall[int(len(wall) * 0.95)], 2),
        "slowest ms": round(wall[-1], 2),
        "median CPU ms": round(statistics.median(cpu), 2),
        "p95 CPU ms": round(cpu[int(len(cpu) * 0.95)], 2),
        "slowest CPU ms": round(cpu[-1], 2),
        "load": round(os.getloadavg()[0], 1),
    }


def _best_process(file: Path, text: str) -> tuple[float, float]:
    """Milliseconds, and of processor time, for the first query of a process, the best of three; with what it imports,
    the store being open."""
    command = [sys.executable, "-m", "benchmarks.search.first", str(file), text]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(3)]
    return min(wall for wall, _ in runs), min(cpu for _, cpu in runs)


async def _imported(file: Path) -> float:
    """Seconds to write many entries."""
    entries = [*corpus.starter(), *corpus.invented(MANY - len(corpus.starter()))]
    async with SqliteStore(file) as store:
        began = time.perf_counter()
        await Shelf(store).put("all", entries, 1, time.time())
        return time.perf_counter() - began


async def _best(shelf: Shelf, text: str) -> tuple[float, float]:
    """Milliseconds for a query, and of processor time, each the best of three: what else this machine does is not of
    interest. The second is what the first would be on a machine that does nothing else."""
    runs = [await asked(shelf, text) for _ in range(3)]
    return min(wall for wall, _ in runs), min(cpu for _, cpu in runs)


async def _after_a_change(shelf: Shelf) -> float:
    """Milliseconds of processor time for the first query after the catalog changed, the best of three."""
    times: list[float] = []
    for _ in range(3):
        await shelf.gone("all", ["none"], time.time())
        times.append((await asked(shelf, FIRST["misspelt"]))[1])
    return min(times)


async def measure(docker: Path | None, misses: bool) -> dict[str, Any]:
    """All figures."""
    queries = labelled()
    figures: dict[str, Any] = {"starter list": await recall(corpus.starter(), queries, misses)}
    if docker:
        entries = corpus.docker(docker)
        figures["Docker's catalog, tools held out"] = await recall(without_tools(entries), of_docker(entries), misses)
    figures["latency"] = await speed(queries)
    return figures


def markdown(figures: dict[str, Any]) -> str:
    """The figures as a page."""
    lines = ["# Search of the catalog", "", f"`{' '.join(['python -m benchmarks.search', *_shown_arguments()])}`", ""]
    lines.append(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}. `benchmarks/search/queries.py` says where the queries come from."
    )
    lines += ["", "| entries | third | queries | recall@1 | recall@5 | answers | recall@5 by answer |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, thirds in figures.items():
        if name != "latency":
            lines += (
                f"| {name} | {third} | {found['queries']} | {found['recall@1']:.3f} | {found['recall@5']:.3f} "
                f"| {found['answers']} | {found['recall@5 by answer']:.3f} |"
                for third, found in thirds.items()
            )
    latency = figures["latency"]
    lines += [
        "",
        "Latency over invented entries, each query the best of three; each first one has a process of its own:",
    ]
    lines += ["", "| " + " | ".join(latency) + " |", "|" + "---|" * len(latency)]
    lines.append("| " + " | ".join(f"{value:,}" for value in latency.values()) + " |")
    return "\n".join(lines) + "\n"


def _shown_arguments() -> list[str]:
    """The arguments without the reader's own paths."""
    return ["--docker CHECKOUT"] if "--docker" in sys.argv else []


def main() -> int:
    """Measure, print, write; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search", description="Measure the search of the catalog."
    )
    parser.add_argument("--docker", type=Path, help="a checkout of Docker's catalog")
    parser.add_argument("--misses", action="store_true", help="show what was not found first")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.docker, arguments.misses))
    print(markdown(figures))
    if arguments.out:
        arguments.out.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(markdown(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
