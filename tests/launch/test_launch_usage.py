"""What servers use: an outside look at real processes agrees."""

from __future__ import annotations

import shutil
import sys
import time

import psutil
import pytest

from mooring.launch import usage as module
from mooring.launch.usage import usage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

SLEEP = shutil.which("sleep") or "/bin/sleep"
FAMILY = """
import os, time
block = b"x" * 30_000_000
if os.fork() == 0:
    time.sleep(1000)
if os.fork() == 0:
    os._exit(0)  # stays a zombie
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        more = b"y" * 20_000_000
        print(os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
os.waitpid(middle, 0)
time.sleep(1000)
"""
"""A leader with a child, a zombie, and a grandchild that left the group, the session and the tree."""


async def test_memory_and_processes_of_a_server_include_all_it_started(bench) -> None:
    """R41: strays too, zombies not; others' not."""
    kept = await bench.spawn(*bench.python(FAMILY))
    other = await bench.spawn(SLEEP, "1000")
    stray = int(await bench.line(kept.stdout_fd))
    leader = psutil.Process(kept.pid)
    alive = [leader, *(child for child in leader.children() if child.status() != psutil.STATUS_ZOMBIE)]
    resident = sum(process.memory_info().rss for process in (*alive, psutil.Process(stray)))
    used = usage([kept.pid, other.pid])
    assert used[kept.pid].processes == 3
    assert abs(used[kept.pid].memory - resident) < 0.1 * resident
    assert used[kept.pid].memory > 80_000_000
    assert (used[other.pid].processes, used[other.pid].memory < 30_000_000) == (1, True)


async def test_what_has_no_mark_is_found_by_the_tree(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """R41: as on macOS."""
    monkeypatch.setattr(module, "MARKS", False)
    kept = await bench.spawn("/bin/sh", "-c", "sleep 1000 & echo there; wait")
    assert await bench.line(kept.stdout_fd) == "there"
    assert usage([kept.pid])[kept.pid].processes == 2


async def test_what_has_ended_is_left_out(bench) -> None:
    kept = await bench.spawn("/bin/true")
    await kept.exited
    await bench.gone(kept.pid)
    assert usage([kept.pid]) == {}
    assert usage([]) == {}


async def test_a_look_at_many_is_cheap(bench) -> None:
    """It runs on the event loop."""
    pids = [(await bench.spawn(SLEEP, "1000")).pid for _ in range(30)]
    times = []
    for _ in range(5):
        began = time.process_time()
        assert len(usage(pids)) == 30
        times.append(time.process_time() - began)
    assert min(times) < 0.1
