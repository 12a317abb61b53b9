"""Mooring's own launchers and catalog sources, registered through the same hooks as anybody else's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.launch.base import Launcher, Report
from mooring.launch.functions import FunctionsLauncher
from mooring.launch.kept import Keeper
from mooring.launch.process import ProcessLauncher
from mooring.launch.remote import RemoteLauncher
from mooring.plugins.hooks import Context, hookimpl
from mooring.serve.containers import Containers

if TYPE_CHECKING:
    from mooring.catalog.source import SourceKind


class Builtin:
    """The plugin "mooring"."""

    def __init__(self, keeper: Keeper, report: Report, containers: Containers) -> None:
        self.functions = FunctionsLauncher()
        self.containers = containers
        self._process = ProcessLauncher(keeper, report)

    @hookimpl
    def mooring_launchers(self, context: Context) -> Sequence[Launcher]:
        """Processes, containers, remotes, and functions of this process."""
        return [self._process, self.containers, RemoteLauncher(), self.functions]

    @hookimpl
    def mooring_catalog_sources(self, context: Context) -> Sequence[SourceKind]:
        """The starter list, registries, Docker's catalog, files."""
        from mooring.catalog.sources.docker import DockerCatalog
        from mooring.catalog.sources.files import Files
        from mooring.catalog.sources.registry import Registry
        from mooring.catalog.sources.starter import Starter

        return [Starter(), Registry(), DockerCatalog(), Files()]
