"""Which calls are slow: looked for now and then, by either half of the HTTP front.

A call that is running at two looks becomes a stream: its client, and whatever passes its bytes on, hears something
every few seconds then instead of giving up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mooring.wire.http_session import Sessions

SLOW = 5.0
"""Seconds between two looks."""


class Watch:
    """One for some sessions. ``also`` is called at each look with the loop's time."""

    def __init__(self, sessions: Sessions, also: Callable[[float], None] = lambda _: None) -> None:
        self._sessions = sessions
        self._also = also
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on, as long as there are sessions."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SLOW, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        for call in self._sessions.running():
            call.look()
        self._also(asyncio.get_running_loop().time())
        if len(self._sessions):
            self.begin()
