"""What ``mooring doctor`` looks at, one function a subject; each yields findings and lets no failure out.

Reads only: starts no server and no daemon, changes no mode.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mooring import __version__
from mooring.cli import configured
from mooring.cli.shapes import Finding
from mooring.cli.trial import program_of
from mooring.config.home import Home
from mooring.config.plan import Issuer, Plan, Variant
from mooring.config.plan_servers import Container
from mooring.config.store import usable_keyring
from mooring.errors import ConfigError, DaemonAbsent, LaunchMissing, MooringError
from mooring.facade import connect
from mooring.launch.engine import Engine, choose
from mooring.launch.kept import Keeper
from mooring.launch.obstacles import unenforced
from mooring.nouns import StatusReport

LIMIT = 3.0
"""Seconds that the daemon has for each answer."""
SOCKET_PATH_LIMIT = 107 if os.uname().sysname == "Linux" else 103
"""Bytes that the path of a socket may have."""


def examined() -> Iterator[Finding]:
    """All findings, in the order in which things depend on each other."""
    home = Home.locate()
    yield from _home(home)
    yield from _daemon(home)
    yield from _keyring(home)
    yield from _configuration()


def _home(home: Home) -> Iterator[Finding]:
    for folder in dict.fromkeys((home.config, home.state, home.run)):
        yield _folder(Path(folder))
    for file in (home.secret_file, home.installation_key_file, home.store_file):
        if os.path.exists(file) and os.stat(file).st_mode & 0o066:
            yield Finding("home", "error", f"others may read {file}", f"Run: chmod 600 {file}")
    if len(os.fsencode(home.socket)) > SOCKET_PATH_LIMIT:
        message = f"the path of the control socket is longer than {SOCKET_PATH_LIMIT} bytes: {home.socket}"
        yield Finding("home", "error", message, "Set MOORING_HOME to a shorter path.")


def _folder(folder: Path) -> Finding:
    if not os.path.lexists(folder):
        return _missing(folder)
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", "error", f"{folder} is not a folder that you can write", f"Look at: ls -ld {folder}")
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        return Finding("home", "error", f"{folder} belongs to another user", "Set MOORING_HOME to a folder of yours.")
    if mode & 0o022:
        return Finding("home", "error", f"others may write {folder} (mode {mode:o})", f"Run: chmod 700 {folder}")
    if mode & 0o055:
        return Finding("home", "warning", f"others may look into {folder} (mode {mode:o})", f"Run: chmod 700 {folder}")
    return Finding("home", "ok", f"{folder} (mode {mode:o})")


def _missing(folder: Path) -> Finding:
    """A folder that is still to be made, in the nearest one above it that there is."""
    above = next(parent for parent in folder.parents if os.path.lexists(parent))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        message = f"{folder} is not there and cannot be made: {above} is not a folder that you can write"
        return Finding("home", "error", message, "Set MOORING_HOME to a folder that you may write.")
    return Finding("home", "ok", f"{folder} is not there yet; it is made when it is needed")


def _daemon(home: Home) -> Iterator[Finding]:
    try:
        status = asyncio.run(_status())
    except DaemonAbsent:
        yield _absent(home)
        return
    except (MooringError, TimeoutError, msgspec.ValidationError) as error:
        yield Finding(
            "daemon", "error", f"the daemon does not answer: {error or 'no answer in time'}", _END.format("?")
        )
        return
    yield Finding("daemon", "ok", f"running, pid {status.pid}, version {status.version}, on {home.socket}")
    if status.version != __version__:
        message = f"the daemon is version {status.version}, this command is {__version__}"
        yield Finding("daemon", "warning", message, "Run: mooring stop, then mooring up")
    if status.config_error:
        message = f"it goes on with an older configuration: {status.config_error}"
        yield Finding("daemon", "error", message, "Correct the file; it is read again when it changes.")
    yield _endpoint(status)


_END = "If it stays so, end it: kill {}"


async def _status() -> StatusReport:
    async with asyncio.timeout(LIMIT), connect() as mooring:
        return await mooring.status()


def _absent(home: Home) -> Finding:
    pid = _pid(home)
    if pid is None:
        return Finding("daemon", "ok", "not running; the first verb that needs it starts it")
    message = f"process {pid} is said to be the daemon, but nobody answers at {home.socket}"
    return Finding("daemon", "error", message, f"It may be starting. {_END.format(pid)}")


def _pid(home: Home) -> int | None:
    """The living process that wrote the pid file."""
    try:
        pid = int(Path(home.pid_file).read_text("ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


def _endpoint(status: StatusReport) -> Finding:
    place = urlsplit(status.endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=LIMIT)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        message = f"{status.endpoint} does not answer: {error}"
        return Finding("endpoint", "error", message, "Run: mooring stop, then mooring up")
    finally:
        connection.close()
    if answer.status != 200:
        message = f"{status.endpoint} is not well: HTTP {answer.status} for /healthz"
        return Finding("endpoint", "error", message, "Look at the daemon's log.")
    return Finding("endpoint", "ok", f"{status.endpoint} answers")


def _keyring(home: Home) -> Iterator[Finding]:
    if usable_keyring() is None:
        yield Finding("keyring", "ok", f"there is no usable one; secrets are kept in {home.secret_file}")
    else:
        yield Finding("keyring", "ok", "usable; secrets are kept there")


def _configuration() -> Iterator[Finding]:
    try:
        written = configured.loaded()
        plan = configured.planned(written)
    except ConfigError as error:
        yield Finding("config", "error", str(error), "Correct it, then run: mooring check")
        return
    yield Finding("config", "ok", f"{', '.join(written.files)} valid, {_count(plan)}")
    for problem in plan.problems:
        if problem.level == "warning":
            yield Finding("config", "warning", problem.message)
    if any(isinstance(variant.launch, Container) for variant in plan.variants.values()):
        yield _engine(plan.gateway.engine)
    for issuer in plan.identity:
        yield _issuer(issuer)
    for variant in plan.variants.values():
        if written.config.mcp_servers[variant.server].enabled:
            yield _server(variant, plan)


def _issuer(issuer: Issuer) -> Finding:
    """Whether tokens of the issuer could be checked from here."""
    from mooring.wire.jwks import published  # most configurations have no issuers

    async def ask() -> int:
        async with asyncio.timeout(LIMIT):
            return len(await published(issuer.url, issuer.jwks))

    check = f"identity {issuer.name}"
    try:
        count = asyncio.run(ask())
    except (MooringError, TimeoutError) as error:
        advice = "Until it answers, nobody comes in with its tokens; keys of Mooring work on."
        return Finding(check, "error", str(error) or f"no answer within {LIMIT:g} s", advice)
    return Finding(check, "ok", f"{issuer.url} publishes {count} key{'' if count == 1 else 's'}")


def _count(plan: Plan) -> str:
    count = len(plan.variants)
    return f"{count} variant{'' if count == 1 else 's'}"


def _server(variant: Variant, plan: Plan) -> Finding:
    check = f"server {variant.id}"
    if variant.unavailable:
        return Finding(
            check, "error", variant.unavailable, f"Or switch it off: mooring server disable {variant.server}"
        )
    if isinstance(variant.launch, Container):
        engine = _engine(plan.gateway.engine)
        state, message = ("error", "there is no engine for it") if engine.level == "error" else ("ok", "can be started")
        return Finding(check, state, message)
    try:
        runs = program_of(variant)
    except LaunchMissing as error:
        return Finding(check, "error", str(error))
    return Finding(check, "ok", f"can be started{f': {runs}' if runs else ''}")


@cache
def _engine(wanted: str) -> Finding:
    """The container engine that would be used, and what it cannot do. Starts no container."""
    try:
        engine = asyncio.run(_chosen(wanted))
    except LaunchMissing as error:
        return Finding("engine", "error", str(error))
    if engine.ignored:
        return Finding("engine", "warning", unenforced(engine), "Run it as root, or on a machine with cgroups v2.")
    return Finding("engine", "ok", f"{engine} answers, and is used: {engine.why}")


async def _chosen(wanted: str) -> Engine:
    async with Keeper() as keeper:
        return await choose(keeper, wanted)
