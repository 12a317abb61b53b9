"""What the tests of plugins share: packages that are installed by writing them, and a real virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent

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


class Site:
    """A folder in which packages are installed, found through PYTHONPATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def install(
        self,
        source: str,
        *,
        name: str = "voice",
        module: str = "voice_plugin",
        attribute: str = ":Plugin",
        distribution: str = "mooring-voice",
        version: str = "1.0",
        requires: tuple[str, ...] = (),
    ) -> Path:
        """A package with ``source`` in its ``__init__.py`` and an entry point; the folder of its code."""
        package = self.folder / module
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(dedent(source))
        self.remove(distribution)
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {distribution}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines]) + "\n")
        (info / "entry_points.txt").write_text(f"[mooring.plugins]\n{name} = {module}{attribute}\n")
        return package

    def remove(self, distribution: str) -> None:
        """Uninstall it: what it is known by is gone."""
        for info in self.folder.glob(f"{distribution.replace('-', '_')}-*.dist-info"):
            for file in info.iterdir():
                file.unlink()
            info.rmdir()


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
