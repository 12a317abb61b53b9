"""The states of an instance and the legal moves between them. Pure: the time is handed in.

    stopped -> starting -> ready -> stopping -> stopped
    starting | ready -> backoff -> starting
    starting | backoff -> stopping

Used by ``instances.instance`` only. Draining is no state: it is ``ready`` that takes no new lease.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.nouns import State

MOVES: dict[State, tuple[State, ...]] = {
    "stopped": ("starting",),
    "starting": ("ready", "backoff", "stopping"),
    "ready": ("stopping", "backoff"),
    "stopping": ("stopped",),
    "backoff": ("starting", "stopping"),
}


class IllegalMove(RuntimeError):
    """A bug in the pool: this state does not follow that one."""


class Record(msgspec.Struct, frozen=True):
    """What is known about an instance. Times are seconds of the pool's monotonic clock."""

    state: State = "stopped"
    since: float = 0.0
    """When the state was entered."""
    reason: str = ""
    """Why it is in this state."""
    phase: str = ""
    """The step that failed last: a phase of the start, or "call"."""
    cause: str = ""
    """The kind of the last failure: ``MooringError.kind``."""
    exit_code: int | None = None
    """Of the last life that ended by itself; negative: the signal."""
    stderr: str = ""
    """The last lines of that life."""
    failures: int = 0
    """Failed starts and crashes in a row."""
    restarts: int = 0
    """Starts that followed a failure, over all lives."""
    retry_at: float | None = None
    """In ``backoff``: when the next start is allowed."""
    last_error: str = ""
    """The last failure; stays after a good start."""


def move(record: Record, state: State, now: float, reason: str = "", **changes: Any) -> Record:
    """The record after a legal move. ``changes``: other members to set. Raises IllegalMove."""
    if state not in MOVES[record.state]:
        raise IllegalMove(f"an instance cannot go from {record.state} to {state}")
    if record.state == "backoff" and state == "starting":
        changes["restarts"] = record.restarts + 1
    if state == "backoff":
        changes["last_error"] = reason
    else:
        changes["retry_at"] = None
    return msgspec.structs.replace(record, state=state, since=now, reason=reason, **changes)
