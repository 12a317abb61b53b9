"""Images: found, pulled or built, once for all who want the same one.

Used by ``launch.runtime`` before a start and for the warm-up after boot. What was found is remembered, so that a
start asks the engine for nothing; ``forget`` is called when the engine then does not have it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable

from mooring.config.plan_servers import Container
from mooring.errors import PullFailed
from mooring.launch import command
from mooring.launch.command import Done
from mooring.launch.engine import Commands, words
from mooring.launch.kept import Keeper

DEFAULT_REGISTRY = "docker.io"
"""Where a name without a registry is from, as Docker has it."""

LAST_LINES = 6
"""Of what a build said, shown when it failed: the engine itself only knows which command did."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What Docker puts around lines that a command wrote to stderr."""

Phase = Callable[[str], None]
Said = Callable[[str], None]


class Images:
    """The images of one engine."""

    def __init__(self, keeper: Keeper, commands: Commands) -> None:
        self._keeper = keeper
        self._commands = commands
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: dict[str, str] = {}
        """Image as written to the name under which the engine has it."""
        self._built: dict[str, int] = {}
        """Image to the time stamp of the Dockerfile it was built from."""

    def name(self, image: str) -> str:
        """The name under which the engine has it."""
        return self._known.get(image, image)

    def forget(self, image: str) -> None:
        """The engine says that it does not have it: look again next time."""
        self._known.pop(image, None)
        self._built.pop(image, None)

    async def get(self, launch: Container, phase: Phase, said: Said) -> None:
        """Have the image, by its policy. ``phase`` is told "pull" or "build" if one of them begins, ``said`` hears what
        the engine says meanwhile. Raises PullFailed, StartFailed."""
        if launch.dockerfile is None:
            await self._have(launch.image, launch.pull, phase, said)
            return
        if self._is_built(launch):
            return
        lock = self._locks.setdefault(launch.image, asyncio.Lock())
        if lock.locked():
            phase("build")
        async with lock:
            if not self._is_built(launch):
                if launch.base:
                    await self._have(launch.base, "missing", phase, said)
                phase("build")
                await self._build(launch, launch.dockerfile, said)

    def _is_built(self, launch: Container) -> bool:
        return launch.dockerfile is not None and self._built.get(launch.image) == _stamp(launch.dockerfile) is not None

    async def _have(self, image: str, policy: str, phase: Phase, said: Said) -> None:
        if image in self._known and policy != "always":
            return
        lock = self._locks.setdefault(image, asyncio.Lock())
        if lock.locked():
            phase("pull")
        async with lock:
            if policy != "always" and (image in self._known or await self._found(image)):
                return
            if policy == "never":
                raise PullFailed(
                    f'The image {image} is not on this machine, and pull = "never". Get it: {self._tool} pull {image}'
                )
            phase("pull")
            await self._pull(image, said)

    async def _found(self, image: str) -> bool:
        for name in dict.fromkeys((image, self._qualified(image))):
            if (await self._commands.run("image", "inspect", "--format", "{{.Id}}", name)).ok:
                self._known[image] = name
                return True
        return False

    async def _pull(self, image: str, said: Said) -> None:
        name = self._qualified(image)
        done = await self._slow("pull", name, said=said)
        if not done.ok:
            raise PullFailed(
                f"The image {image} could not be pulled: {_explained(words(done.errors), name, self._tool)}"
            )
        self._known[image] = name

    async def _build(self, launch: Container, dockerfile: str, said: Said) -> None:
        image, stamp = launch.image, _stamp(dockerfile)
        if stamp is None:
            raise PullFailed(f"The image {image} cannot be built: there is no file {dockerfile}.")
        base = (f"--build-arg=BASE={self.name(launch.base)}",) if launch.base else ()
        heard: deque[str] = deque(maxlen=LAST_LINES)

        def hear(line: str) -> None:
            if line := _COLOURS.sub("", line).strip():
                heard.append(line)
                said(line)

        folder = os.path.dirname(dockerfile)
        done = await self._slow("build", "--tag", image, *base, "--file", dockerfile, folder, said=hear)
        if not done.ok:
            self._known.pop(launch.base, None)
            why = words(done.errors)
            lines = "\n".join([why, *(line for line in heard if why not in line)])
            raise PullFailed(f"The image {image} could not be built from {dockerfile}: {lines}")
        self._built[image] = stamp

    async def _slow(self, *arguments: str, said: Said) -> Done:
        """A command that is limited by whoever waits for it (``timeouts.pull``)."""
        argv = (self._commands.engine.program, *arguments)
        try:
            return await command.run(self._keeper, argv, self._commands.env, limit=None, said=said)
        except OSError as error:
            raise PullFailed(f"{argv[0]} could not be run: {error}") from None

    @property
    def _tool(self) -> str:
        return self._commands.engine.name

    def _qualified(self, image: str) -> str:
        return qualified(image) if self._tool == "podman" else image


def qualified(image: str) -> str:
    """A name without a registry, with the one that Docker takes; Podman knows none unless it is configured. Pure."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"{DEFAULT_REGISTRY}/{image if slash else f'library/{image}'}"


def _explained(said: str, image: str, tool: str) -> str:
    """What the engine said, and what to do about it. Pure."""
    lower = said.lower()
    host = image.partition("/")[0]
    if "unauthorized" in lower or "denied" in lower or "authentication required" in lower:
        return f"{said}. If it is not public, log in: {tool} login {host}"
    if "manifest unknown" in lower or "not found" in lower:
        return f"{said}. Check its name and tag."
    return f"{said}. Check the network, or try it yourself: {tool} pull {image}"


def _stamp(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None
