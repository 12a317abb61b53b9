"""The launcher of commands: one process in the keeper, its pipes or its URL, its stderr, its bounded end.

Called through ``launch.base.Launcher``. Who closes what: the pipes of ``endpoint`` belong to whoever takes them, from
the moment the block is entered; that one closes them before the block is left, which is the end of file that asks the
server to go. Everything else (stderr, the process, its descendants) is closed and ended here. It never speaks MCP.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from mooring.config.plan import Launch, Process, Variant
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.base import Pipes
from mooring.launch.environment import child_environment, find_command
from mooring.launch.http_process import ListeningProcess, free_port, with_port
from mooring.launch.kept import Keeper, Kept, finish
from mooring.launch.stderr import StderrTail
from mooring.nouns import InstanceKey


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

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

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
        if launch.port is not None:
            async with self._listening(variant, launch, secrets) as launched:
                yield launched
            return
        kept = await self._spawn(variant.server, launch, secrets)
        stderr = StderrTail(kept.stderr_fd)
        try:
            yield LaunchedProcess(kept, stderr)
        finally:
            await finish(_end(kept, variant.timeouts.close / 2))
            stderr.close()

    @asynccontextmanager
    async def _listening(
        self, variant: Variant, launch: Process, secrets: Mapping[str, str]
    ) -> AsyncGenerator[ListeningProcess]:
        """With ``port``: the end of its stdin tells most such servers nothing, so SIGTERM follows at once."""
        port = free_port()
        launch = with_port(launch, port)
        kept = await self._spawn(variant.server, launch, secrets)
        launched = ListeningProcess(kept, launch, port)
        try:
            yield launched
        finally:
            launched.hang_up()
            await finish(kept.end(variant.timeouts.close))
            launched.stderr.close()

    async def _spawn(self, server: str, launch: Process, secrets: Mapping[str, str]) -> Kept:
        declared = {name: secrets[name] for name in launch.secrets if name in secrets}  # whatever else it is handed
        env = child_environment(launch.env, declared, os.environ)
        cwd = working_folder(launch.cwd, env)
        program = find_command(launch.argv[0], env, cwd)
        try:
            return await self._keeper.spawn((program, *launch.argv[1:]), env, cwd)
        except (OSError, ValueError) as error:
            reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else error
            raise StartFailed(
                f'Server "{server}" did not start: {reason}. Command: {shlex.quote(program)}, in {shlex.quote(cwd)}.',
                server=server,
                phase="start",
            ) from error


def unsupported(launch: Launch) -> str:
    """Why this launcher cannot start it, "" when it can. Pure."""
    if not isinstance(launch, Process):
        return "it is not a command"
    if launch.sandbox:
        return "sandbox is not supported yet"
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
