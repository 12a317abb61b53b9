"""The launcher of commands: one process in the keeper, its pipes or its URL, its stderr, its bounded end.

Called through ``launch.base.Launcher``. Who closes what: the pipes of ``endpoint`` belong to whoever takes them, from
the moment the block is entered; that one closes them before the block is left, which is the end of file that asks the
server to go. Everything else (stderr, the process, its descendants) is closed and ended here. It never speaks MCP.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from mooring.config.plan import Variant
from mooring.config.plan_servers import Launch, Process
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.base import Pipes, Report, Tail, unheard
from mooring.launch.environment import child_environment, find_command
from mooring.launch.http_process import ListeningProcess, Output, endpoint, free_port, with_port
from mooring.launch.kept import Keeper, Kept
from mooring.launch.stderr import StderrTail
from mooring.nouns import InstanceKey
from mooring.tasks import finish

if TYPE_CHECKING:
    from mooring.launch.packages import Packages
    from mooring.launch.sandbox import Guard


class LaunchedProcess:
    """A running process. Fulfils ``launch.base.Launched``."""

    container: str | None = None

    def __init__(self, kept: Kept, stderr: StderrTail) -> None:
        self.endpoint = Pipes(reader=kept.stdout_fd, writer=kept.stdin_fd)
        self.pid: int | None = kept.pid
        self.stderr = stderr
        self.exited = kept.exited
        self.signal = kept.signal


class ProcessLauncher:
    """Starts commands that speak MCP on stdin and stdout, or HTTP on a port they are told."""

    kinds: ClassVar[tuple[str, ...]] = ("process",)

    def __init__(self, keeper: Keeper, report: Report = unheard) -> None:
        self._keeper = keeper
        self._report = report
        self._fetched: Packages | None = None

    async def prepare(self, variant: Variant, phase: Callable[[str], None], said: Callable[[str], None]) -> None:
        """See ``launch.base.Preparing``: the environment of a plugin's server, the package of one that was added.
        Raises StartFailed, PullFailed and LaunchMissing."""
        launch = variant.launch
        if isinstance(launch, Process) and launch.environment is not None:
            from mooring.launch.plugin_environment import ready  # most servers have none

            await ready(self._keeper, launch.environment, variant.server, phase, said)
        if isinstance(launch, Process) and launch.fetch:
            await self._packages().get(launch.fetch, variant.server, phase, said)

    def _packages(self) -> Packages:
        if self._fetched is None:
            from mooring.launch.packages import Packages  # most servers have none

            self._fetched = Packages(self._keeper)
        return self._fetched

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[LaunchedProcess | ListeningProcess]:
        """See ``launch.base.Launcher``. Leaving takes at most ``timeouts.close`` seconds and the time to kill: half for
        the server to go by itself at the end of its stdin, half from SIGTERM to SIGKILL. A cancellation does not
        shorten it.

        Raises NoLauncher, LaunchMissing and StartFailed.
        """
        launch = variant.launch
        why_not = unsupported(launch)
        if why_not or not isinstance(launch, Process):
            raise NoLauncher(f'Server "{variant.server}" cannot be started: {why_not}.', server=variant.server)
        port = None if launch.port is None else free_port()
        if port is not None:
            launch = with_port(launch, port)
        async with self._guarded(variant, launch, port) as guard:
            kept = await self._spawn(variant.server, launch, secrets, guard)
            way = _talking(kept, guard, variant) if port is None else _listening(kept, guard, variant, launch, port)
            async with way as launched:
                yield launched

    @asynccontextmanager
    async def _guarded(self, variant: Variant, launch: Process, port: int | None) -> AsyncGenerator[Guard | None]:
        if launch.sandbox is None:
            yield None
            return
        from mooring.launch.sandbox import guarded  # most servers have none

        def denied(peer: str, reason: str) -> None:
            self._report("egress.denied", variant, {"peer": peer, "reason": reason})

        def unlimited(reason: str) -> None:
            self._report("limits.ignored", variant, {"reason": reason})

        async with guarded(launch.sandbox, port, denied, unlimited) as guard:
            yield guard

    async def _spawn(self, server: str, launch: Process, secrets: Mapping[str, str], guard: Guard | None) -> Kept:
        declared = {name: secrets[name] for name in launch.secrets if name in secrets}  # whatever else it is handed
        env = child_environment(launch.env, declared, os.environ)
        cwd = working_folder(launch.cwd, env)
        program = find_command(launch.argv[0], env, cwd)
        argv, place = [program, *launch.argv[1:]], cwd
        if guard is not None:
            env = guard.environment(env)
            argv, place = guard.command(argv, env, launch.cwd and cwd), "/"
        try:
            return await self._keeper.spawn(argv, env, place)
        except (OSError, ValueError) as error:
            reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else error
            raise StartFailed(
                f'Server "{server}" did not start: {reason}. Command: {shlex.quote(program)}, in {shlex.quote(cwd)}.',
                server=server,
                phase="start",
            ) from error


@asynccontextmanager
async def _talking(kept: Kept, guard: Guard | None, variant: Variant) -> AsyncGenerator[LaunchedProcess]:
    """A process on stdio, to its end."""
    stderr = StderrTail(kept.stderr_fd)
    try:
        try:
            await _admitted(kept, guard, variant, stderr)
        except BaseException:  # nobody took the pipes over
            os.close(kept.stdin_fd)
            os.close(kept.stdout_fd)
            raise
        yield LaunchedProcess(kept, stderr)
    finally:
        try:
            await finish(_end(kept, variant.timeouts.close / 2))
        finally:
            stderr.close()


@asynccontextmanager
async def _listening(
    kept: Kept, guard: Guard | None, variant: Variant, launch: Process, port: int
) -> AsyncGenerator[ListeningProcess]:
    """With ``port``: the end of its stdin tells most such servers nothing, so SIGTERM follows at once."""
    output = Output(kept.stdout_fd, kept.stderr_fd)
    try:
        try:
            socket = await _admitted(kept, guard, variant, output)
            yield ListeningProcess(kept, output, endpoint(launch, port, socket))
        finally:
            os.close(kept.stdin_fd)  # open and empty until here: some servers take its end for that of their client
            await finish(kept.end(variant.timeouts.close))
    finally:
        output.close()


async def _admitted(kept: Kept, guard: Guard | None, variant: Variant, stderr: Tail) -> str | None:
    """Let a server in a sandbox begin. Raises StartFailed, with the server's name and what was said."""
    if guard is None:
        return None
    try:
        return await guard.admit(kept)
    except StartFailed as error:
        message = f'Server "{variant.server}" did not start: {error}.'
        raise StartFailed(message, server=variant.server, phase="start", stderr=stderr.text()) from None


def unsupported(launch: Launch) -> str:
    """Why this launcher cannot start it, "" when it can. Pure."""
    if not isinstance(launch, Process):
        return "it is not a command"
    if any(ref.as_file for ref in launch.secrets.values()):
        return 'secrets with as = "file" are for containers'
    return ""


def working_folder(declared: str | None, environment: Mapping[str, str]) -> str:
    """The absolute folder a server runs in: the declared one, else the person's home, never where the daemon was."""
    home = environment.get("HOME", "")
    home = home if os.path.isdir(home) else "/"
    return os.path.join(home, os.path.expanduser(declared)) if declared else home


async def _end(kept: Kept, patience: float) -> None:
    """``patience``: seconds after the end of stdin, and again after SIGTERM."""
    await asyncio.wait((kept.exited,), timeout=patience)
    await kept.end(patience)
