"""A peer's processes: how they are started and ended, their CPU time and memory out of ``/proc`` (Linux only).

Used by the peers. The servers behind a gateway are never counted: they are told by the script they run. Work done in
children that have ended by the time of a reading is not seen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

BACKEND = str(Path(__file__).parent / "backends" / "echo.py")


def is_backend(process: psutil.Process) -> bool:
    """True for a Python that runs the echo server; a launcher that only mentions it has it further back."""
    return BACKEND in process.cmdline()[:4]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, from its CPU clock (``clock_getcpuclockid(3)``), in nanoseconds."""
    return time.clock_gettime(~pid << 3 | 2)


def memory_mb(pid: int) -> tuple[float, float]:
    """RSS and PSS in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sizes["Rss"], sizes["Pss"]


class Group:
    """One running program and its descendants; leaving the block ends them all."""

    def __init__(self, argv: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._argv, self._folder, self._environment = argv, folder, environment

    def __enter__(self) -> Group:
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                self._argv,
                env={**os.environ, **self._environment},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        tree = self._tree()
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for process in tree:
            if process.is_running() and process.pid != self._child.pid:
                process.kill()

    def stop(self, limit: float) -> float:
        """Ask it to end and wait for that; the seconds it took."""
        begun = time.perf_counter()
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(limit)
        return time.perf_counter() - begun

    def ended(self) -> str:
        """The last words of the program when it is gone; empty while it runs."""
        if self._child.poll() is None:
            return ""
        return f"exit code {self._child.returncode}: {(self._folder / 'log').read_text()[-800:]}"

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._child.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _own(self) -> Iterator[int]:
        """The processes of the gateway itself."""
        return (process.pid for process in self._tree() if not is_backend(process))

    def cpu(self) -> float:
        """CPU seconds the gateway has used so far."""
        return sum(map(cpu_seconds, self._own()))

    def memory(self) -> tuple[float, float]:
        """RSS and PSS of the gateway, MiB."""
        sizes = [memory_mb(pid) for pid in self._own()]
        return sum(rss for rss, _ in sizes), sum(pss for _, pss in sizes)

    def backends(self) -> int:
        """How many servers run behind it."""
        return sum(is_backend(process) for process in self._tree())
