"""The contract of a launcher.

A launcher brings one server into existence and ends it again: ``launch`` is an async context manager that yields a
``Launched``; leaving the block means the server is gone, with all its descendants. Called by ``serve.starter`` inside
the instance's owner task, never twice for one instance. It never speaks MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from mooring.config.plan import Variant
from mooring.nouns import InstanceKey


class Pipes(msgspec.Struct, frozen=True):
    """A server on stdio: raw file descriptors owned by the receiver, which closes them (``reader`` is its stdout,
    ``writer`` its stdin; both non-blocking). ``leftover``: bytes already read from stdout."""

    reader: int
    writer: int
    leftover: bytes = b""


class Url(msgspec.Struct, frozen=True):
    """A server that speaks HTTP."""

    url: str
    headers: dict[str, str] = {}
    transport: str = "http"
    socket: str | None = None
    """Path of a unix socket that leads there; the host and the port of ``url`` then only name it."""


class Local(msgspec.Struct, frozen=True):
    """A server inside this process: an object with the ``wire.connection.Connection`` methods."""

    connection: Any


Report = Callable[[str, Variant, dict[str, Any]], None]
"""Told of what happens to a server while it runs: the event's name, whose server, what the event carries."""


def unheard(name: str, variant: Variant, data: dict[str, Any]) -> None:
    """The ``Report`` of those whom nobody listens to."""


class Tail(Protocol):
    """The bounded last output of a server's stderr."""

    def text(self, lines: int = 20) -> str:
        """The last lines, without a newline at the end."""
        ...

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Call ``follower`` with each further line, until the returned function is called."""
        ...


class Launched(Protocol):
    """A server that runs, or is about to answer."""

    @property
    def endpoint(self) -> Pipes | Url | Local: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def container(self) -> str | None:
        """Engine and name, such as ``podman:mooring-mcp-time-0a1b2c3d4e5f``; None for what is no container."""
        ...

    @property
    def stderr(self) -> Tail: ...

    @property
    def exited(self) -> asyncio.Future[int | None]:
        """Resolves with the exit code (negative: signal) when the server is gone; with None when it is ended because
        what kept it is gone, for which it is not to blame. Never resolves for remotes."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the server's process group, if there is one."""
        ...


class Silence:
    """The ``Tail`` of what has no stderr."""

    def text(self, lines: int = 20) -> str:
        """Nothing."""
        return ""

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Nothing will come."""
        return lambda: None


class Elsewhere:
    """A ``Launched`` that is no process: a remote, or a part of this one."""

    pid: int | None = None
    container: str | None = None

    def __init__(self, endpoint: Url | Local) -> None:
        self.endpoint = endpoint
        self.stderr = Silence()
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        """There is no process."""


@runtime_checkable
class Settling(Protocol):
    """A ``Launched`` that wants to know when its server is ready, to let go of what was for the start only."""

    def answered(self) -> None:
        """The server speaks MCP now."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A launcher whose servers need something that takes long to get, such as an image."""

    async def prepare(self, variant: Variant, phase: Callable[[str], None], said: Callable[[str], None]) -> None:
        """Get it; called before each ``launch``, in the same task. ``phase`` is told the name of a slow step (pull,
        build, resolve), which has a limit of its own; ``said`` hears each line of progress. Raises Unavailable and
        LaunchMissing."""
        ...


class Launcher(Protocol):
    """Starts and ends one kind of server."""

    kinds: ClassVar[tuple[str, ...]]
    """Tags of ``config.plan_servers.Launch`` it serves, such as ("process",)."""

    def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Launched]:
        """Start it. ``secrets``: values by the names in ``variant.launch.secrets``, resolved at this moment;
        ``credentials`` are not among them, they are handed over on the pipes afterwards (``launch.smcp``). Raises
        StartFailed or LaunchMissing; whatever was begun is undone then."""
        ...
