"""From files to a plan, at boot and at every reload; and the watch on those files.

Boot is a reload from an empty plan.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from mooring.config.home import Home
from mooring.config.plan import Plan
from mooring.config.plan_servers import SecretRef
from mooring.errors import ConfigError
from mooring.nouns import ReloadReport
from mooring.plugins.hooks import Resolver
from mooring.serve.kinds import unsupported
from mooring.serve.plugins import Plugins
from mooring.serve.remembered import stamps

if TYPE_CHECKING:
    from mooring.config.schema import Loaded

LOOK = 0.3
"""Seconds between two looks at the files. A change is applied when two looks agree, so not in the middle of a write.
Looking takes 0.03 ms; a library that is told by the kernel would take 3 MB, and 10 ms at every start."""


READ_LIMIT = 300.0
"""Seconds to read the configuration, with its secrets and plugins, which may wait for somebody else."""
_log = logging.getLogger("mooring")


class Fingerprints(Protocol):
    """Tells secrets apart without showing them."""

    state: str
    """The state folder of the installation."""
    resolvers: Mapping[str, Resolver]
    """Where plugins find secrets."""

    def fingerprint(self, ref: SecretRef) -> str | None: ...


class Configuration:
    """What a person wrote, and how to read it again.

    ``file``: the main TOML file; ``texts`` stands in for files that are not on disk (library)."""

    def __init__(
        self, file: str, secrets: Fingerprints, home: Home | None = None, texts: dict[str, str] | None = None
    ) -> None:
        self.file = file
        self.home = home
        self.read_at = 0
        """When the files were last read, nanoseconds since the epoch; 0: not yet."""
        self.plugins = Plugins(secrets.state)
        self.edited: Callable[[Loaded], Loaded] | None = None
        """What was changed at run time, beside the files: servers that agents were given, members of teams."""
        self.placed: Callable[[Plan], Plan] | None = None
        """Puts servers of a running daemon in the place of own ones."""
        self._secrets = secrets
        self._texts = texts

    def resolved(self, look: bool = False) -> Plan:
        """Read all files and resolve them; blocks. ``look``: at the installed plugins too, whatever is known of them.
        Raises ConfigError."""
        # A boot from a remembered plan does without these.
        from mooring.config.load import load
        from mooring.config.resolve import resolve

        self.read_at = time.time_ns()
        if look:
            self.plugins.forget()
        loaded = load(self.file, self._texts, self.plugins.plugged)
        if self.edited is not None:
            loaded = self.edited(loaded)
        self._secrets.resolvers = self.plugins.collected.resolvers
        plan = resolve(loaded, fingerprint=self._secrets.fingerprint, unsupported=unsupported)
        plan = msgspec.structs.replace(plan, problems=(*plan.problems, *self.plugins.problems))
        return plan if self.placed is None else self.placed(plan)

    async def read(self, look: bool = False) -> Plan:
        """The same beside everything else, and not for ever. Raises ConfigError."""
        from mooring.launch.aside import aside  # a boot does it by itself

        try:
            async with asyncio.timeout(READ_LIMIT):
                return await aside(partial(self.resolved, look))
        except TimeoutError:
            raise ConfigError(
                f"The configuration was not read within {READ_LIMIT:g} s: perhaps a keyring, or a plugin, that has one "
                "of its secrets does not answer"
            ) from None


def changes_report(old: Plan, new: Plan) -> ReloadReport:
    """What applying ``new`` changes, by server and workspace names. Pure."""
    from mooring.config.diff import diff

    changes = diff(old, new)
    return ReloadReport(
        applied=True,
        added=_named(changes.added, changes.workspaces_added, changes.issuers_added),
        removed=_named(changes.removed, changes.workspaces_removed, changes.issuers_removed),
        changed=_named(changes.changed, changes.workspaces_changed, changes.issuers_changed),
        needs_restart=changes.needs_restart,
    )


def _named(variants: tuple[str, ...], workspaces: tuple[str, ...], issuers: tuple[str, ...]) -> tuple[str, ...]:
    return (*variants, *(f"workspace {name}" for name in workspaces), *(f"identity {name}" for name in issuers))


def changed_workspaces(old: Plan, new: Plan) -> list[str]:
    """The workspaces that may offer something else now. Pure."""
    withheld = old.gateway.pins != new.gateway.pins
    return [
        name
        for name, workspace in new.workspaces.items()
        if withheld
        or workspace != old.workspaces.get(name)
        or any(new.variants[mount.variant] != old.variants.get(mount.variant) for mount in workspace.mounts)
    ]


@asynccontextmanager
async def watching(
    files: Callable[[], tuple[str, ...]], changed: Callable[[], Awaitable[object]], read_at: float = math.inf
) -> AsyncGenerator[None, None]:
    """Call ``changed`` whenever one of ``files()`` (or its folder's ``conf.d``) changes, as long as the block lasts;
    also for what changed since ``read_at``, in epoch seconds: they were read after it."""
    task = asyncio.create_task(_watch(files, changed, read_at))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(
    files: Callable[[], tuple[str, ...]], changed: Callable[[], Awaitable[object]], read_at: float
) -> None:
    seen = stamps(files())
    applied = {file: stamp for file, stamp in seen.items() if stamp[-1] < read_at * 1e9}
    while True:
        await asyncio.sleep(LOOK)
        before, seen = seen, stamps(files())
        if seen == before != applied:
            applied = seen
            try:
                await changed()
            except Exception:  # such as a full disk: the next change may fare better
                _log.exception("The changed configuration could not be applied")
