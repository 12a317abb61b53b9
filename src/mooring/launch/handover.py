"""How secret values get from here into a container, without passing through a command line.

Podman keeps them as its own secrets until the server answers. Docker has none: variables go through a pipe that its
program reads as an environment file, files are in memory (tmpfs), readable for nobody else on this machine.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from mooring.config.plan import SecretRef
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.guards import Secrets
from mooring.launch.kept import finish
from mooring.launch.runtime import FILES, Runtime, remove_folder

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
    given = {variable: ref for variable, ref in refs.items() if variable in values}
    way = _podman if runtime.engine.name == "podman" else _docker
    if not given:
        yield Handover(Secrets())
        return
    async with way(runtime, name, given, values) as ready:
        yield ready


@asynccontextmanager
async def _podman(
    runtime: Runtime, name: str, refs: Mapping[str, SecretRef], values: Mapping[str, str]
) -> AsyncGenerator[Handover]:
    instance = name.rpartition("-")[2]
    stored = {variable: f"{runtime.prefix}-{instance}-{number}" for number, variable in enumerate(refs)}
    ready = Handover(
        Secrets(
            stored={variable: stored[variable] for variable, ref in refs.items() if not ref.as_file},
            stored_files={variable: stored[variable] for variable, ref in refs.items() if ref.as_file},
        )
    )
    try:
        for variable, secret in stored.items():
            ready.stored = (*ready.stored, secret)
            done = await runtime.commands.run("secret", "create", secret, "-", stdin=values[variable].encode())
            if not done.ok:
                raise StartFailed(f"podman did not take the secret {variable} (exit code {done.code}).")
        yield ready
    finally:
        await finish(forget(runtime, ready))


async def forget(runtime: Runtime, ready: Handover) -> None:
    """Have Podman forget what it kept; the container has it. May be called again."""
    stored, ready.stored = ready.stored, ()
    if stored:
        await runtime.commands.run("secret", "rm", *stored)


@asynccontextmanager
async def _docker(
    runtime: Runtime, name: str, refs: Mapping[str, SecretRef], values: Mapping[str, str]
) -> AsyncGenerator[Handover]:
    variables = {variable: values[variable] for variable, ref in refs.items() if not ref.as_file}
    files = {variable: values[variable] for variable, ref in refs.items() if ref.as_file}
    for variable, value in variables.items():
        if "\n" in value or "\r" in value:
            raise NoLauncher(
                f'Docker cannot take the secret {variable}, which has several lines, as a variable: as = "file"'
            )
    if files and not (runtime.engine.local and FILES.is_dir()):
        raise NoLauncher('Docker runs elsewhere than here: secrets with as = "file" cannot get there')
    folder = Path(tempfile.mkdtemp(prefix=f"{runtime.prefix}-", dir=FILES)) if files else None
    pipe = _filled(variables) if variables else -1
    try:
        mounted: dict[str, str] = {}
        if folder is not None:
            for number, (variable, value) in enumerate(files.items()):
                file = folder / str(number)
                file.write_text(value)
                file.chmod(0o444)  # whoever the server runs as; the folder lets nobody else in
                mounted[variable] = str(file)
        yield Handover(Secrets(files=mounted, env_file=pipe >= 0), (pipe,) if pipe >= 0 else ())
    finally:
        if pipe >= 0:
            os.close(pipe)
        if folder is not None:
            remove_folder(folder)


def _filled(variables: Mapping[str, str]) -> int:
    """The reading end of a pipe that holds ``variables`` as an environment file. Raises StartFailed."""
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
