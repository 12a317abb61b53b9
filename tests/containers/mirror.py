"""The engines' settings that make a registry on loopback a mirror of docker.io."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from mooring.testing import containers, wait_for


@contextmanager
def mirrored(engine: str, address: str) -> Iterator[str]:
    """As long as the block lasts ``engine`` asks ``address`` first for what is on docker.io. Yields why that cannot be;
    "" when it can."""
    if engine == "podman":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "registries.conf")
            mirror = f'[[registry.mirror]]\nlocation = "{address}"\ninsecure = true\n'
            file.write_text(f'[[registry]]\nprefix = "docker.io"\nlocation = "docker.io"\n{mirror}')
            with patch.dict(os.environ, CONTAINERS_REGISTRIES_CONF=str(file)):
                yield ""
    elif os.geteuid() != 0:
        yield "the settings of dockerd can be changed by root only"
    else:
        file = Path("/etc/docker/daemon.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        with _alone(file.parent):
            before = file.read_text() if file.exists() else None
            settings = json.loads(before or "{}")
            file.write_text(json.dumps({**settings, "registry-mirrors": [f"http://{address}"]}))
            try:
                yield "" if _reloaded() else "dockerd has no pid file, so it cannot be told of its settings"
            finally:
                file.write_text(before or "{}")
                _reloaded()
                if before is None:
                    file.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One test at a time: another process of pytest would take these settings for the machine's own."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


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


def forget(engine: str, image: str, *volumes: str) -> None:
    """Take an image and volumes out of the engine."""
    for arguments in (("image", "rm", "--force", image), *(("volume", "rm", "--force", name) for name in volumes)):
        subprocess.run([engine, *arguments], capture_output=True, timeout=containers.LIMIT, check=False)
