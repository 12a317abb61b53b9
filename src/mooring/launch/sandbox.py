"""A sandbox around one process: its command line, its network, its limits, from before it runs until it is gone.

Used by ``launch.process`` for servers with ``sandbox``, and imported only then. Without privileges everything works the
same but the limits, and it says so.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from mooring.config.plan_servers import Sandbox
from mooring.errors import LaunchMissing, StartFailed
from mooring.launch import bubblewrap
from mooring.launch.cgroup import Limits, limited
from mooring.launch.door import door
from mooring.launch.egress_proxy import Denied, egress, proxy_environment, proxy_port
from mooring.launch.environment import FALLBACK_PATH, find_command
from mooring.launch.kept import Kept
from mooring.launch.netns import network_of

LOOK = 0.001
"""Seconds between two looks for the process inside."""
ENTERING = 5.0
"""Seconds until it is there; it takes milliseconds."""


class Guard:
    """One sandbox. Made by ``guarded``, whose block has to last longer than the process."""

    def __init__(
        self, sandbox: Sandbox, port: int | None, denied: Denied, groups: Sequence[str], stack: AsyncExitStack
    ) -> None:
        self._sandbox = sandbox
        self._port = port
        self._denied = denied
        self._groups = groups
        self._stack = stack
        self._gated = sandbox.network != "open" and not (sandbox.network == "none" and port is None)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """What the server gets instead of ``given``."""
        allowed = self._sandbox.network
        proxy = {} if isinstance(allowed, str) else proxy_environment(allowed, proxy_port(self._port))
        return {**given, "TMPDIR": "/tmp", **proxy}  # noqa: S108 - its own

    def command(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> list[str]:
        """What to run instead of ``argv``. Raises LaunchMissing without bubblewrap, StartFailed when what is declared
        is not there, or the program or a variable could not be seen inside."""
        bwrap = _bubblewrap()
        sandbox = self._sandbox
        for path in (*sandbox.writable, *sandbox.readable, *((cwd,) if cwd else ())):
            if not os.path.exists(path):
                raise StartFailed(f'"{path}" is declared for the sandbox and does not exist: create it', phase="start")
        for name in environment:
            if not bubblewrap.VARIABLE.fullmatch(name):
                what = f'The variable "{name}" cannot get into a sandbox: letters, digits and underscores can'
                raise StartFailed(what, phase="start")
        for path in dict.fromkeys((argv[0], os.path.realpath(argv[0]))):
            if not bubblewrap.visible(path, sandbox, cwd):
                advice = f'add "{os.path.dirname(path)}:ro", or the folder that all of it is in, to sandbox.paths'
                raise StartFailed(f'The program "{path}" cannot be seen in its sandbox: {advice}', phase="start")
        return bubblewrap.command(bwrap, argv, sandbox, environment, cwd, gated=self._gated, groups=self._groups)

    async def admit(self, kept: Kept) -> str | None:
        """Open what the network allows, then let the server begin; for HTTP the path of a unix socket that leads to
        it, None when it is on this machine's network. Raises StartFailed."""
        if not self._gated:
            return None
        network = self._stack.enter_context(network_of(await _inner(kept)))
        if kept.exited.done():  # or the number could be somebody else's
            raise StartFailed("The sandbox ended while it was set up", phase="start")
        if not isinstance(self._sandbox.network, str):
            port = proxy_port(self._port)
            await self._stack.enter_async_context(egress(network, self._sandbox.network, self._denied, port))
        path = None
        if self._port is not None:
            path = await self._stack.enter_async_context(door(network, self._port))
        os.write(kept.stdin_fd, b"\n")
        return path


@asynccontextmanager
async def guarded(
    sandbox: Sandbox, port: int | None, denied: Denied, said: Callable[[str], None]
) -> AsyncGenerator[Guard]:
    """A sandbox for one process. ``port``: where the server will listen for HTTP. ``denied`` hears of connections that
    were refused, ``said`` of limits that cannot be kept here."""
    async with AsyncExitStack() as stack:
        groups: Sequence[str] = ()
        if sandbox.memory or sandbox.pids:
            try:
                groups = stack.enter_context(limited(Limits(sandbox.memory, sandbox.pids)))
            except OSError as error:
                said(f"the limits of the sandbox are not kept here: {error.strerror}: {error.filename}")
        yield Guard(sandbox, port, denied, groups, stack)


def _bubblewrap() -> str:
    if sys.platform != "linux":
        raise LaunchMissing("sandbox = true needs Linux; run the server in a container instead: image", command="bwrap")
    try:
        return find_command("bwrap", {"PATH": os.environ.get("PATH", FALLBACK_PATH)}, "/")
    except LaunchMissing:
        how = "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"
        raise LaunchMissing(f"sandbox = true needs bubblewrap 0.8 or newer: {how}", command="bwrap") from None


async def _inner(kept: Kept) -> int:
    """The first process inside, a child of bubblewrap. When that has a child too, all is set up: what is done to the
    network before would get into bubblewrap's way."""
    try:
        async with asyncio.timeout(ENTERING):
            while not kept.exited.done():
                if (found := _children(kept.pid)) and _children(found[0]):
                    return found[0]
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise StartFailed(f"The sandbox was not set up within {ENTERING:g} s", phase="start") from None
    except OSError:  # gone meanwhile
        pass
    raise StartFailed("The sandbox could not be set up", phase="start")


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
        return [int(child) for child in file.read(64).split()]
