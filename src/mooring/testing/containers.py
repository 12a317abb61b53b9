"""Containers for tests, without a registry: an image with nothing in it, in which this machine's programs are mounted.

    image("podman")                                   # makes it, in a tenth of a second
    {"image": IMAGE, **python("-m", "mooring.testing.echo")}   # an [mcp_servers.X] table

Also an outside look at what an engine runs, through its own command line program.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import mooring
from mooring.config.home import Home
from mooring.config.secrets import Secrets
from mooring.launch.runtime import INSTALLATION, installation_id

IMAGE = "localhost/mooring-testing:1"
USER = 1000
"""Who a server is in that image."""
KIT = "/kit"
"""Where Mooring's source is in a container."""
LIMIT = 60.0
"""Seconds for one command of an engine."""
PASSWD = f"root:x:0:0::/:/bin/sh\nserver:x:{USER}:{USER}::/tmp:/bin/sh\n"
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
FOLDERS = ("tmp", "etc", "proc", "sys", "dev", "run", "usr", "var", "sbin", "kit", "data")


def available(engine: str) -> str:
    """Why ``engine`` cannot be used here; "" when it can."""
    if shutil.which(engine) is None:
        return f"{engine} is not installed (as root on Debian: tests/containers/provision.sh)"
    done = subprocess.run([engine, "info"], capture_output=True, timeout=LIMIT, check=False)
    return "" if done.returncode == 0 else f"{engine} does not work here: {done.stderr.decode()[-200:]}"


@cache
def lacks(engine: str) -> str:
    """Why ``engine`` cannot be tested with; "" when it can, and has the image."""
    why = available(engine)
    if not why:
        image(engine)
    return why


def image(engine: str, name: str = IMAGE, user: int = USER) -> str:
    """Have an image with nothing in it. One that is there is kept: another in its place would only take its name away,
    and each command of Podman reads all that there are."""
    there = subprocess.run(
        [engine, "image", "inspect", "--format", "{{.Config.User}}", name],
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    if there.stdout.decode().strip() != f"{user}:{user}":
        command(engine, "import", "--change", f"USER {user}:{user}", "-", name, stdin=empty())
    return name


def python(*arguments: str, **members: Any) -> dict[str, Any]:
    """The rest of a server's table: this interpreter with these arguments, Mooring's source importable."""
    return program(os.path.realpath(sys.executable), *arguments, **members)


def program(*argv: str, **members: Any) -> dict[str, Any]:
    """The rest of a server's table: a program of this machine. ``volumes`` and ``env`` of ``members`` are added."""
    folders = {"/usr", *(prefix for prefix in (sys.base_prefix,) if not prefix.startswith("/usr"))}
    source = Path(mooring.__file__).parents[1]
    mounts = [*(f"{folder}:{folder}:ro" for folder in sorted(folders)), f"{source}:{KIT}:ro"]
    env = {"PYTHONPATH": KIT, "PYTHONDONTWRITEBYTECODE": "1", **members.pop("env", {})}
    return {
        "image": IMAGE,
        "args": list(argv),
        "volumes": [*mounts, *members.pop("volumes", ())],
        "env": env,
        **members,
    }


def command(engine: str, *arguments: str, stdin: bytes | None = None) -> str:
    """Run an engine's command; what it prints. Raises AssertionError with what it says when it fails."""
    done = subprocess.run([engine, *arguments], input=stdin, capture_output=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise AssertionError(f"{engine} {' '.join(arguments)}: {done.stderr.decode()}")
    return done.stdout.decode()


def label(home: Path) -> str:
    """The label of all containers of the daemons with this MOORING_HOME."""
    place = Home.locate({"MOORING_HOME": str(home)})
    return f"{INSTALLATION}={installation_id(Secrets(place).installation_key(), place.state)}"


def names(engine: str, label: str = INSTALLATION, *, running: bool = False) -> set[str]:
    """The names of all containers with ``label``, running or not, or of those that run only."""
    return _listed(engine, label, "{{.Names}}", *(["--filter", "status=running"] if running else []))


def ids(engine: str, label: str = INSTALLATION) -> set[str]:
    """Their ids: a container that was made anew has another one."""
    return _listed(engine, label, "{{.ID}}")


def _listed(engine: str, label: str, field: str, *options: str) -> set[str]:
    listing = ("ps", "--all", "--no-trunc", "--filter", f"label={label}", *options, "--format", field)
    return set(command(engine, *listing).split())


def inspected(engine: str, name: str) -> dict[str, Any]:
    """All that the engine says about a container."""
    return cast("list[dict[str, Any]]", json.loads(command(engine, "container", "inspect", name)))[0]


def remove(engine: str, found: Sequence[str]) -> None:
    """Kill and remove containers, for the end of a test."""
    ignore = ["--ignore", "--time", "0"] if engine == "podman" else []
    if found:
        command(engine, "rm", "--force", *ignore, *found)


def empty() -> bytes:
    """A tar file with the folders that engines mount things on."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for link, target in LINKS.items():
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        entry = tarfile.TarInfo("etc/passwd")
        entry.size, entry.mode = len(PASSWD), 0o644
        tar.addfile(entry, io.BytesIO(PASSWD.encode()))
    return content.getvalue()
