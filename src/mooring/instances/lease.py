"""The right to use an instance. Handed out by ``instances.instance``, held by the relay."""

from __future__ import annotations

from collections.abc import Callable

from mooring.nouns import InstanceKey
from mooring.wire.connection import Connection


class Lease:
    """Counted; while it is held its instance does not idle. ``key``: the instance it is for."""

    __slots__ = ("_released", "connection", "key")

    def __init__(self, key: InstanceKey, connection: Connection, released: Callable[[Connection], None]) -> None:
        self.key = key
        self.connection = connection
        self._released: Callable[[Connection], None] | None = released

    def release(self) -> None:
        """Give it back; any further time does nothing."""
        released, self._released = self._released, None
        if released is not None:
            released(self.connection)
