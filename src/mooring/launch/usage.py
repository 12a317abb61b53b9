"""What running servers use: memory and processes, with all their descendants. Looked up only when somebody asks.

Called by ``serve.verbs`` for ``mooring ps``. Reads ``/proc``, or runs ``ps`` where there is none; remembers nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterable

import msgspec

from mooring.launch.family import MARKS, RLIMIT_LOCKS, descendants, members, process_table


class Usage(msgspec.Struct, frozen=True):
    """``memory``: resident bytes, pages that processes share counted for each of them; ``processes``: how many."""

    memory: int
    processes: int


def usage(leaders: Iterable[int]) -> dict[int, Usage]:
    """What the servers with these process ids use now; those that have ended are left out. Takes a millisecond or
    two for hundreds of processes, so that no thread is worth its memory."""
    families = _families(leaders)
    resident = _resident({pid for family in families.values() for pid in family})
    found = {leader: [resident[pid] for pid in family if resident.get(pid)] for leader, family in families.items()}
    return {leader: Usage(sum(sizes), len(sizes)) for leader, sizes in found.items() if sizes}


def _families(leaders: Iterable[int]) -> dict[int, list[int]]:
    """Each server's processes: those with its mark, wherever they went; without marks those below it."""
    marks = {leader: _mark(leader) for leader in leaders}
    marked = members({mark: leader for leader, mark in marks.items() if mark is not None})
    table = process_table() if None in marks.values() else {}
    return {
        leader: marked[mark] if mark is not None else [leader, *descendants(leader, table)]
        for leader, mark in marks.items()
    }


def _mark(pid: int) -> int | None:
    """What the keeper put on it; None when it has none."""
    if not MARKS or sys.platform != "linux":
        return None
    try:
        mark, _ = resource.prlimit(pid, RLIMIT_LOCKS)
    except OSError:
        return None
    return None if mark == resource.RLIM_INFINITY else mark


def _resident(pids: Iterable[int]) -> dict[int, int]:
    """Bytes of memory; 0 for a zombie, nothing for what is gone."""
    if sys.platform != "linux":
        listed = subprocess.run(["/bin/ps", "-axo", "pid=,rss="], capture_output=True, check=False).stdout
        sizes = {int(pid): int(size) * 1024 for pid, size in map(bytes.split, listed.splitlines())}
        return {pid: sizes[pid] for pid in pids if pid in sizes}
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[int, int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
                found[pid] = int(file.read(256).split()[1]) * page
        except OSError:
            continue
    return found
