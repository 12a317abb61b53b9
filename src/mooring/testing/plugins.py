"""Plugins for tests, installed by writing them: a folder on ``PYTHONPATH`` with a package and what names it a plugin.

site = Site(tmp_path / "site")                       # and put that folder on PYTHONPATH
site.install("from mooring.plugins import ...")      # as a package manager would
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


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
