"""The plan of the last run, from which the next boot starts when nothing that it was made of has changed.

Reading and resolving the configuration takes a tenth of a boot. A plan that depends on secrets is never kept: their
values may have changed. Used by ``serve.app``; never decides whether a configuration is valid, since only what was
resolved is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from mooring import __version__
from mooring.config.plan import Plan
from mooring.config.plan_servers import references
from mooring.store.base import Store

SETTLED = 50_000_000
"""Nanoseconds between the last change of a file and the moment it was read, below which a further change could leave
the same stamp: the clock of file systems ticks every few milliseconds."""

Stamps = dict[str, tuple[int, int, int, int]]


class Kept(msgspec.Struct, frozen=True):
    """A plan, and what it was made of."""

    origin: tuple[str, ...]
    """The code that resolved it, the main file, and whose home ``~`` was."""
    stamps: Stamps
    plan: Plan
    plugins: str = ""
    """Mark of the installed plugins."""


class Remembered:
    """What the store knows of the last run."""

    def __init__(self, store: Store, file: str, plugins: Callable[[], str]) -> None:
        """``plugins`` gives the mark of the installed plugins; "" while they are unknown."""
        self._store = store
        self._file = file
        self._plugins = plugins

    def recall(self) -> Plan | None:
        """The last plan, when reading the files again would give the same; blocks, for boot only."""
        rows = self._store.rows("meta", name="plan")
        if not rows:
            return None
        try:
            kept = msgspec.json.decode(rows[0][0], type=Kept)
        except msgspec.MsgspecError:  # of a Mooring with other plans
            return None
        fresh = (
            kept.origin == self._origin()
            and kept.plugins == self._plugins() != ""
            and kept.stamps == stamps(kept.plan.files)
        )
        return kept.plan if fresh else None

    async def keep(self, plan: Plan, read_at: int) -> None:
        """Keep ``plan``, whose files were read after ``read_at`` (ns). Raises StoreError."""
        seen = stamps(plan.files)
        kept = Kept(self._origin(), seen, plan, self._plugins())
        launches = [holder.launch for holder in (*plan.variants.values(), *plan.agents.values())]
        secret = plan.litellm is not None or any(launch and references(launch) for launch in launches)
        fit = settled(seen, read_at) and not secret
        await self._store.run("put_meta", name="plan", value=msgspec.json.encode(kept).decode() if fit else "")

    def _origin(self) -> tuple[str, ...]:
        # The modules' own stamps: who works on Mooring changes what a file means without a new version.
        code = os.path.join(os.path.dirname(os.path.dirname(__file__)), "config")
        changed = max(entry.stat().st_mtime_ns for entry in os.scandir(code))
        return (__version__, str(changed), self._file, os.path.expanduser("~"))


def settled(seen: Mapping[str, tuple[int, int, int, int]], read_at: int) -> bool:
    """Whether all files had been left alone for a while when they were read, so that their stamps speak for their
    content. Pure."""
    return all(changed_at < read_at - SETTLED for *_, changed_at in seen.values())


def stamps(files: Iterable[str]) -> Stamps:
    """What tells versions of the files apart: modified (ns), size, inode, changed (ns). Counts every TOML file beside
    them and in ``conf.d``: it may be new, or included by a configuration that was not applied."""
    folders = {os.path.dirname(file) for file in files}
    found = set(files)
    for folder in folders | {os.path.join(folder, "conf.d") for folder in folders}:
        with suppress(OSError):
            found.update(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".toml"))
    seen: Stamps = {}
    for file in found:
        with suppress(OSError):  # gone: that counts as a change too
            status = os.stat(file)
            seen[file] = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)
    return seen
