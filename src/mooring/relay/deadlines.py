"""Time limits of requests under way, all on one timer.

Nearly every request is answered long before its limit. A timer of the event loop for each of them would cost more than
all else that Mooring keeps of a request; an entry here costs a twentieth of it. Made by ``relay.forward``, used by
``relay.exchange``.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Limited(Protocol):
    """What has a limit."""

    def expire(self) -> None:
        """The limit has come. Called by the event loop, once for each limit that was set."""
        ...


class Deadlines:
    """The limits, in loop time. The timer is armed for the earliest one that was set; when it fires for one that is
    gone, it is armed anew for those that are left."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._limits: dict[Limited, float] = {}
        self._armed = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    def set(self, limited: Limited, when: float) -> None:
        """``limited`` expires at ``when``, instead of any earlier word."""
        self._limits[limited] = when
        if when < self._armed:
            self._arm(when)

    def drop(self, limited: Limited) -> None:
        """It has no limit any more."""
        self._limits.pop(limited, None)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        self._timer = self._loop.call_at(when, self._fired)

    def _fired(self) -> None:
        self._timer, self._armed = None, float("inf")
        now = self.now()
        for limited in [limited for limited, when in self._limits.items() if when <= now]:
            del self._limits[limited]
            limited.expire()
        if self._limits:
            self._arm(min(self._limits.values()))
