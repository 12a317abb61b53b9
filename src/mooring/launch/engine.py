"""The seam to a container engine: which one is used, what it can do, and the commands that differ among them.

Used by ``launch.container`` and by ``doctor``. The engine's own command line program is what is run (decision 0011
says why); it runs in the keeper. Nothing here knows about servers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Literal

import msgspec

from mooring.errors import LaunchMissing, StartFailed
from mooring.launch import command
from mooring.launch.command import Done
from mooring.launch.environment import child_environment
from mooring.launch.kept import Keeper

Name = Literal["podman", "docker"]
ORDER: tuple[Name, ...] = ("podman", "docker")
"""In which ``engine = "auto"`` looks: Podman first, which needs neither a daemon nor privileges."""
QUICK = 30.0
"""Seconds for a command that looks something up; they take hundredths, unless the machine is busy."""
SLOW = 20.0
"""Seconds for a removal."""
REMOVALS = 5
"""How often a removal is tried: an engine that is just ending the same container refuses once or twice."""
ENGINE_FAILED = 125
"""Exit code of an engine's program when it, not what it runs, failed."""
UPDATES = (4, 3)
"""The first Podman that can change limits of a running container."""
ENVIRONMENT = ("CONTAINER", "DOCKER_", "PODMAN_", "STORAGE_", "REGISTRY_AUTH_FILE", "DBUS_SESSION_BUS_ADDRESS", "SSH_")
"""What an engine's program reads, besides what every child gets: beginnings of names."""
INSTALL = "install Podman (https://podman.io/docs/installation) or Docker (https://docs.docker.com/engine/install/)"


class Engine(msgspec.Struct, frozen=True):
    """An engine that answers."""

    name: Name
    program: str
    """Absolute path."""
    version: str
    why: str = ""
    """Why this one was taken."""
    rootless: bool = False
    local: bool = True
    """Its containers run on this machine, not in a virtual machine or elsewhere."""
    ignored: tuple[str, ...] = ()
    """Limits (memory, pids, cpus) that it cannot enforce here."""
    updates: bool = True
    """It can change limits of a running container."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}{' (rootless)' if self.rootless else ''}"


class Facts(msgspec.Struct, frozen=True):
    """What is known of a running container."""

    pid: int
    """Of its first process, as this machine counts."""
    ports: dict[int, int]
    """Port of the container to port of this machine."""


def environment() -> dict[str, str]:
    """What the engine's program gets: what every child gets, and the settings of engines."""
    own = {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)}
    return child_environment(own, {}, os.environ)


class Commands:
    """An engine's commands, run in ``keeper``."""

    def __init__(self, keeper: Keeper, engine: Engine) -> None:
        self._keeper = keeper
        self.engine = engine
        self.env = environment()

    async def run(self, *arguments: str, limit: float = QUICK, stdin: bytes = b"") -> Done:
        """Run one command of the engine. Raises StartFailed when it does not end in time or cannot be run."""
        argv = (self.engine.program, *arguments)
        try:
            return await command.run(self._keeper, argv, self.env, limit=limit, stdin=stdin)
        except TimeoutError:
            raise StartFailed(f"{self.engine.name} {arguments[0]} did not end within {limit:g} s.") from None
        except OSError as error:
            raise StartFailed(f"{self.engine.program} could not be run: {error}") from None

    async def inspected(self, name: str) -> Facts | None:
        """The facts of a container that runs; None when it does not run (yet)."""
        done = await self.run("container", "inspect", name)
        return facts(done.output) if done.ok else None

    async def listed(self, *labels: str) -> list[str]:
        """The ids of all containers, running or not, that have all ``labels``. Raises StartFailed."""
        done = await self.run(*listing(labels))
        if not done.ok:
            raise StartFailed(f"{self.engine.name} did not list its containers: {words(done.errors)}")
        return done.output.decode().split()

    async def remove(self, names: Sequence[str]) -> str:
        """Kill and remove containers, those that are not there too. What went wrong, or ""."""
        error = ""
        for _ in range(REMOVALS):
            try:
                done = await self.run(*removal(self.engine.name), *names, limit=SLOW)
            except StartFailed as failure:
                return str(failure)
            if done.ok:
                return ""
            error = words(done.errors)
        return error

    async def limit_cpus(self, name: str, cpus: float) -> str:
        """From now on it gets ``cpus`` processors. What went wrong, or ""."""
        try:
            done = await self.run("update", "--cpus", f"{cpus:g}", name)
        except StartFailed as failure:
            return str(failure)
        return "" if done.ok else words(done.errors)


def listing(labels: Sequence[str]) -> list[str]:
    """The arguments that list containers with all ``labels``. Pure."""
    return ["ps", "--all", "--quiet", "--no-trunc", *(f"--filter=label={label}" for label in labels)]


def removal(name: Name) -> list[str]:
    """The arguments that kill and remove containers, named after them. Pure."""
    return ["rm", "--force", "--volumes", *(["--time", "0", "--ignore"] if name == "podman" else [])]


class _State(msgspec.Struct, rename="pascal"):
    running: bool
    pid: int


class _Bound(msgspec.Struct, rename="pascal"):
    host_port: str


class _Network(msgspec.Struct, rename="pascal"):
    ports: dict[str, list[_Bound] | None] | None = None


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State
    network_settings: _Network


def facts(output: bytes) -> Facts | None:
    """What ``container inspect`` says about a container; None when it does not run. Pure."""
    try:
        (found,) = msgspec.json.decode(output, type=list[_Inspected])
        bound = found.network_settings.ports or {}
        ports = {int(port.partition("/")[0]): int(at[0].host_port) for port, at in bound.items() if at}
    except (msgspec.DecodeError, ValueError):
        return None
    return Facts(found.state.pid, ports) if found.state.running and found.state.pid else None


def words(errors: str) -> str:
    """The last line an engine wrote that says something. Pure."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("Run 'docker")]
    said = lines[-1] if lines else "it said nothing"
    for prefix in ("docker: ", "Error: ", "Error response from daemon: "):
        said = said.removeprefix(prefix)
    return said


async def choose(keeper: Keeper, wanted: str) -> Engine:
    """The engine for ``wanted`` ("auto", "podman" or "docker"). Raises LaunchMissing with what is wrong with each."""
    refused: list[str] = []
    for name in ORDER:
        if wanted in ("auto", name):
            program = shutil.which(name)
            if program is None:
                refused.append(f"{name} is not installed")
                continue
            found = await _asked(keeper, name, program)
            if isinstance(found, Engine):
                reason = "; ".join(refused) or 'engine = "auto" takes it first'
                return msgspec.structs.replace(found, why=reason if wanted == "auto" else f'engine = "{name}"')
            refused.append(f"{name} does not answer: {found}")
    raise LaunchMissing(f"There is no container engine: {'; '.join(refused)}. To have one, {INSTALL}.", command=wanted)


async def _asked(keeper: Keeper, name: Name, program: str) -> Engine | str:
    """The engine behind ``program``, or why it cannot be used."""
    try:
        argv = (program, "info", "--format", "{{json .}}")
        done = await command.run(keeper, argv, environment(), limit=QUICK)
    except TimeoutError:
        return f"no answer within {QUICK:g} s"
    except OSError as error:
        return str(error)
    if not done.ok:
        return words(done.errors)
    try:
        return podman(program, done.output) if name == "podman" else docker(program, done.output)
    except (msgspec.DecodeError, ValueError) as error:
        return f"its answer is not understood: {error}"


class _Security(msgspec.Struct):
    rootless: bool


class _Host(msgspec.Struct, rename="camel"):
    security: _Security
    cgroup_version: str
    cgroup_controllers: list[str] | None = None
    service_is_remote: bool = False


class _Version(msgspec.Struct, rename="pascal"):
    version: str


class _PodmanInfo(msgspec.Struct):
    host: _Host
    version: _Version


_CONTROLLERS = {"memory": "memory", "pids": "pids", "cpus": "cpu"}


def podman(program: str, said: bytes) -> Engine:
    """From what ``podman info`` says. Pure. Raises msgspec.DecodeError."""
    info = msgspec.json.decode(said, type=_PodmanInfo)
    host, version = info.host, info.version.version
    rootless = host.security.rootless
    # Without root a cgroup of version 1 cannot be made, whatever the engine lists.
    usable = [] if rootless and host.cgroup_version == "v1" else host.cgroup_controllers or []
    return Engine(
        name="podman",
        program=program,
        version=version,
        rootless=rootless,
        local=not host.service_is_remote,
        ignored=tuple(limit for limit, needs in _CONTROLLERS.items() if needs not in usable),
        updates=tuple(map(int, version.split(".")[:2])) >= UPDATES,
    )


class _DockerInfo(msgspec.Struct, rename="pascal"):
    server_version: str = ""
    server_errors: list[str] = []
    memory_limit: bool = False
    pids_limit: bool = False
    cpu_cfs_quota: bool = False
    security_options: list[str] | None = None
    name: str = ""


def docker(program: str, said: bytes) -> Engine | str:
    """From what ``docker info`` says, or why nobody answered it. Pure. Raises msgspec.DecodeError."""
    info = msgspec.json.decode(said, type=_DockerInfo)
    if info.server_errors:
        return info.server_errors[0]
    enforced = {"memory": info.memory_limit, "pids": info.pids_limit, "cpus": info.cpu_cfs_quota}
    return Engine(
        name="docker",
        program=program,
        version=info.server_version,
        rootless="name=rootless" in (info.security_options or ()),
        local=info.name == os.uname().nodename,
        ignored=tuple(limit for limit, able in enforced.items() if not able),
    )
