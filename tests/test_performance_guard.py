"""The product stays within reach of the reference relay; see ``benchmarks/guard.py`` and ``docs/performance.md``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clocks of other processes, which only Linux has")
def test_a_call_costs_at_most_five_times_the_cpu_of_the_reference_relay() -> None:
    """Both are up at once and take short turns, so that the ratio holds on a busy machine too. What else runs can only
    add to it: the best of three."""
    command = [sys.executable, "-m", "benchmarks", "guard"]
    for _ in range(3):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode == 0:
            return
    assert done.returncode == 0, done.stdout + done.stderr
