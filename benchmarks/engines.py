"""Suites: containers. What Mooring adds to the engine's own time when one starts, and when fifty are ended.

Rows are engines, not peers; one that does not work here gets a row that says so. What the engine takes by itself is
measured with the very command line that Mooring used, in the same rounds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.direct import DirectSession
from benchmarks.peers import HOME, PYTHON, Mooring, Running, Server, running, servers
from benchmarks.procs import BACKEND
from benchmarks.turns import Effort, Table, median, small_call
from mooring.testing import containers

FIFTY = 50
PAUSE = 1.5
"""Seconds after a start in which Mooring does what is no hurry, and an engine tidies up."""
LIMIT = 120.0
_numbers = itertools.count()


class Contained(Mooring):
    """The product with every server in a container, without a network."""

    def table(self, server: Server) -> str:
        table = containers.program(
            PYTHON, *server.argv[1:], volumes=[f"{Path(BACKEND).parent}:{Path(BACKEND).parent}:ro"], network="none"
        )
        env = table.pop("env")
        values = "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        return values + "".join(f"env.{key} = {json.dumps(value)}\n" for key, value in env.items())


class Podman(Contained):
    """With Podman."""

    name, gateway = "podman", {"engine": "podman"}


class Docker(Contained):
    """With Docker."""

    name, gateway = "docker", {"engine": "docker"}


ENGINES: tuple[type[Contained], ...] = (Podman, Docker)


@asynccontextmanager
async def contained(kind: type[Contained], count: int, folder: Path) -> AsyncIterator[Running]:
    """Mooring with ``count`` servers whose tools it knows from an earlier life; the first of them runs."""
    _own_store()
    containers.image(kind.name)
    peer = kind(servers(count), folder)
    peer.prepare()
    async with running(peer) as up:
        await up.complete()
    async with running(peer) as up:
        await up.answers()
        await called(up, "s00")
        yield up


async def called(up: Running, server: str) -> float:
    """A first call; its seconds."""
    session = await up.session()
    seconds = await small_call(session, up.peer.tool(server, "echo"), 0)
    session.close()
    return seconds


def command_line(up: Running) -> list[str]:
    """How Mooring started the container of a server, but with a name and labels of nobody's."""
    assert isinstance(up.peer, Mooring)
    pid = next(row["pid"] for row in json.loads(up.peer.run("ps", "--json")) if row["server"] == "s00")
    argv = [part for part in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1] if "=mooring." not in part]
    argv[argv.index("--name") + 1] = f"mooring-bench-{next(_numbers)}"
    return argv


async def container_start(_: list[str], effort: Effort) -> Table:
    """From nothing to the first answer: the first call to a server whose container does not run, and the same server
    started with the engine's program by hand. Three of each in a round."""
    table: Table = {}
    own: defaultdict[str, list[float]] = defaultdict(list)
    first: defaultdict[str, list[float]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        ups = await _engines(stack, 1 + 3 * effort.rounds, table)
        for number in range(1, 1 + 3 * effort.rounds):
            for name, up in ups.items():
                own[name].append(await by_hand(command_line(up)) * 1000)
                await asyncio.sleep(PAUSE)
                first[name].append(await called(up, f"s{number:02d}") * 1000)
                await asyncio.sleep(PAUSE)
    for name in ups:
        table[name] = {
            "engine ms": median(own[name], 1),
            "engine min": round(min(own[name]), 1),
            "mooring ms": median(first[name], 1),
            "mooring min": round(min(first[name]), 1),
            "added ms": round(statistics.median(first[name]) - statistics.median(own[name]), 1),
            "added min": round(min(first[name]) - min(own[name]), 1),
            "starts": len(first[name]),
        }
    return table


async def by_hand(argv: list[str]) -> float:
    """Seconds from the spawn of the engine's program to the server's first answer."""
    begun = time.perf_counter()
    session = await DirectSession(argv).open()
    await small_call(session, "echo", 0)
    seconds = time.perf_counter() - begun
    await session.close()
    return seconds


async def container_end(_: list[str], effort: Effort) -> Table:
    """Fifty containers: from SIGTERM to the end of Mooring, when nothing is left; and one removal by the engine of
    fifty that were started by hand in the same way."""
    table: Table = {}
    own: defaultdict[str, list[float]] = defaultdict(list)
    ours: defaultdict[str, list[float]] = defaultdict(list)
    kinds = [kind for kind in ENGINES if not _missing(kind, table)]
    for _ in range(effort.rounds):
        for kind in kinds:
            async with AsyncExitStack() as stack:
                up = await _one(stack, kind, FIFTY)
                for server in up.peer.servers:
                    await called(up, server.name)
                argv = command_line(up)
                await asyncio.sleep(PAUSE)
                ours[kind.name].append(up.group.stop(LIMIT))
            own[kind.name].append(await removed_by_hand(kind.name, argv))
    for kind in kinds:
        mine, engine = ours[kind.name], own[kind.name]
        ratios = [one / other for one, other in zip(mine, engine, strict=True)]
        table[kind.name] = {
            "engine s": median(engine, 2),
            "mooring s": median(mine, 2),
            "ratio": median(ratios, 2),
            "worst ratio": round(max(ratios), 2),
            "rounds": len(ratios),
        }
    return table


async def removed_by_hand(engine: str, argv: list[str]) -> float:
    """Seconds of one removal by the engine of fifty containers with this command line."""
    place, names, sessions = argv.index("--name") + 1, list[str](), list[DirectSession]()
    for _ in range(FIFTY):
        names.append(f"mooring-bench-{next(_numbers)}")
        session = await DirectSession([*argv[:place], names[-1], *argv[place + 1 :]]).open()
        await small_call(session, "echo", 0)
        sessions.append(session)
    ask = ["--time", "0"] if engine == "podman" else []
    begun = time.perf_counter()
    subprocess.run([engine, "rm", "--force", "--volumes", *ask, *names], check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    for session in sessions:
        await session.close()
    return seconds


def _own_store() -> None:
    """Podman with images and containers of its own: what else a machine has, and does with it, costs each command."""
    if "CONTAINERS_STORAGE_CONF" not in os.environ:
        folder = HOME / "podman"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "storage.conf"
        places = f'graphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
        file.write_text(f'[storage]\ndriver = "overlay"\n{places}')
        os.environ["CONTAINERS_STORAGE_CONF"] = str(file)


def _missing(kind: type[Contained], table: Table) -> bool:
    """Whether an engine cannot be measured; its row says why."""
    why = containers.available(kind.name)
    if why:
        table[kind.name] = {"not measured": why}
    return bool(why)


async def _one(stack: AsyncExitStack, kind: type[Contained], count: int) -> Running:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
    return await stack.enter_async_context(contained(kind, count, folder))


async def _engines(stack: AsyncExitStack, count: int, table: Table) -> dict[str, Running]:
    return {kind.name: await _one(stack, kind, count) for kind in ENGINES if not _missing(kind, table)}
