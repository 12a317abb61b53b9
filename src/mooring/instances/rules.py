"""What the pool decides: who may have a lease, when to try again, when to stop. Pure: no clock, no I/O.

Used by ``instances.instance`` and ``instances.pool``, which act on the answers. All values in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from mooring.config.plan import Mount, Variant
from mooring.config.plan_servers import Functions, Remote, Timeouts
from mooring.instances.state import Record
from mooring.nouns import InstanceKey

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
STEADY = 60.0
"""So long must an instance have been ready for its crash to count as an accident and not as a habit."""
OWN_LIMITS = {"look-up": "look_up", "pull": "pull", "build": "pull", "resolve": "pull"}
"""Steps of a start with a limit of their own, which do not use up the start's: phase to member of ``Timeouts``."""
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


def after_failure(failures: int, ready_for: float | None, blamed: bool = True) -> tuple[int, float]:
    """Failures in a row and the wait until the next start, after a failed start (``ready_for`` None) or a crash. The
    first crash after a steady life costs no wait; nor does an end that the server is not to ``blame`` for."""
    if not blamed:
        return failures, 0.0
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
    return scope.startswith("s:") and not scope.startswith(("s:key:", "s:bare:", "s:local:"))


def unwanted(key: InstanceKey, variants: Mapping[str, Variant]) -> str:
    """Why an instance is not part of the configuration; "" when it is."""
    variant = variants.get(key.variant)
    if variant is None:
        return "it is no longer configured"
    return "its definition changed" if variant.digest != key.digest else variant.unavailable


def deserted(key: InstanceKey, mounts: Iterable[Mount]) -> str:
    """Why nobody can want an instance any more though its variant is configured; "" when somebody can. ``mounts``:
    those of its variant. One that is not mounted is on trial, and a session ends what it has itself."""
    if key.scope.startswith("w:"):
        there = any(mount.sharing == "workspace" and key.scope == f"w:{mount.workspace}" for mount in mounts)
        return "" if there else "its workspace does not have it any more"
    sharing = {mount.sharing for mount in mounts}
    return "nobody shares it any more" if not key.scope and sharing and "shared" not in sharing else ""


def own_limit(phase: str, timeouts: Timeouts) -> float | None:
    """The limit that a phase of a start has to itself; None when it is under the start's."""
    name = OWN_LIMITS.get(phase)
    return None if name is None else float(getattr(timeouts, name))


def limit_name(phase: str) -> str:
    """The setting that limits a phase of a start."""
    return f"timeouts.{OWN_LIMITS.get(phase, 'start')}"


def counted(variant: Variant) -> bool:
    """Whether its instances take one of the places that ``max_instances`` limits: what is not started here costs
    nothing."""
    return not isinstance(variant.launch, Remote | Functions)


def spares(variant: Variant) -> int:
    """How many are to be started in advance. What is filled with the session's id is nobody else's."""
    if variant.unavailable or not counted(variant) or b"{session}" in msgspec.json.encode(variant.launch):
        return 0
    return variant.spare


def spare_limit(timeouts: Timeouts) -> float:
    """How long the start of a spare may take, all steps together."""
    return timeouts.look_up + timeouts.pull + timeouts.start


def may_give_way(variant: Variant, scope: str, pins: int) -> bool:
    """Whether an instance may be stopped to make room: nobody uses it, and nothing says that it must stay."""
    return not pins and bool(variant.idle_timeout) and not pinned(scope)


def leaving_limit(timeouts: Timeouts) -> float:
    """How long an instance may take to end."""
    return 2 * timeouts.close + LEAVING_MARGIN


def next_try(wait: float) -> str:
    """The wait in words."""
    return f"next try in {math.ceil(wait)} s" if wait > 0 else "the next call tries again"
