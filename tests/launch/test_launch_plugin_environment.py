"""How the environment of a plugin's server is made; that it is made, once, and used is in the journeys of plugins."""

from __future__ import annotations

import sys
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
