"""Logins in a real keyring: GNOME's, on a bus of its own, unlocked without a desktop."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from guarded_server import GuardedServer
from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, launched
from mooring.testing.login import log_in

pytestmark = pytest.mark.timeout(200)

Start = Callable[..., Awaitable[Daemon]]
LIMIT = 60.0
PROGRAMS = {"dbus-daemon": "dbus-daemon", "gnome-keyring-daemon": "gnome-keyring"}
"""Program to the package of Debian that brings it."""


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A keyring for everything that this test starts; a call takes it away."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install {package}")
    pytest.importorskip("secretstorage")
    home = tmp_path / "user"
    home.mkdir(mode=0o700)
    for name, place in {"HOME": home, "XDG_RUNTIME_DIR": home, "XDG_DATA_HOME": home / "data"}.items():
        monkeypatch.setenv(name, str(place))
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
    with ExitStack() as stack:

        def run(*argv: str, first: bytes = b"") -> str:
            """Start a program that stays; the first line that it prints."""
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(first)
            process.stdin.close()
            return process.stdout.readline().decode().strip()

        address = run("dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address")
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        keeper = ("gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
        run(*keeper, f"--control-directory={home}", first=b"a password\n")
        yield stack.close


@pytest.fixture
async def server() -> AsyncIterator[GuardedServer]:
    async with GuardedServer() as server:
        yield server


async def status(running: Daemon) -> dict[str, Any]:
    code, out, err = await running.command("auth", "status", "far", "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    return row


def holding(running: Daemon, server: GuardedServer) -> list[Path]:
    """Files of the installation with a token in them."""
    given = [token.encode() for token in server.guardian.given]
    files = [file for file in running.home.rglob("*") if file.is_file()]
    return [file for file in files if any(token in file.read_bytes() for token in given)]


async def serves(running: Daemon) -> None:
    async with await running.client("w", "modern", timeout=LIMIT) as it:

        async def works() -> bool:
            return not (await it.call("far_echo")).get("isError")

        await wait_for(works, LIMIT)


async def test_a_login_lives_in_the_keyring_and_nowhere_else(
    start: Start, server: GuardedServer, keyring: Callable[[], None]
) -> None:
    """A35: from login over renewal and a restart to logout; no token is in any file of the installation."""
    server.guardian.lifetime = 31.0  # nearly over at once: it is renewed all the time
    running = await start({"far": {"url": server.url, "auth": "oauth"}})
    code, _, err = await log_in(running.env, "far")
    assert code == 0, err
    await serves(running)
    assert holding(running, server) == []
    await running.mooring.stop()
    await running.ended()
    server.guardian.tokens.clear()
    async with launched(running.home) as again:
        await serves(again)
        assert server.guardian.asked("/token")[-1].form["grant_type"] == "refresh_token"
        assert (await status(again))["state"] == "logged in"
        assert holding(again, server) == []
        assert (await again.command("auth", "logout", "far"))[0] == 0
        assert not server.guardian.refresh_tokens
        assert (await status(again))["state"] == "logged out"


async def test_a_keyring_that_went_away_is_named_and_the_next_login_goes_to_a_private_file(
    start: Start, server: GuardedServer, keyring: Callable[[], None]
) -> None:
    """A35"""
    running = await start({"far": {"url": server.url, "auth": "oauth"}})
    assert (await log_in(running.env, "far"))[0] == 0
    keyring()
    code, _, err = await running.command("auth", "status", "far")
    assert code != 0
    assert "keyring" in err
    assert (await running.command("auth", "logout", "far"))[0] == 0
    code, _, err = await log_in(running.env, "far")
    assert code == 0, err
    await serves(running)
    (file,) = holding(running, server)
    assert (file.name, file.stat().st_mode & 0o777) == ("far.json", 0o600)
