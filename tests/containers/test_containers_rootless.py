"""Podman as a plain user runs it: what has no network works, over stdio and over HTTP; an open network works too, or is
refused with what to do about it.

Run as root, this becomes a user that owns nothing, for whom Podman maps one id; hence the image of root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import mooring

NOBODY = 65534
LIMIT = 100
IMAGE = "localhost/mooring-testing-rootless:1"
STORAGE = '[storage]\ndriver = "overlay"\n'
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from mooring.testing import containers
from mooring.testing.daemon import daemon

HTTP = ("-m", "mooring.testing.echo", "--http", "8000")
KINDS = {
    "pipe": containers.python("-m", "mooring.testing.echo", network="none"),
    "shut": containers.python(*HTTP, port=8000, network="none"),
    "listed": containers.python(*HTTP, port=8000, network=["127.0.0.1:9"]),
    "open": containers.python(*HTTP, port=8000),
}

async def answer(client, name):
    while True:
        result = await client.call(f"{name}_echo", {"n": 1})
        if result.get("_meta", {}).get("mooring/error", {}).get("kind") != "unavailable":
            return result

async def main():
    home = Path("home")
    home.mkdir()
    tables = {name: {**table, "image": sys.argv[1]} for name, table in KINDS.items()}
    async with daemon(home, tables, gateway={"engine": "podman"}) as running:
        async with await running.client("w", timeout=60) as client:
            await client.open()
            found = {name: await answer(client, name) for name in tables}
    left = containers.names("podman", containers.label(home))
    print(json.dumps({"found": found, "left": sorted(left)}))

containers.image("podman", sys.argv[1], 0)
asyncio.run(main())
"""


def as_plain_user(folder: Path) -> tuple[list[str], dict[str, str]]:
    """What comes before a Python program's arguments, and its environment. Skips where it cannot be tried."""
    path = os.pathsep.join((str(Path(mooring.__file__).parents[1]), sysconfig.get_path("purelib")))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), "PYTHONPATH": path}
    prefix = [] if os.getuid() else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env"]
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (as root on Debian: apt-get install util-linux)")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (os.path.realpath(sys.executable), f"/usr/bin/python{version}"):
        probe = [*prefix, python, "-c", "import mooring, httptools, msgspec, uvloop, tomlkit"]
        if os.path.exists(python) and subprocess.run(probe, env=env, capture_output=True, check=False).returncode == 0:
            return [*prefix, python], env
    pytest.skip(f"no Python {version} with Mooring that a plain user may run")


def settled(folder: Path) -> None:
    """A home in which Podman has what it needs, without FUSE."""
    settings = folder / ".config" / "containers" / "storage.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(STORAGE)
    (folder / "run").mkdir()
    if not os.getuid():
        for place in (folder, *folder.rglob("*")):
            os.chown(place, NOBODY, NOBODY)


def let_go(folder: Path) -> None:
    """Podman leaves a process behind that holds the user's namespaces."""
    for file in folder.rglob("pause.pid"):
        with suppress(OSError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def outcome(argv: list[str], env: dict[str, str], folder: Path) -> dict[str, Any]:
    works = subprocess.run(
        [*argv[:-1], "podman", "info"], env=env, cwd=folder, capture_output=True, timeout=LIMIT, check=False
    )
    if works.returncode:
        pytest.skip(f"Podman does not work for a plain user here: {works.stderr.decode()[-300:]}")
    argv = [*argv, "-c", SCRIPT, IMAGE]
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


def test_without_root_all_networks_work_or_are_refused_with_the_reason() -> None:
    """R25: never open where it was not asked for, and nothing is left."""
    with TemporaryDirectory(prefix="mooring-rootless-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settled(folder)
        argv, env = as_plain_user(folder)
        try:
            said = outcome(argv, env, folder)
        finally:
            let_go(folder)
    found = said["found"]
    for kind in ("pipe", "shut", "listed"):
        assert found[kind].get("structuredContent") == {"n": 1}, found[kind]
    if found["open"].get("isError"):
        assert "needs /dev/net/tun for everybody" in str(found["open"])
    else:
        assert found["open"]["structuredContent"] == {"n": 1}
    assert said["left"] == []
