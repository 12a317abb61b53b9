"""The gateways that are measured, one class each: how it is installed, configured and started.

Used by the suites. A peer is written down once with the servers it gets; ``running`` brings it up. Environments of
others are made below ``$BENCH_HOME`` (default: ``mooring-bench`` in the temp folder) when they are first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec

from benchmarks.client import Endpoint, Session, WrongAnswerError, healthy
from benchmarks.procs import BACKEND, Group

HERE = Path(__file__).parent
HOME = Path(os.environ.get("BENCH_HOME") or Path(tempfile.gettempdir()) / "mooring-bench")
PYTHON = str(Path(sys.executable).resolve())
READY_LIMIT = 120.0


class Server(msgspec.Struct, frozen=True):
    """An echo server to put behind a gateway. ``delay``: seconds it sleeps before it answers."""

    name: str
    tools: int = 2
    delay: float = 0.0

    @property
    def argv(self) -> list[str]:
        """How it is started."""
        return [PYTHON, "-I", "-S", BACKEND, "--tools", str(self.tools), "--delay", str(self.delay)]


def servers(count: int, *, tools: int = 2, delay: float = 0.0) -> list[Server]:
    """That many, named s00, s01 ..."""
    return [Server(f"s{number:02d}", tools, delay) for number in range(count)]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(name: str, requirement: str) -> Path:
    """The ``bin`` folder of a virtual environment that has the requirement; made when it is not there."""
    folder = HOME / name
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, requirement], check=True, stdout=sys.stderr)
        (folder / "ready").touch()
    return folder / "bin"


class Peer:
    """A gateway with its servers, not started yet."""

    name: ClassVar[str]
    relays: ClassVar[bool] = True
    """False: there is no server behind it."""
    aggregates: ClassVar[bool] = True
    """False: it has an endpoint for each server, or none."""
    modern: ClassVar[bool] = False
    """True: it also speaks protocol 2026-07-28."""
    health: ClassVar[str] = ""
    """The path that says whether it is ready; "" where there is none."""

    def __init__(self, behind: list[Server], folder: Path) -> None:
        self.servers, self.folder, self.port = behind, folder, free_port()
        self.variables: dict[str, str] = {}

    def prepare(self) -> None:
        """What has to be there before the start that is timed."""
        specs = {server.name: {"command": server.argv[0], "args": server.argv[1:]} for server in self.servers}
        self.config = self.folder / "config.json"
        self.config.write_text(json.dumps({"mcpServers": specs}))

    def argv(self) -> list[str]:
        """The command that runs it in the foreground."""
        raise NotImplementedError

    def endpoint(self, server: str) -> Endpoint:
        """Where that server's tools are reached."""
        return Endpoint(self.port)

    def tool(self, server: str, tool: str) -> str:
        """The name the tool has there."""
        return f"{server}_{tool}"


class Floor(Peer):
    """HTTP and JSON without a backend."""

    name, relays, aggregates, modern = "floor", False, False, True

    def argv(self) -> list[str]:
        return [sys.executable, str(HERE / "reference" / "floor.py"), str(self.port)]

    def tool(self, server: str, tool: str) -> str:
        return tool


class RawRelay(Peer):
    """The reference relay."""

    name, modern = "raw-relay", True

    def argv(self) -> list[str]:
        return [sys.executable, str(HERE / "reference" / "raw_relay.py"), str(self.port), str(self.config)]


GUARDED = """pins = "report"

[audit]
enabled = true
"""
POLICY = """[workspaces.{}.policy]
allow = [{{ server = "s*" }}]
deny = [{{ tool = "forbidden*" }}, {{ tool = "drop*", destructive = true }}]
confirm = [{{ tool = "delete*", read_only = false }}]
rate = {{ calls = 10_000_000, per = "1s" }}
concurrency = 100_000
max_result = 100_000_000
"""
"""Everything has to be looked at, nothing is refused."""


class Mooring(Peer):
    """The product as shipped, with everything on that may stand in the way of a call."""

    name, modern, health = "mooring", True, "/healthz"
    on = (
        "two workspaces, keys, audit, pins, /metrics, and for each workspace a policy: rules by server, by tool and by "
        "annotation, confirmation for some tools, a rate, a limit of calls at the same time, a limit for results"
    )
    """What is on, for the head of a result; ``GUARDED`` and ``POLICY`` turn it on."""
    program = str(Path(sys.executable).parent / "mooring")
    gateway: ClassVar[dict[str, str]] = {}
    """Further settings of the gateway."""

    def prepare(self) -> None:
        """Make a key in a first life without servers, then write the whole configuration."""
        self.variables = {"MOORING_HOME": str(self.folder)}
        gateway = f'[gateway]\nlisten = ["127.0.0.1:{self.port}"]\npublic_url = "http://127.0.0.1:{self.port}"\n'
        gateway += "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.gateway.items()) + f"{GUARDED}\n"
        file = self.folder / "mooring.toml"
        file.write_text(gateway + "".join(f"[workspaces.{name}]\n" for name in "ab"))
        with Group(self.argv(), self.folder, self.variables) as group:
            self._wait_for_port(group)
            self._token = json.loads(self.run("key", "create", "a", "--json"))["key"]
        tables = [f"[mcp_servers.{server.name}]\n{self.table(server)}\n" for server in self.servers]
        rooms = (f'[workspaces.{name}]\nmcp_servers = ["*"]\n{POLICY.format(name)}\n' for name in "ab")
        file.write_text(gateway + "".join((*tables, *rooms)))

    def table(self, server: Server) -> str:
        """The rest of a server's table in the configuration."""
        return f"command = {json.dumps(server.argv[0])}\nargs = {json.dumps(server.argv[1:])}\n"

    def _wait_for_port(self, group: Group) -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if reason := group.ended():
                raise RuntimeError(f"mooring up ended with {reason}")
            time.sleep(0.01)
        raise RuntimeError(f"mooring up did not listen on port {self.port} within 20 s")

    def run(self, *arguments: str) -> str:
        """What a ``mooring`` command prints."""
        done = subprocess.run(
            [self.program, *arguments],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"mooring {' '.join(arguments)} failed: {done.stderr}")
        return done.stdout

    def argv(self) -> list[str]:
        return [self.program, "up"]

    def endpoint(self, server: str) -> Endpoint:
        return Endpoint(self.port, token=self._token)


class McpProxy(Peer):
    """mcp-proxy: a bridge, one endpoint for each server, no aggregation."""

    name, aggregates = "mcp-proxy", False

    def prepare(self) -> None:
        super().prepare()
        self._program = environment(self.name, "mcp-proxy==0.13.0") / "mcp-proxy"

    def argv(self) -> list[str]:
        where = ["--port", str(self.port), "--pass-environment", "--log-level", "WARNING"]
        return [str(self._program), *where, "--named-server-config", str(self.config)]

    def endpoint(self, server: str) -> Endpoint:
        return Endpoint(self.port, f"/servers/{server}/mcp")

    def tool(self, server: str, tool: str) -> str:
        return tool


class FastMcp(Peer):
    """fastmcp with shared sessions, its cheapest arrangement."""

    name = "fastmcp"

    def prepare(self) -> None:
        super().prepare()
        self._python = environment(self.name, "fastmcp==4.1.2") / "python"

    def argv(self) -> list[str]:
        return [str(self._python), str(HERE / "fastmcp_shared.py"), str(self.port), str(self.config)]


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Floor, RawRelay, Mooring, McpProxy, FastMcp)}


class Running:
    """A peer that is up."""

    def __init__(self, peer: Peer, group: Group, spawned: float) -> None:
        self.peer, self.group, self._spawned = peer, group, spawned
        self.cpu, self.memory = group.cpu, group.memory

    async def session(self, server: str = "s00", *, modern: bool = False) -> Session:
        """A new caller of that server."""
        return await Session(self.peer.endpoint(server), modern=modern).open()

    async def ready(self) -> float:
        """Seconds from the spawn until it says that it is ready."""
        return await self._until(partial(healthy, self.peer.port, self.peer.health))

    async def answers(self) -> float:
        """Seconds from the spawn until it shakes hands."""
        return await self._until(self._shakes_hands)

    async def complete(self) -> float:
        """Seconds from the spawn until the tools of every server are listed."""
        return await self._until(self._lists_all)

    async def _until(self, check: Callable[[], Awaitable[None]]) -> float:
        async with asyncio.timeout(READY_LIMIT):
            while True:
                try:
                    await check()
                except (OSError, WrongAnswerError) as error:
                    if reason := self.group.ended():
                        raise RuntimeError(f"{self.peer.name} ended with {reason}") from error
                    await asyncio.sleep(0.001)
                else:
                    return time.perf_counter() - self._spawned

    async def _shakes_hands(self) -> None:
        (await self.session()).close()

    async def _lists_all(self) -> None:
        if not self.peer.relays:
            return await self._shakes_hands()
        missing = {server.name: self.peer.tool(server.name, "echo") for server in self.peer.servers}
        while missing:
            session = await self.session(next(iter(missing)))
            listed, _ = await session.tools()
            session.close()
            here = session.endpoint
            found = [n for n, tool in missing.items() if self.peer.endpoint(n) == here and tool in listed]
            if not found:
                raise WrongAnswerError(f"{len(missing)} servers are not listed yet")
            for name in found:
                del missing[name]
        return None


@contextlib.asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Running]:
    """Bring a prepared peer up; it may not answer yet. Ends it and its servers."""
    spawned = time.perf_counter()
    with Group(peer.argv(), peer.folder, peer.variables) as group:
        yield Running(peer, group, spawned)
