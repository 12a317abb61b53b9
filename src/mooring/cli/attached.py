"""Run a verb against the daemon, which is started first when it is not there.

Used by every verb that needs running servers or keys, and after edits of local files. It never ends the daemon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

import msgspec

from mooring.cli.output import warn
from mooring.cli.spawn import Daemon
from mooring.errors import ConfigError, DaemonAbsent, MooringError, TimedOut
from mooring.facade import Mooring, connect

T = TypeVar("T")
START_LIMIT = 10.0
"""Seconds that a daemon started here has until it answers."""
GRACE = 2.0
"""Seconds of waiting left once a daemon started here has ended: another one may have been faster."""
LIMIT = 60.0
"""Seconds for a verb that does not take its time by nature, such as a call does."""
PAUSE = 0.05
"""Seconds between two attempts to connect."""


def attached(work: Callable[[Mooring], Awaitable[T]], *, spawn: bool, limit: float | None = LIMIT) -> T:
    """The result of ``work`` with the daemon, within ``limit`` seconds. Raises MooringError; DaemonAbsent when there is
    none."""

    async def run() -> T:
        async with asyncio.timeout(limit), AsyncExitStack() as stack:
            return await work(await _connected(stack, spawn))

    try:
        return asyncio.run(run())
    except TimeoutError:
        raise TimedOut("The daemon did not answer in time. Look for the reason with: mooring doctor") from None
    except msgspec.ValidationError as error:
        raise MooringError(
            f"The daemon's answer is not understood ({error}). Is it another version? Run mooring stop, then mooring up"
        ) from None


async def _connected(stack: AsyncExitStack, spawn: bool) -> Mooring:
    try:
        return await stack.enter_async_context(connect())
    except DaemonAbsent:
        if not spawn:
            raise
    daemon = Daemon()
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
        with suppress(DaemonAbsent):
            return await stack.enter_async_context(connect())
        if daemon.ended():
            deadline = min(deadline, time.monotonic() + GRACE)
    raise DaemonAbsent(daemon.complaint())


def tell_daemon() -> None:
    """Files or secrets were changed here: a running daemon takes them up now. Without one there is nothing to do."""
    try:
        report = attached(lambda mooring: mooring.reload(), spawn=False)
    except DaemonAbsent:
        return
    except MooringError as error:
        warn(f"it is done, but the running daemon was not told: {error}")
        return
    if not report.applied:
        warn(f"the running daemon goes on with its old configuration: {report.error}")


async def workspace_of(mooring: Mooring, named: str | None, how: str = "-w NAME") -> str:
    """The workspace a verb is for: the one named, the only one, else ``default``. Raises ConfigError, which says
    ``how`` the verb is given one."""
    names = (await mooring.status()).workspaces
    chosen = named or (names[0] if len(names) == 1 else "default")
    if chosen not in names:
        raise ConfigError(
            f'There is no workspace "{chosen}". Workspaces: {", ".join(names) or "none"}. Name one: {how}'
        )
    return chosen
