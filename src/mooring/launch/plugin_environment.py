"""The Python environment of a plugin's server on this machine: made once, for those requirements, and then found.

Used by ``launch.process`` before a start. Its folder is named after all that goes in; a marker in it, written last,
says that it is whole, so that one whose making was cut off is made anew.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping

from mooring.config.plan_servers import Environment
from mooring.errors import StartFailed
from mooring.launch import command
from mooring.launch.environment import child_environment
from mooring.launch.kept import Keeper
from mooring.tasks import finish

MARKER = "mooring-ready"
QUESTION = 20.0
"""Seconds to ask the system which packages it has."""
_INSTALLED = b"install ok installed"

_locks: dict[str, asyncio.Lock] = {}
"""By folder: several servers may want the same one at the same time."""


async def ready(
    keeper: Keeper, environment: Environment, server: str, phase: Callable[[str], None], said: Callable[[str], None]
) -> None:
    """Have it. ``phase`` is told "resolve" if it has to be made, ``said`` hears the installer. Raises StartFailed, with
    what the installer said; limited by whoever waits."""
    await _check_packages(keeper, environment.packages, server)
    if not environment.folder or _whole(environment):
        return
    phase("resolve")
    async with _locks.setdefault(environment.folder, asyncio.Lock()):
        if _whole(environment):
            return
        said(f"[mooring] making an environment for {', '.join(environment.requirements)}")
        # To its end, whoever gives up: it would go on under the hands of who makes it next.
        await finish(asyncio.to_thread(shutil.rmtree, environment.folder, True))
        os.makedirs(os.path.dirname(environment.folder), mode=0o700, exist_ok=True)
        for argv in steps(environment):
            await _step(keeper, argv, server, said)
        _complete(environment)


def _whole(environment: Environment) -> bool:
    return os.path.exists(os.path.join(environment.folder, MARKER))


def steps(environment: Environment) -> list[tuple[str, ...]]:
    """The commands that make it: with uv where there is one, which takes a tenth of the time."""
    python = os.path.join(environment.folder, "bin", "python")
    env = child_environment({}, {}, os.environ)
    if uv := shutil.which("uv", path=env["PATH"]):
        return [
            (uv, "venv", "--python", sys.executable, "--no-project", environment.folder),
            (uv, "pip", "install", "--python", python, *environment.requirements),
        ]
    return [
        (sys.executable, "-m", "venv", environment.folder),
        (python, "-m", "pip", "install", "--disable-pip-version-check", *environment.requirements),
    ]


async def _step(keeper: Keeper, argv: tuple[str, ...], server: str, said: Callable[[str], None]) -> None:
    env: Mapping[str, str] = child_environment({}, {}, os.environ)
    try:
        done = await command.run(keeper, argv, env, limit=None, said=said)
    except OSError as error:
        raise StartFailed(f'Server "{server}": {argv[0]} could not be run: {error}', server=server) from None
    if not done.ok:
        why = done.errors.strip() or done.output.decode("utf-8", "replace").strip()[-2000:]
        raise StartFailed(
            f'Server "{server}": what its plugin requires could not be installed. {" ".join(argv)} said:\n{why}',
            server=server,
            phase="resolve",
        )


def _complete(environment: Environment) -> None:
    """Make the plugin's code importable by itself, without anything else that is installed beside it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = os.path.join(environment.folder, "lib", version, "site-packages")
    for name, target in environment.links.items():
        link = os.path.join(packages, name)
        if not os.path.lexists(link):
            os.symlink(target, link)
    with open(os.path.join(environment.folder, MARKER), "w", encoding="utf-8") as marker:
        marker.write("\n".join(environment.requirements))


async def _check_packages(keeper: Keeper, packages: tuple[str, ...], server: str) -> None:
    """Raises StartFailed when the system says that it lacks some; a system that cannot say is believed to have them."""
    asks = shutil.which("dpkg-query")
    if not packages or asks is None:
        return
    missing: list[str] = []
    for package in packages:
        argv = (asks, "--show", "--showformat=${Status}", package)
        try:
            done = await command.run(keeper, argv, child_environment({}, {}, os.environ), limit=QUESTION)
        except TimeoutError:
            what = f"{argv[0]} did not say within {QUESTION:g} s whether {package} is installed"
            raise StartFailed(f'Server "{server}": {what}', server=server, phase="resolve") from None
        if not (done.ok and done.output == _INSTALLED):
            missing.append(package)
    if missing:
        raise StartFailed(
            f'Server "{server}" needs system packages that are not installed: {" ".join(missing)}. As root: '
            f'apt-get install {" ".join(missing)}; or let it run in a container: [plugins] run = "container"',
            server=server,
            phase="resolve",
        )
