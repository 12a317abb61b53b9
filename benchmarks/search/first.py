"""``python -m benchmarks.search.first FILE QUERY``: what the first query of a process takes.

FILE is a store. Prints milliseconds, and those of processor time, as a JSON array. ``benchmarks.search`` starts it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from mooring.catalog.search import Question
from mooring.catalog.shelf import Shelf
from mooring.store.sqlite import SqliteStore


async def asked(shelf: Shelf, text: str) -> tuple[float, float]:
    """Milliseconds, and of processor time, for one query."""
    began, began_cpu = time.perf_counter(), time.process_time()
    await shelf.find(Question(query=text), ["all"])
    return 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - began_cpu)


async def _first(file: Path, text: str) -> tuple[float, float]:
    async with SqliteStore(file) as store:
        return await asked(Shelf(store), text)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_first(Path(sys.argv[1]), sys.argv[2]))))
