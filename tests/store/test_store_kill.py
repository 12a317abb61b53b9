"""``kill -9`` of a writing process loses nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

from mooring.store.sqlite import SqliteStore

WRITER = """
import asyncio, os, sys
from mooring.store.sqlite import SqliteStore

async def write(store, lane):
    number = 0
    while True:
        name = f"{sys.argv[2]}-{lane}-{number}"
        await store.run("put_era", variant=name, digest="d", era="legacy", version="v", seen_at=1.0)
        os.write(1, f"{name}\\n".encode())
        number += 1

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        await asyncio.gather(*(write(store, lane) for lane in range(4)))

asyncio.run(main())
"""
ROUNDS = 8


async def test_kill_9_of_a_writer_loses_no_acknowledged_row(tmp_path: Path) -> None:
    file = tmp_path / "mooring.db"
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        acknowledged += await killed_writer(file, number, after=1 + 7 * number)
        async with SqliteStore(file) as store:
            wanted = json.dumps([[name, "d"] for name in acknowledged])
            assert {row[0] for row in store.rows("eras", wanted=wanted)} == set(acknowledged)
    assert len(acknowledged) >= ROUNDS
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def killed_writer(file: Path, number: int, after: int) -> list[str]:
    """Let a process write until it has acknowledged ``after`` rows, kill it, and answer all that it acknowledged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(file), str(number), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        lines = [await process.stdout.readline() for _ in range(after)]
        process.kill()
        lines += (await process.stdout.read()).splitlines()
        await process.wait()
    return [line.decode().strip() for line in lines]
