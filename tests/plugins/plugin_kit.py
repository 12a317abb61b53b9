"""What the tests of plugins share: a plugin's source, and a real virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

LIMIT = 120.0
"""Seconds for one command of an installer."""

SPEC = """
from mooring.plugins import McpPlugin, McpServerSpec

class Plugin(McpPlugin):
    name = "voice"
    version = "0.1.0"
    description = "Voice transcription."

    def mcp_server_spec(self):
        return McpServerSpec(name="voice", command="python", args=["-m", "voice_plugin.mcp"])
"""


def with_another(arguments: str) -> str:
    """``SPEC`` whose plugin also brings a server with these arguments, as the first."""
    head, tail = SPEC.split("return ")
    return f"{head}return [McpServerSpec({arguments}), {tail.rstrip()}]\n"


class Venv:
    """A virtual environment of its own that has Mooring, by way of the one that runs the tests."""

    def __init__(self, folder: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        self.python = str(folder / "bin" / "python")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        ours = sysconfig.get_path("purelib")
        link = folder / "lib" / version / "site-packages" / "tests.pth"
        link.write_text(f"import site; site.addsitedir({ours!r})\n")

    def pip(self, *arguments: str) -> None:
        """Run pip for this environment."""
        run(sys.executable, "-m", "pip", "--python", self.python, *arguments)

    def install(self, project: Path) -> None:
        """Install a project so that it can be edited. Its dependencies are there already."""
        flags = ("--quiet", "--no-build-isolation", "--no-deps", "--no-index")
        self.pip("install", *flags, "--editable", str(project))

    def uninstall(self, distribution: str) -> None:
        """Take it out again."""
        self.pip("uninstall", "--quiet", "--yes", distribution)

    def mooring(self, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``mooring`` of this environment."""
        env = {**os.environ, "MOORING_HOME": str(home)}
        argv = (self.python, "-m", "mooring", *arguments)
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)


def run(*argv: str) -> None:
    """Run a command. Raises AssertionError with what it says when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
