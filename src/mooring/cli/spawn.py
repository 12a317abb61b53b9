"""Start a daemon in the background: ``mooring up`` in a session of its own, with its output in a log file.

Used by verbs that need a daemon and find none. It does not wait for the daemon to answer, and never ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mooring.config.home import Home

_TAIL = 4096


class Daemon:
    """A daemon that was started here and outlives us."""

    def __init__(self) -> None:
        home = Home.locate()
        home.prepare()
        self._log = Path(home.state, "daemon.log")
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._start = os.fstat(descriptor).st_size
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mooring", "up"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def ended(self) -> bool:
        """Whether it has given up; another daemon may then be the one that runs."""
        return self._process.poll() is not None

    def complaint(self) -> str:
        """Why it does not answer, for people: its exit code if it ended, and its last words."""
        code = self._process.poll()
        what = "did not answer in time" if code is None else f"ended with exit code {code}"
        with self._log.open("rb") as log:
            log.seek(max(self._start, self._log.stat().st_size - _TAIL))
            words = log.read().decode(errors="replace").strip()
        return f"The Mooring daemon was started and {what} (log: {self._log})." + (f"\n{words}" if words else "")
