"""What the pool decides: who may have a lease, when to try again, when to stop. Pure: no clock, no I/O.

Used by ``instances.instance`` and ``instances.pool``, which act on the answers. All values in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from mooring.config.plan import Timeouts, Variant
from mooring.instances.state import Record
from mooring.nouns import InstanceKey

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
STEADY = 60.0
"""So long must an instance have been ready for its crash to count as an accident and not as a habit."""
SLOW_PHASES = frozenset(("pull", "build", "resolve"))
"""Steps of a start with a limit of their own (``timeouts.pull``): they do not use up the start's."""
LEAVING_MARGIN = 10.0
"""Added to twice ``timeouts.close`` (wait after end-of-file, wait after SIGTERM): killing, reaping, removing."""

Entry = Literal["wait", "backing off", "leaving"]


def entry(record: Record, draining: bool, now: float) -> Entry:
    """What happens to one who wants a lease that cannot be had at once:

    1. draining: it takes nobody any more
    2. failed, and the next try is not due: told so at once
    3. else: waits for the start that is under way, or that begins with this wish
    """
    if draining:
        return "leaving"
    if record.state == "backoff" and record.retry_at is not None and record.retry_at > now:
        return "backing off"
    return "wait"


def after_failure(failures: int, ready_for: float | None) -> tuple[int, float]:
    """Failures in a row and the wait until the next start, after a failed start (``ready_for`` None) or a crash. The
    first crash after a steady life costs no wait."""
    if ready_for is not None and ready_for >= STEADY:
        return 0, 0.0
    return failures + 1, min(FIRST_WAIT * 2 ** min(failures, 16), LONGEST_WAIT)


def idle_left(pins: int, idle_for: float, idle_timeout: float) -> float | None:
    """Seconds until an instance is to be stopped as idle (0: now); None while it is used or never idles."""
    if pins or not idle_timeout:
        return None
    return max(0.0, idle_timeout - idle_for)


def pinned(scope: str) -> bool:
    """Whether an instance stays as long as its scope: a client's session (legacy HTTP, or one stdio shim), which ends
    it. What belongs to a key, or to the local user's commands, has no such end and idles as others do."""
    return scope.startswith("s:") and not scope.startswith(("s:key:", "s:local:"))


def unwanted(key: InstanceKey, variants: Mapping[str, Variant]) -> str:
    """Why an instance is not part of the configuration; "" when it is."""
    variant = variants.get(key.variant)
    if variant is None:
        return "it is no longer configured"
    return "its definition changed" if variant.digest != key.digest else variant.unavailable


def phase_limit(phase: str, timeouts: Timeouts, start_left: float) -> float:
    """How long the phase of a start may take."""
    return timeouts.pull if phase in SLOW_PHASES else max(0.0, start_left)


def leaving_limit(timeouts: Timeouts) -> float:
    """How long an instance may take to end."""
    return 2 * timeouts.close + LEAVING_MARGIN


def next_try(wait: float) -> str:
    """The wait in words."""
    return f"next try in {math.ceil(wait)} s" if wait > 0 else "the next call tries again"
