"""Limits on memory and processes by a control group of our own: version 1 or 2, and only where this user may make one.

Used by ``launch.sandbox`` around the life of one process, which enters by writing to the files that ``limited`` gives;
all its descendants are in then, before the server's first instruction.

Source: cgroups(7), cgroup-v1/memory.txt and cgroup-v2.txt of the kernel.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

import msgspec

ROOT = "/sys/fs/cgroup"
OURS = "mooring-"
"""What the names of our groups begin with; the pid of the daemon follows."""
UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Limits(msgspec.Struct, frozen=True):
    """``memory``: such as "512m", swap included; "" for none. ``pids``: processes and threads; 0 for none."""

    memory: str = ""
    pids: int = 0


def size(text: str) -> int:
    """Bytes of "512m" and the like."""
    unit = text[-1].lower()
    return int(text[:-1]) * UNITS[unit] if unit in UNITS else int(text)


@contextmanager
def limited(limits: Limits, root: str = ROOT) -> Generator[tuple[str, ...]]:
    """Files; whoever writes "0" to each of them is under ``limits``. Leaving the block removes the groups, which are
    empty then. Raises OSError, with the file, where this user may not limit."""
    made: list[str] = []
    name = f"{OURS}{os.getpid()}-{os.urandom(4).hex()}"
    try:
        for parent, writes in _plan(limits, root):
            _sweep(parent)
            group = os.path.join(parent, name)
            os.mkdir(group)
            made.append(group)
            for file, value, needed in writes:
                _write(os.path.join(group, file), value, needed)
        yield tuple(os.path.join(group, "cgroup.procs") for group in made)
    finally:
        for group in made:
            with suppress(OSError):  # something could not be killed: the next sweep finds it
                os.rmdir(group)


def _plan(limits: Limits, root: str) -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    """Parent folders of the groups, and what to write there: file, value, whether it is needed."""
    if os.path.exists(os.path.join(root, "cgroup.controllers")):
        writes: list[tuple[str, str, bool]] = []
        if limits.memory:
            writes += [("memory.max", str(size(limits.memory)), True), ("memory.swap.max", "0", False)]
        if limits.pids:
            writes.append(("pids.max", str(limits.pids), True))
        yield root, writes
        return
    if limits.memory:
        value = str(size(limits.memory))
        files = [("memory.limit_in_bytes", value, True), ("memory.memsw.limit_in_bytes", value, False)]
        yield os.path.join(root, "memory"), files
    if limits.pids:
        yield os.path.join(root, "pids"), [("pids.max", str(limits.pids), True)]


def _write(path: str, value: str, needed: bool) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY)  # never created: a missing file is a missing controller
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        if needed:
            raise OSError(error.errno, error.strerror, path) from None


def _sweep(parent: str) -> None:
    """Remove what daemons left behind that are gone."""
    for name in os.listdir(parent):
        pid = name.removeprefix(OURS).partition("-")[0]
        if name.startswith(OURS) and pid.isdigit() and not _lives(int(pid)):
            with suppress(OSError):
                os.rmdir(os.path.join(parent, name))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
