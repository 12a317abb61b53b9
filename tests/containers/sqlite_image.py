"""The image ``docker.io/mcp/sqlite`` as the tests have it: this machine's Python, its libraries, and the real server.

And the engines' settings that make a registry on loopback a mirror of docker.io.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mooring.testing import containers, wait_for

IMAGE = "docker.io/mcp/sqlite"
VOLUME = "mcp-sqlite"
PYTHON = os.path.realpath(sys.executable)
CONFIG: dict[str, Any] = {
    "Entrypoint": [PYTHON, "-c", "from mcp_server_sqlite import main; main()"],
    "Env": ["PATH=/usr/bin", "PYTHONPATH=/server"],
}
_LEFT_OUT = ("site-packages", "test", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3")
_MIRROR = "60-mooring-tests-mirror.conf"


def layer(folder: Path) -> bytes:
    """A tar file with the server; ``folder`` is for its packages, which are downloaded."""
    install = ("uv", "pip", "install", "-q", "--target", str(folder), "--compile-bytecode")
    program = Path(sys.executable).parent / install[0]
    subprocess.run([program, *install[1:], "mcp-server-sqlite", "mcp<2"], check=True, timeout=300)
    content = io.BytesIO(containers.empty())
    with tarfile.open(fileobj=content, mode="a") as tar:
        tar.add(folder, "server")
        tar.add(PYTHON, PYTHON)
        standard = sysconfig.get_path("stdlib")
        tar.add(standard, standard, filter=_wanted)
        modules = [*Path(standard, "lib-dynload").glob("*.so"), *folder.rglob("*.so")]
        for library in _libraries([Path(PYTHON), *modules]):
            place = re.sub(r"^/(lib\d*)/", r"/usr/\1/", library)
            tar.add(os.path.realpath(library), place)
    return content.getvalue()


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.rpartition("/")[2] in _LEFT_OUT else entry


def _libraries(programs: list[Path]) -> set[str]:
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False, timeout=60)
    return {match[1] for match in re.finditer(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.M)}


@contextmanager
def mirrored(engine: str, address: str) -> Iterator[str]:
    """As long as the block lasts ``engine`` asks ``address`` first for what is on docker.io. Yields why that cannot be;
    "" when it can."""
    if os.geteuid() != 0:
        yield "the settings of the engines can be changed by root only"
    elif engine == "podman":
        file = Path("/etc/containers/registries.conf.d", _MIRROR)
        file.parent.mkdir(parents=True, exist_ok=True)
        mirror = f'[[registry.mirror]]\nlocation = "{address}"\ninsecure = true\n'
        file.write_text(f'[[registry]]\nprefix = "docker.io"\nlocation = "docker.io"\n{mirror}')
        try:
            yield ""
        finally:
            file.unlink()
    else:
        file = Path("/etc/docker/daemon.json")
        before = file.read_text() if file.exists() else None
        settings = json.loads(before or "{}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**settings, "registry-mirrors": [f"http://{address}"]}))
        try:
            yield "" if _reloaded() else "dockerd has no pid file, so it cannot be told of its settings"
        finally:
            file.write_text(before or "{}")
            _reloaded()
            if before is None:
                file.unlink()


def _reloaded() -> bool:
    """Let dockerd read its settings again."""
    with suppress(OSError, ValueError):
        os.kill(int(Path("/var/run/docker.pid").read_text()), signal.SIGHUP)
        return True
    return False


async def known(engine: str, address: str) -> None:
    """Until the engine knows its mirror."""
    if engine == "docker":
        wanted = f"http://{address}/"
        await wait_for(lambda: wanted in containers.command("docker", "info"), containers.LIMIT, 0.1)


def forget(engine: str) -> None:
    """Take the image and its volume out of the engine."""
    for arguments in (("image", "rm", "--force", IMAGE), ("volume", "rm", "--force", VOLUME)):
        subprocess.run([engine, *arguments], capture_output=True, timeout=containers.LIMIT, check=False)
