"""How the environment of a plugin's server is made; that it is made, once, and used is in the journeys of plugins."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from mooring.config.plan_servers import Environment
from mooring.errors import StartFailed
from mooring.launch import environment as environments
from mooring.launch import plugin_environment
from mooring.launch.kept import Keeper
from mooring.launch.plugin_environment import ready, steps

WANTED = Environment("/state/plugins/environments/0a", ("cowsay==6.1", "mcp"))
PYTHON = "/state/plugins/environments/0a/bin/python"


def test_with_uv_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert steps(WANTED) == [
        (str(uv), "venv", "--python", sys.executable, "--no-project", WANTED.folder),
        (str(uv), "pip", "install", "--python", PYTHON, "cowsay==6.1", "mcp"),
    ]


def test_else_with_what_comes_with_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environments, "BESIDE", str(tmp_path))
    assert steps(WANTED) == [
        (sys.executable, "-m", "venv", WANTED.folder),
        (PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "cowsay==6.1", "mcp"),
    ]


async def test_a_system_that_does_not_say_what_it_has_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "dpkg-query"
    asked.write_text("#!/bin/sh\nexec sleep 60\n")
    asked.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(plugin_environment, "QUESTION", 0.2)
    with pytest.raises(StartFailed, match=r'Server "voice": .*dpkg-query did not say within 0\.2 s whether sox is'):
        async with Keeper() as keeper:
            await ready(keeper, Environment("", (), packages=("sox",)), "voice", str, str)


async def test_what_was_left_half_made_is_gone_before_anybody_makes_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the start that removes it is given up: its thread goes on."""
    removing, go = threading.Event(), threading.Event()

    def rmtree(*_: object) -> None:
        removing.set()
        go.wait(20)

    monkeypatch.setattr(plugin_environment.shutil, "rmtree", rmtree)
    async with Keeper() as keeper:
        wanted = Environment(str(tmp_path / "0a"), ("cowsay",))
        making = asyncio.create_task(ready(keeper, wanted, "voice", str, str))
        try:
            assert await asyncio.to_thread(removing.wait, 20)
            making.cancel()
            done, _ = await asyncio.wait((making,), timeout=0.1)
            assert not done
        finally:
            go.set()
        with pytest.raises(asyncio.CancelledError):
            await making
