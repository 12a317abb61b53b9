"""What all containers of one daemon share: the engine, its images, the names in use, and what is owed to it.

Made by ``launch.container``, once, when the first container is wanted or there may be some of an earlier daemon. Every
container carries labels of the installation and of this run of the daemon; nothing without them is ever touched.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mooring.errors import StartFailed
from mooring.launch.engine import Commands, Engine, listing, removal
from mooring.launch.family import MARKS
from mooring.launch.images import Images
from mooring.launch.kept import Keeper, Kept
from mooring.nouns import InstanceKey

INSTALLATION = "mooring.installation"
SERVER = "mooring.server"
INSTANCE = "mooring.instance"
RUN = "mooring.run"
"""Labels. The last tells the containers of this daemon from those of an earlier one with the same home."""
MARKER = "containers"
"""File in the state folder: the engines that this installation has run containers with, one a line."""
FILES = Path("/dev/shm")  # noqa: S108 - memory; what is made in there is for this user only
NAME_DIGITS = 12
FRESH = 0.2
"""Seconds for which a look at all processes is good: many containers are asked about at the same time."""

_log = logging.getLogger("mooring")


class Runtime:
    """One engine in the service of one daemon. ``state``: the state folder, None where nothing outlives the process."""

    def __init__(self, keeper: Keeper, engine: Engine, installation: str, state: Path | None) -> None:
        self.engine = engine
        self.commands = Commands(keeper, engine)
        self.images = Images(keeper, self.commands)
        self.installation = installation
        self.run = secrets.token_hex(8)
        self._keeper = keeper
        self._state = state
        self._names: set[str] = set()
        self._owed: set[str] = set()
        """Names whose removal failed."""
        self._pending: list[str] = []
        self._removing = asyncio.Lock()
        self._looked = -FRESH
        self._alive: set[int] = set()

    # leftovers

    async def sweep(self, alone: bool = True) -> None:
        """End and remove what an earlier daemon with this home left; before this one has a container. ``alone``: nor
        has it any with another engine, so that all secrets in memory are the earlier one's. Raises StartFailed."""
        if found := await self.commands.listed(f"{INSTALLATION}={self.installation}"):
            _log.warning("%s has %d containers of an earlier daemon; they are ended", self.engine.name, len(found))
            if error := await self.commands.remove(found):
                raise StartFailed(f"Containers of an earlier daemon could not be removed: {error}")
        if alone:
            for folder in FILES.glob(f"{self.prefix}-*"):
                remove_folder(folder)
        if self.engine.name == "podman":
            listed = (await self.commands.run("secret", "ls", "--format", "{{.Name}}")).output.decode().split()
            if left := [name for name in listed if name.startswith(f"{self.prefix}-")]:
                await self.commands.run("secret", "rm", *left)

    # containers

    @property
    def prefix(self) -> str:
        """Of the names of secrets."""
        return f"mooring-{self.installation}"

    @contextmanager
    def name(self, server: str, key: InstanceKey) -> Generator[str]:
        """The name of a container that is about to be started; it is taken as long as the block lasts."""
        wanted = name = container_name(server, self.installation, key)
        number = 1
        while name in self._names:
            number += 1
            name = f"{wanted}.{number}"
        if not self._names:
            self._announce()
        self._names.add(name)
        try:
            yield name
        finally:
            self._names.remove(name)
            if not self._names and not self._owed:
                self._keeper.forget(id(self))

    def labels(self, server: str, name: str) -> dict[str, str]:
        """The labels of a container."""
        return {INSTALLATION: self.installation, SERVER: server, INSTANCE: instance_of(name), RUN: self.run}

    def _announce(self) -> None:
        """From now on there may be something to end, for the keeper and for the next daemon."""
        program = self.engine.program
        mine = (f"{INSTALLATION}={self.installation}", f"{RUN}={self.run}")
        commands = ([program, *listing(mine)], [program, *removal(self.engine.name)])
        self._keeper.farewell(id(self), *commands, self.commands.env)
        if self._state is not None:
            remember(self._state, self.engine.name)

    def ended(self, kept: Kept) -> bool:
        """Whether a server has ended, and only the engine is not done with its container yet. False where that cannot
        be seen: where containers do not descend from the engine's program."""
        if self.engine.name != "podman" or not (self.engine.local and MARKS):
            return False
        now = asyncio.get_running_loop().time()
        if now - self._looked > FRESH:
            self._looked, self._alive = now, self._keeper.containing()
        return kept.pid not in self._alive

    async def remove(self, name: str) -> None:
        """Kill and remove a container that did not end by itself. What is asked for at the same time is one command."""
        self._pending.append(name)
        async with self._removing:
            if name not in self._pending:
                return
            batch, self._pending = self._pending, []
            if error := await self.commands.remove(batch):
                self._owed.update(batch)
                _log.error("%s did not remove %s: %s", self.engine.name, ", ".join(batch), error)

    async def settle(self, server: str, key: InstanceKey) -> None:
        """Try again what could not be removed of this one's earlier lives. Raises StartFailed if it still cannot."""
        name = container_name(server, self.installation, key)
        if error := await self._retried(lambda owed: owed == name or owed.startswith(f"{name}.")):
            raise StartFailed(f"{self.engine.name} does not remove {name}: {error}")

    async def tidy(self) -> None:
        """Try again what could not be removed of all others; they are in nobody's way."""
        if error := await self._retried(lambda owed: True):
            _log.warning("%s still does not remove %s: %s", self.engine.name, ", ".join(sorted(self._owed)), error)

    async def _retried(self, meant: Callable[[str], bool]) -> str:
        """What went wrong, or ""."""
        if not self._owed:
            return ""
        async with self._removing:  # else the last of two removals could meet a container that is started in between
            owed = sorted(filter(meant, self._owed - self._names))
            error = await self.commands.remove(owed) if owed else ""
            if not error:
                self._owed.difference_update(owed)
            return error


def container_name(server: str, installation: str, key: InstanceKey) -> str:
    """``mooring-mcp-<server>-<digest of installation and key>``. Pure."""
    said = "\0".join((installation, key.variant, key.digest, key.scope))
    return f"mooring-mcp-{_plain(server)}-{hashlib.sha256(said.encode()).hexdigest()[:NAME_DIGITS]}"


def instance_of(name: str) -> str:
    """What tells the container ``name`` from all others of its installation. Pure."""
    return name.rpartition("-")[2]


def _plain(server: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "-" for letter in server)


def remember(state: Path, engine: str) -> None:
    """Write down that this installation has run containers with ``engine``."""
    known = remembered(state)
    if engine not in known:
        file = state / MARKER
        file.write_text("".join(f"{name}\n" for name in (*known, engine)))
        file.chmod(0o600)


def remembered(state: Path) -> list[str]:
    """The engines that this installation has run containers with."""
    try:
        return (state / MARKER).read_text().split()
    except OSError:
        return []


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours and the files in it, as far as that works. It is where everybody may make such a name, a
    link to another folder too: nothing behind one is touched."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.getuid():
                return
            for name in os.listdir(descriptor):
                os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        folder.rmdir()


def installation_id(key: bytes, state: str) -> str:
    """What tells the containers of one home from those of any other, a copy of it included. Pure."""
    return hashlib.sha256(key + os.fsencode(state)).hexdigest()[:16]
