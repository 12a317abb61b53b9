"""How secret values get from here into a container, without passing through a command line.

Variables: Podman keeps them as its own secrets until the server answers; Docker, which has none, reads them from a pipe
as an environment file. Files are in memory (tmpfs), readable for nobody else on this machine, and are mounted.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from mooring.config.plan_servers import SecretRef
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.command import STDIN
from mooring.launch.guards import Secrets
from mooring.launch.runtime import FILES, Runtime, instance_of, remove_folder
from mooring.tasks import finish

PIPE = 1 << 20
"""Bytes of variables that Docker can be given; as much as a pipe holds without privileges."""


class Handover(msgspec.Struct):
    """What is handed over: how ``run`` is told, and the descriptors its program needs."""

    secrets: Secrets
    descriptors: tuple[int, ...] = ()
    stored: tuple[str, ...] = ()
    """Names under which Podman keeps them now."""


@asynccontextmanager
async def handover(
    runtime: Runtime, name: str, refs: Mapping[str, SecretRef], values: Mapping[str, str]
) -> AsyncGenerator[Handover]:
    """Have ``values`` ready for the container ``name``. Leaving the block leaves none of them anywhere.

    Raises StartFailed, and NoLauncher for what cannot be handed over.
    """
    given = {variable: values[variable] for variable in refs if variable in values}  # whatever else there is
    variables = {variable: value for variable, value in given.items() if not refs[variable].as_file}
    files = {variable: value for variable, value in given.items() if refs[variable].as_file}
    async with AsyncExitStack() as stack:
        mounted = stack.enter_context(_in_memory(runtime, files)) if files else {}
        if not variables:
            yield Handover(Secrets(files=mounted))
        elif runtime.engine.name == "podman":
            prefix = f"{runtime.prefix}-{instance_of(name)}"
            stored = {variable: f"{prefix}-{number}" for number, variable in enumerate(variables)}
            ready = Handover(Secrets(stored=stored, files=mounted))

            async def end() -> None:
                await finish(forget(runtime, ready))

            stack.push_async_callback(end)
            await _store(runtime, ready, variables)
            yield ready
        else:
            pipe = _filled(variables)
            stack.callback(os.close, pipe)
            yield Handover(Secrets(files=mounted, env_file=True), (pipe,))


async def _store(runtime: Runtime, ready: Handover, variables: Mapping[str, str]) -> None:
    for variable, secret in ready.secrets.stored.items():
        value = variables[variable].encode()
        if len(value) > STDIN:
            raise StartFailed(f'The secret {variable} is larger than {STDIN >> 10} KiB; use as = "file".')
        ready.stored = (*ready.stored, secret)
        done = await runtime.commands.run("secret", "create", secret, "-", stdin=value)
        if not done.ok:
            raise StartFailed(f"Podman did not take the secret {variable} (exit code {done.code}).")


async def forget(runtime: Runtime, ready: Handover) -> None:
    """Have Podman forget what it kept; the container has it. May be called again."""
    if ready.stored:
        await runtime.commands.run("secret", "rm", *ready.stored)
        ready.stored = ()  # not before: a cancellation in between leaves the rest to the end of the block


@contextmanager
def _in_memory(runtime: Runtime, files: Mapping[str, str]) -> Generator[dict[str, str]]:
    """Variable to a file that holds its value. Raises NoLauncher."""
    if not (runtime.engine.local and FILES.is_dir()):
        raise NoLauncher('The engine runs elsewhere than here: secrets with as = "file" cannot get there.')
    folder = Path(tempfile.mkdtemp(prefix=f"{runtime.prefix}-", dir=FILES))
    try:
        for number, value in enumerate(files.values()):
            file = folder / str(number)
            file.write_text(value)
            file.chmod(0o444)  # whoever the server runs as; the folder lets nobody else in
        yield {variable: str(folder / str(number)) for number, variable in enumerate(files)}
    finally:
        remove_folder(folder)


def _filled(variables: Mapping[str, str]) -> int:
    """The reading end of a pipe that holds ``variables`` as an environment file. Raises StartFailed, NoLauncher."""
    for variable, value in variables.items():
        if "\n" in value or "\r" in value:
            raise NoLauncher(f'Docker takes no variable of several lines: give the secret {variable} as = "file".')
    content = "".join(f"{name}={value}\n" for name, value in variables.items()).encode()
    reader, writer = os.pipe()
    try:
        if sys.platform == "linux":
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE)
        os.set_blocking(writer, False)
        if os.write(writer, content) < len(content):
            raise StartFailed(f'The secrets are larger than {PIPE >> 10} KiB together; use as = "file".')
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return reader
