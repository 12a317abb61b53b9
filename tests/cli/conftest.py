"""A home of its own for every test, and two ways to run ``mooring`` in it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mooring.cli.main import cli

LIMIT = 30.0
"""Seconds for one command."""

Run = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """``MOORING_HOME``, with a short path: that of a socket may have about a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="mrg-") as folder:
        monkeypatch.setenv("MOORING_HOME", folder)
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
        yield Path(folder)


@pytest.fixture
def run(place: Path) -> Run:
    """``run("check", "--json")`` in this process."""

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, prog_name="mooring")

    return run


@pytest.fixture
def command(place: Path) -> Command:
    """``command("ps")`` as a process of its own."""

    def command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mooring", *arguments],
            env=dict(os.environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return command
