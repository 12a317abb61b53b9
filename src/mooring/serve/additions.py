"""What is offered besides the configuration: functions of the library, the registry, and mounts added at run time.

Owned by ``serve.app``, which lays it over every plan; ``serve.registry`` changes the mounts. Mounts are written to the
store first, then to memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Launch
from mooring.observe.events import Event, Events
from mooring.serve.functions import FunctionServer, with_functions
from mooring.serve.mounts import Made, Record, made, with_mounts, with_registry
from mooring.serve.reload import READ_LIMIT, Fingerprints
from mooring.store.base import Store


class Additions:
    """``registry``: whether workspaces may offer it at all."""

    def __init__(
        self,
        store: Store,
        events: Events,
        secrets: Fingerprints,
        unsupported: Callable[[Launch], str],
        registry: bool,
    ) -> None:
        self.functions: dict[str, FunctionServer] = {}
        """Function servers of the library by name."""
        self.trials: list[Variant] = []
        """What is started before it is mounted; the same twice where two workspaces add it."""
        self._store = store
        self._events = events
        self._secrets = secrets
        self._unsupported = unsupported
        self._registry = registry
        self._mounts: dict[tuple[str, str], Made] = {}

    def load(self) -> None:
        """Read the mounts back; blocks, for boot only. What another Mooring wrote and this one cannot read is left
        alone."""
        for (text,) in self._store.rows("mounts"):
            try:
                record = msgspec.json.decode(text, type=Record)
            except msgspec.MsgspecError:
                continue
            self._mounts[record.workspace, record.entry_id] = (record, self.variant(record))

    def variant(self, record: Record) -> Variant:
        """What a record runs as now; may block."""
        return made(record, self._secrets.fingerprint, self._unsupported)

    async def renew(self) -> None:
        """Secrets may have changed. Those that cannot be had in time are taken for unchanged."""
        from mooring.launch.aside import aside  # a boot does without

        before, made = dict(self._mounts), dict[tuple[str, str], Variant]()
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_LIMIT):
                made = await aside(lambda: {place: self.variant(record) for place, (record, _) in before.items()})
        for place, variant in made.items():
            if self._mounts.get(place) is before[place]:  # else it went or changed meanwhile
                self._mounts[place] = (before[place][0], variant)

    def over(self, plan: Plan) -> Plan:
        """``plan`` and all of this."""
        plan = with_functions(plan, self.functions)
        if self._registry:
            plan = with_registry(plan)
        return with_mounts(plan, self._mounts.values(), self.trials)

    def records(self, workspace: str | None = None) -> list[Record]:
        """The mounts of a workspace, or all, in the order in which they were added."""
        return [record for record, _ in self._mounts.values() if workspace in (None, record.workspace)]

    def get(self, workspace: str, entry_id: str) -> Record | None:
        """The mount of an entry."""
        found = self._mounts.get((workspace, entry_id))
        return found[0] if found else None

    async def put(self, record: Record, variant: Variant) -> None:
        """Keep a mount. Raises StoreError."""

        def known() -> None:
            self._mounts[record.workspace, record.entry_id] = (record, variant)

        await self._store.run(
            "put_mount",
            known,
            workspace=record.workspace,
            entry=record.entry_id,
            record=msgspec.json.encode(record).decode(),
            mounted_at=record.mounted_at,
        )
        self._tell("mount.added", record)

    async def drop(self, record: Record) -> None:
        """Forget a mount. Raises StoreError."""
        place = (record.workspace, record.entry_id)
        await self._store.run("drop_mount", lambda: _forget(self._mounts, place), workspace=place[0], entry=place[1])
        self._tell("mount.removed", record)

    def _tell(self, name: str, record: Record) -> None:
        data = {"entry": record.entry_id, "prefix": record.prefix, "approval": record.approval}
        self._events.emit(Event(name, time.time(), record.workspace, record.server, record.variant, data=data))


def _forget(mounts: dict[tuple[str, str], Made], place: tuple[str, str]) -> None:
    mounts.pop(place, None)
