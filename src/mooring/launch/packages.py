"""Packages that ``npx`` or ``uvx`` get before they run a server: got in a step of their own, once in a daemon's life.

Used by ``launch.process`` before a start. Without it a slow download would look like a server that does not answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from mooring.errors import PullFailed
from mooring.launch import command
from mooring.launch.environment import child_environment, find_command
from mooring.launch.kept import Keeper


class Packages:
    """What is in the caches of this machine's ``npx`` and ``uvx``, as far as it was looked after here."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._there: set[tuple[str, ...]] = set()
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}

    async def get(
        self, fetch: tuple[str, ...], server: str, phase: Callable[[str], None], said: Callable[[str], None]
    ) -> None:
        """Run ``fetch`` unless that was done. ``phase`` is told "resolve", ``said`` hears what it says; limited by
        whoever waits. Raises PullFailed, with the last it said, and LaunchMissing."""
        if fetch in self._there:
            return
        phase("resolve")
        async with self._locks.setdefault(fetch, asyncio.Lock()):
            if fetch in self._there:
                return
            env = child_environment({}, {}, os.environ)
            argv = (find_command(fetch[0], env, "/"), *fetch[1:])
            try:
                done = await command.run(self._keeper, argv, env, limit=None, said=said)
            except OSError as error:
                raise PullFailed(f"{argv[0]} could not be run: {error}", server=server, phase="resolve") from None
            if not done.ok:
                raise PullFailed(
                    f"its package could not be had; {fetch[0]} ended with code {done.code} and said:\n{done.errors}",
                    server=server,
                    phase="resolve",
                )
            self._there.add(fetch)
