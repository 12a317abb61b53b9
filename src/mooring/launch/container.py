"""The launcher of images: one container, attached to the engine's program, which runs in the keeper like any process.

Called through ``launch.base.Launcher``. The program's pipes are the container's; its end is the container's end. What
does not end by itself is killed and removed by the engine. When the server answers it is told (``answered``): from then
on it has the processors it may have, and the engine holds none of its secrets. It never speaks MCP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import ClassVar

import msgspec

from mooring.config.plan import Variant
from mooring.config.plan_servers import Container
from mooring.errors import LaunchMissing, MooringError, NoLauncher, PullFailed, StartFailed, TimedOut
from mooring.launch.base import Pipes, Report, Tail, Url, unheard
from mooring.launch.engine import ENGINE_FAILED, Commands, Engine, Facts, choose
from mooring.launch.guards import LOOPBACK, published, run_arguments
from mooring.launch.handover import Handover, forget, handover
from mooring.launch.http_process import Output
from mooring.launch.kept import Keeper, Kept
from mooring.launch.obstacles import (
    elsewhere,
    entered,
    explained,
    missing_image,
    sources,
    unenforced,
    unreachable,
    unsupported,
)
from mooring.launch.runtime import Runtime, remembered
from mooring.launch.stderr import StderrTail
from mooring.nouns import InstanceKey
from mooring.tasks import Tasks, finish

LOOK = 0.02
"""Seconds between two looks whether a container runs."""
LINGER = 10.0
"""Seconds for the engine's own helpers to tidy up behind a container that has ended."""
TIDY = 5.0
"""Seconds for the engine to tidy up behind a server that has ended before its program is asked to end, too."""
LATE = 1.0
"""Seconds after which a container is looked for again whose start was cut off: the engine may have gone on with it."""
SETTLE = 1.0
"""Seconds after the first answer for what is no hurry: the call that waited for the start comes first."""
LAST_WORD = 2.0
"""Seconds for the exit code of a container that stopped talking."""
WARMING = 2
"""Images that are got at the same time after boot."""

_log = logging.getLogger("mooring")


class LaunchedContainer:
    """A running container. Fulfils ``launch.base.Launched`` and ``launch.base.Settling``.

    ``pid`` is that of the engine's program here, which lives as long as the container."""

    def __init__(
        self, kept: Kept, engine: Engine, name: str, endpoint: Pipes | Url, stderr: Tail, answered: Callable[[], None]
    ) -> None:
        self.endpoint = endpoint
        self.pid: int | None = kept.pid
        self.container: str | None = f"{engine.name}:{name}"
        self.stderr = stderr
        self.exited = kept.exited
        self.signal = kept.signal
        self.answered = answered


class ContainerLauncher:
    """Starts images with Podman or Docker."""

    kinds: ClassVar[tuple[str, ...]] = ("container",)

    def __init__(
        self, keeper: Keeper, wanted: str, installation: str, state: Path | None, report: Report = unheard
    ) -> None:
        """``wanted``: ``gateway.engine``; ``installation`` and ``state``: see ``launch.runtime``."""
        self._report = report
        self._keeper = keeper
        self._wanted = wanted
        self._installation = installation
        self._state = state
        self._runtime: Runtime | None = None
        self._choosing = asyncio.Lock()

    async def runtime(self) -> Runtime:
        """The engine, chosen and swept once. Raises LaunchMissing and StartFailed."""
        async with self._choosing:
            if self._runtime is None:
                engine = await choose(self._keeper, self._wanted)
                runtime = Runtime(self._keeper, engine, self._installation, self._state)
                await runtime.sweep()
                _log.info("containers run with %s: %s", engine, engine.why)
                if engine.ignored:
                    _log.warning("%s", unenforced(engine))
                self._runtime = runtime
            return self._runtime

    async def look_after(self, variants: Iterable[Variant]) -> None:
        """After boot and reload, in the background: end what earlier daemons left, and have the images ready. Raises
        nothing: what fails here fails again, and is told, when a server is wanted."""
        launches = {v.launch.image: v for v in variants if isinstance(v.launch, Container) and not v.unavailable}
        engines = remembered(self._state) if self._state is not None and self._runtime is None else []
        try:
            if launches:
                await self.runtime()
        except (LaunchMissing, StartFailed) as error:
            _log.warning("%s", error)
            return
        # Without an engine nothing of ours can be started meanwhile; with one, the other is in nobody's way.
        async with self._choosing if self._runtime is None else nullcontext():
            for name in engines:
                if self._runtime is None or name != self._runtime.engine.name:
                    await self._sweep_other(name)
        permits = asyncio.Semaphore(WARMING)
        await asyncio.gather(*(self._warm(variant, permits) for variant in launches.values()))

    async def _sweep_other(self, name: str) -> None:
        """An engine that was used once, and is not now."""
        try:
            engine = await choose(self._keeper, name)
            runtime = Runtime(self._keeper, engine, self._installation, None)
            await runtime.sweep(alone=self._runtime is None)
        except (LaunchMissing, StartFailed) as error:
            _log.warning("containers of an earlier daemon may still run with %s: %s", name, error)

    async def _warm(self, variant: Variant, permits: asyncio.Semaphore) -> None:
        assert isinstance(variant.launch, Container)
        if variant.launch.pull == "always":
            return  # at each start, then
        try:
            async with permits, asyncio.timeout(variant.timeouts.pull):
                await self._got(variant, variant.launch, _nothing, _nothing)
        except (MooringError, TimeoutError) as error:
            _log.warning("%s", str(error) or f'Server "{variant.server}": its image could not be had in time')

    async def _got(
        self, variant: Variant, launch: Container, phase: Callable[[str], None], said: Callable[[str], None]
    ) -> Runtime:
        """The engine, with the image. Raises LaunchMissing, PullFailed and StartFailed."""
        try:
            runtime = await self.runtime()
            await runtime.images.get(launch, phase, said)
        except PullFailed as error:
            message = f'Server "{variant.server}": {error}{elsewhere(launch)}'
            raise PullFailed(message, server=variant.server) from None
        except LaunchMissing as error:
            raise LaunchMissing(f"{error}{elsewhere(launch)}", **error.details) from None
        return runtime

    async def prepare(self, variant: Variant, phase: Callable[[str], None], said: Callable[[str], None]) -> None:
        """See ``launch.base.Preparing``. Raises LaunchMissing, PullFailed and StartFailed."""
        runtime = await self._got(variant, _container(variant), phase, said)
        if runtime.engine.ignored:
            self._report("limits.ignored", variant, {"reason": unenforced(runtime.engine)})

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[LaunchedContainer]:
        """See ``launch.base.Launcher``. Leaving takes at most ``timeouts.close`` seconds and the time the engine needs
        to kill and remove. Raises NoLauncher, LaunchMissing, PullFailed and StartFailed."""
        launch, runtime = _container(variant), await self.runtime()
        if why_not := unreachable(launch, runtime.engine):
            raise NoLauncher(f'Server "{variant.server}" cannot be started: {why_not}.', server=variant.server)
        if runtime.engine.local and (path := _missing(launch.volumes)):
            raise StartFailed(f'Server "{variant.server}": its volume {path} does not exist. Make it first.')
        await runtime.settle(variant.server, key)
        async with AsyncExitStack() as stack:
            name = stack.enter_context(runtime.name(variant.server, key))
            given = await stack.enter_async_context(handover(runtime, name, launch.secrets, secrets))
            try:
                kept = await self._spawn(runtime, variant.server, name, launch, given)
            except asyncio.CancelledError:  # its program may run by now, though nobody was told
                await finish(_cut_off(runtime, name))
                raise
            tail = _tail(kept, launch)
            stack.callback(tail.close)

            life = _Life(runtime, name, kept, launch)

            async def end() -> None:
                await finish(life.end(variant.timeouts.close))

            stack.push_async_callback(end)
            try:
                endpoint = await self._endpoint(stack, variant, runtime, name, kept, launch)
                tasks = await stack.enter_async_context(Tasks())

                async def settle() -> None:
                    if reason := await life.settle(given):
                        self._report("limits.ignored", variant, {"reason": reason})
                    await runtime.tidy()

                def answered() -> None:
                    life.answered = True
                    tasks.create_task(settle())

                yield LaunchedContainer(kept, runtime.engine, name, endpoint, tail, answered)
            except (StartFailed, TimedOut) as error:
                await asyncio.wait((kept.exited,), timeout=LAST_WORD)
                code = kept.exited.result() if kept.exited.done() else None
                if missing_image(code, tail.text()):
                    runtime.images.forget(launch.image)
                raise explained(error, launch, runtime.engine, code, tail.text()) from None

    async def _spawn(self, runtime: Runtime, server: str, name: str, launch: Container, given: Handover) -> Kept:
        image = runtime.images.name(launch.image)
        labels = runtime.labels(server, name)
        arguments = run_arguments(runtime.engine, name, labels, launch, image, given.secrets)
        try:
            argv = (runtime.engine.program, *arguments)
            return await self._keeper.spawn(argv, runtime.commands.env, "/", given.descriptors)
        except (OSError, ValueError) as error:
            raise StartFailed(f"{runtime.engine.program} could not be run: {error}", phase="start") from error

    async def _endpoint(
        self, stack: AsyncExitStack, variant: Variant, runtime: Runtime, name: str, kept: Kept, launch: Container
    ) -> Pipes | Url:
        pipes = Pipes(reader=kept.stdout_fd, writer=kept.stdin_fd)
        if launch.port is None and not entered(launch):
            return pipes
        try:
            facts = await _running(runtime.commands, name, kept, published(launch))
            path = await self._opened(stack, variant, facts, kept, launch) if entered(launch) else None
        except BaseException:
            if launch.port is None:  # nobody took the pipes over
                os.close(pipes.reader)
                os.close(pipes.writer)
            raise
        if launch.port is None:
            return pipes
        for port in launch.ports:
            _log.info("%s: port %d is on %s:%d", name, port, LOOPBACK, facts.ports[port])
        port = facts.ports[launch.port] if path is None else launch.port
        return Url(f"http://{LOOPBACK}:{port}{launch.path}", transport=launch.transport, socket=path)

    async def _opened(
        self, stack: AsyncExitStack, variant: Variant, facts: Facts, kept: Kept, launch: Container
    ) -> str | None:
        """Open what its network allows; for HTTP the path of a socket that leads to its port. Raises StartFailed."""
        from mooring.launch.door import door
        from mooring.launch.egress_proxy import egress, proxy_port
        from mooring.launch.netns import network_of

        def denied(peer: str, reason: str) -> None:
            self._report("egress.denied", variant, {"peer": peer, "reason": reason})

        network = stack.enter_context(network_of(facts.pid))
        if kept.exited.done():  # or the number could be somebody else's
            raise StartFailed("The container ended while its network was set up")
        if isinstance(launch.network, tuple):
            await stack.enter_async_context(egress(network, launch.network, denied, proxy_port(launch.port)))
        return None if launch.port is None else await stack.enter_async_context(door(network, launch.port))


async def _running(commands: Commands, name: str, kept: Kept, ports: Iterable[int]) -> Facts:
    """The facts of a container, once it runs. Raises StartFailed when it ended instead."""
    while not kept.exited.done():
        facts = await commands.inspected(name)
        if facts is not None and all(port in facts.ports for port in ports):
            return facts
        await asyncio.wait((kept.exited,), timeout=LOOK)
    raise StartFailed(f"The container {name} ended at once (exit code {kept.exited.result()})")


class _Life(msgspec.Struct):
    """One container, from the start of the engine's program to its removal."""

    runtime: Runtime
    name: str
    kept: Kept
    launch: Container
    answered: bool = False

    async def settle(self, given: Handover) -> str:
        """The server answers: what was for the start only is over. Why its limit does not hold, or ""."""
        await asyncio.sleep(SETTLE)
        await forget(self.runtime, given)
        engine, cpus = self.runtime.engine, self.launch.cpus
        if not cpus or "cpus" in engine.ignored or not engine.updates:
            return ""
        error = await self.runtime.commands.limit_cpus(self.name, cpus)
        if not error or self.kept.exited.done():
            return ""
        return f"{engine.name} could not limit the processors of {self.name} to {cpus:g}: {error}"

    async def end(self, close: float) -> None:
        """The end of its stdin, then SIGTERM, which the engine's program passes on, then the engine's removal."""
        if self.launch.port is None:
            close /= 2
            await self._exited(close)
            if not self.kept.exited.done() and self.answered and self.runtime.ended(self.kept):
                await self._exited(TIDY)  # an engine that tidies up behind many takes its time
        else:
            os.close(self.kept.stdin_fd)
        by_itself = self.kept.exited.done()
        self.kept.signal(signal.SIGTERM)
        await self._exited(close)
        code = self.kept.exited.result() if self.kept.exited.done() else None
        cut_off = (code is not None and code < 0) or not (by_itself or self.answered)
        if cut_off:
            await _cut_off(self.runtime, self.name)
        elif code is None or code == ENGINE_FAILED:
            await self.runtime.remove(self.name)
        await self.kept.end(LINGER, ask=False)

    async def _exited(self, limit: float) -> None:
        await asyncio.wait((self.kept.exited,), timeout=limit)


async def _cut_off(runtime: Runtime, name: str) -> None:
    """Nobody knows what the engine was at, and whether it goes on."""
    await runtime.remove(name)
    await asyncio.sleep(LATE)
    await runtime.remove(name)


def _container(variant: Variant) -> Container:
    """Raises NoLauncher for what no engine can start."""
    launch = variant.launch
    why_not = unsupported(launch)
    if why_not or not isinstance(launch, Container):
        raise NoLauncher(f'Server "{variant.server}" cannot be started: {why_not}.', server=variant.server)
    return launch


def _tail(kept: Kept, launch: Container) -> StderrTail | Output:
    return StderrTail(kept.stderr_fd) if launch.port is None else Output(kept.stdout_fd, kept.stderr_fd)


def _missing(volumes: Iterable[str]) -> str:
    """The first source that is a path and not there: Docker would make a folder of it, which belongs to root."""
    return next((path for path in sources(volumes) if not os.path.exists(path)), "")


def _nothing(_: str) -> None:
    """Nobody listens."""
