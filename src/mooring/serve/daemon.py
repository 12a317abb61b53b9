"""The daemon process: one a home. Locks the home, opens the parts, serves until it is told to stop.

Started by ``mooring up``. Leaves nothing behind: what it opened it closes in reverse order, bounded; what it could not
close, the keeper ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

import msgspec

from mooring.config.home import Home
from mooring.config.plan import REGISTRY
from mooring.config.secrets import Secrets
from mooring.errors import AlreadyRunning, ConfigError, MooringError
from mooring.launch.kept import Keeper
from mooring.launch.start import Started
from mooring.nouns import NewKey, Principal
from mooring.observe.redact import Redactor
from mooring.observe.sinks import open_log
from mooring.serve import control, reload
from mooring.serve.app import App
from mooring.serve.front import fronts
from mooring.store.sqlite import SqliteStore
from mooring.tasks import Tasks

SETTLE = 0.02
"""Seconds from readiness to what nobody waits for."""

_log = logging.getLogger("mooring")


@contextmanager
def locked(home: Home) -> Generator[None, None, None]:
    """This home belongs to this process as long as the block lasts. Raises AlreadyRunning."""
    descriptor = os.open(home.pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode().strip() or "unknown"
            raise AlreadyRunning(
                f"A Mooring daemon (pid {owner}) already uses {home.config}. Stop it with: mooring stop", pid=owner
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def running(home: Home, file: str, started: Started | None = None) -> AsyncGenerator[App, None]:
    """The daemon's parts with store, control socket and HTTP fronts. Raises ConfigError, StoreError, OSError."""
    async with AsyncExitStack() as stack:
        redact = Redactor()
        open_log(None, redact)
        keeper = await stack.enter_async_context(Keeper(started))
        store = await stack.enter_async_context(SqliteStore(home.store_file))
        secrets = Secrets(home, found=redact.add)
        app = App(reload.Configuration(file, secrets, home), store, secrets, keeper, redact)
        await app.start(stack)
        await stack.enter_async_context(fronts(app))
        serving = control.serving(home.socket, lambda: app.verbs, app.relay, partial(_attach, app))
        await stack.enter_async_context(serving)
        yield app


async def run(config: str | None, started: Started | None = None) -> int:
    """Run until SIGINT, SIGTERM or ``mooring stop``; SIGHUP reloads. Raises MooringError when it cannot start."""
    home = Home.locate()
    home.prepare()
    file = os.path.abspath(config) if config else home.config_file
    with locked(home):
        async with running(home, file, started) as app, Tasks() as tasks:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, app.stopping.set)
            loop.add_signal_handler(signal.SIGHUP, lambda: tasks.create_task(_reload(app)))
            app.look()
            tasks.create_task(_settle(app, tasks))
            async with reload.watching(lambda: app.plan.files, app.reload, app.started_at):
                await app.stopping.wait()
            await app.relay.stop()  # while the fronts are open: whoever waits gets an answer
    return 0


async def _settle(app: App, tasks: Tasks) -> None:
    """Whatever a boot can do without, once those who waited for it have been served."""
    await asyncio.sleep(SETTLE)
    from mooring.access.expiry import expiring
    from mooring.serve import banner, upstream

    _say(banner.banner(app.plan, app.endpoint, await _first_key(app)))
    tasks.create_task(_tell_tools(app))
    tasks.create_task(expiring(app.keys))
    tasks.create_task(_export(app, tasks))
    await app.remember()
    upstream.prepare()
    gc.freeze()  # modules and plan are never garbage; each full collection would walk them
    gc.enable()  # ``cli.up`` turned it off
    await _let_go(app)


async def _let_go(app: App) -> None:
    """What the store keeps of servers that have been in no plan for a month goes. Raises StoreError."""
    known = msgspec.json.encode([*app.plan.variants]).decode()
    await app.store.run("let_go", known=known, now=time.time())


async def _export(app: App, tasks: Tasks) -> None:
    """Tell other programs what there is, from now on and after every change."""
    from mooring.plugins.manager import exporters
    from mooring.serve.exports import Exports  # nobody waits for it

    found, problems = exporters(app.plugins, app.context)
    for problem in problems:
        _log.error("%s", problem.message)
    exports = Exports(found, app.offer, app.events)
    app.on_applied.append(exports.applied)
    exports.start(tasks)


async def _tell_tools(app: App) -> None:
    """Once the servers have been looked at, tell which tools there are."""
    from mooring.serve import banner

    await app.looks.done()
    _say(banner.tools({name: app.views.table(name) for name in app.plan.workspaces}))


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _reload(app: App) -> None:
    await app.reload()


async def _first_key(app: App) -> NewKey | None:
    """A key for the first workspace when this home never had one and somebody reads what is printed."""
    if not _read() or app.keys.rows() or not app.plan.workspaces:
        return None
    return await app.keys.create(next(iter(app.plan.workspaces)), "first")


def _read() -> bool:
    """Whether stdout goes to whoever started this: a terminal, a pipe, a file of theirs. A verb that starts a daemon
    throws its stdout away, and a service manager gives it a socket to its journal, where no key may appear."""
    status = os.fstat(1)
    nothing = stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    return not nothing and not stat.S_ISSOCK(status.st_mode)


def _attach(app: App, workspace: str, registry: bool) -> Principal:
    """A stdio shim speaks for the local user, who owns this home."""
    workspace = workspace or _only(app)
    if workspace not in app.plan.workspaces:
        known = ", ".join(app.plan.workspaces) or "none"
        raise MooringError(f'There is no workspace "{workspace}". Workspaces: {known}.')
    if registry and not any(mount.variant == REGISTRY for mount in app.plan.workspaces[workspace].mounts):
        raise ConfigError(
            f'The workspace "{workspace}" does not offer the registry. To let its agents add servers, write registry = '
            f"true in [workspaces.{workspace}]; no server there may have the prefix registry."
        )
    return Principal(f"local:{workspace}", workspace)


def _only(app: App) -> str:
    """The workspace that is meant when none is named."""
    names = list(app.plan.workspaces)
    return names[0] if len(names) == 1 else "default"
