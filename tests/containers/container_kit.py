"""What the tests of containers share: homes whose daemons use one engine, and looks from inside and outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mooring.testing import containers, wait_for
from mooring.testing.daemon import Daemon, daemon, launched

LIMIT = 30.0
"""Seconds for what takes one, on a machine under load."""
Table = Callable[..., dict[str, Any]]


class Kept:
    """Homes of one test, and what their daemons run."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.homes: list[Path] = []

    def label(self, home: Path) -> str:
        """The label of all containers of a home."""
        return containers.label(home)

    def names(self, home: Path) -> set[str]:
        """What the engine has of a home's containers."""
        return containers.names(self.engine, self.label(home))

    def secrets(self, home: Path) -> set[str]:
        """What Podman keeps of a home's secrets."""
        if self.engine == "docker":
            return set()
        prefix = f"mooring-{self.label(home).partition('=')[2]}-"
        listed = containers.command("podman", "secret", "ls", "--format", "{{.Name}}").split()
        return {name for name in listed if name.startswith(prefix)}

    def ids(self, home: Path) -> set[str]:
        """The same by id."""
        return containers.ids(self.engine, self.label(home))

    @asynccontextmanager
    async def daemon(
        self, home: Path, servers: dict[str, Any], *more: Any, tables: dict[str, Any] | None = None, **gateway: Any
    ) -> AsyncGenerator[Daemon]:
        """A daemon with this engine, whose home is created where it is not there. ``tables``: of its configuration."""
        home.mkdir(exist_ok=True)
        self.homes.append(home)
        settings = {"engine": self.engine, **gateway}
        async with daemon(home, servers, *more, gateway=settings, **(tables or {})) as running:
            yield running

    @asynccontextmanager
    async def again(self, home: Path) -> AsyncGenerator[Daemon]:
        """The daemon of this home, started once more."""
        async with launched(home) as running:
            yield running


async def answer(daemon: Daemon, tool: str, workspace: str = "w", **arguments: Any) -> dict[str, Any]:
    """The result of a call. While a server is looked at for the first time, a call waits three seconds for its tools;
    a machine under load needs longer, so it is asked again."""
    async with await daemon.client(workspace, timeout=LIMIT) as client:
        await client.open()

        async def known() -> dict[str, Any] | None:
            result = await client.call(tool, arguments)
            kind = result.get("_meta", {}).get("mooring/error", {}).get("kind")
            return None if kind == "unavailable" else result

        return await wait_for(known, LIMIT, 0.1)


async def called(daemon: Daemon, tool: str, workspace: str = "w", **arguments: Any) -> Any:
    """The structured content of a call; None when it has none."""
    return (await answer(daemon, tool, workspace, **arguments)).get("structuredContent")


async def shown(daemon: Daemon) -> set[str]:
    """The containers in ``mooring ps``, without the engine."""
    return {row.container.partition(":")[2] for row in await daemon.mooring.ps() if row.container}


async def agree(kept: Kept, daemon: Daemon, count: int) -> None:
    """Until the engine and ``mooring ps`` show the same ``count`` containers."""

    async def same() -> bool:
        return len(found := kept.names(daemon.home)) == count and found == await shown(daemon)

    await wait_for(same, LIMIT, 0.05)


async def asleep(daemon: Daemon) -> None:
    """Until the first look at every server is over and all have gone to sleep."""

    async def listed() -> bool:
        return all(row.tools and row.state == "stopped" for row in await daemon.mooring.ps())

    await wait_for(listed, LIMIT, 0.02)
