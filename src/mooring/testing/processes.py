"""An outside look at processes, through /proc: who descends from whom, who is alive, who leaks descriptors. Linux."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    return state(pid) not in ("", "Z")


def state(pid: int) -> str:
    """Its state letter, "" when there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int:
    """The pid of its parent, 0 when there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def descendants(pid: int) -> set[int]:
    """Every process below ``pid``, zombies included."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    wave = {pid}
    while wave:
        wave = {child for child, parent in parents.items() if parent in wave} - found
        found |= wave
    return found


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
