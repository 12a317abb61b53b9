"""Mooring's own launchers, event sinks, catalog sources and exporters: through the same hooks as anybody's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mooring.launch.base import Launcher, Report
from mooring.launch.functions import FunctionsLauncher
from mooring.launch.kept import Keeper
from mooring.launch.lazily import Processes, Remotes
from mooring.observe.events import Sink
from mooring.plugins.hooks import Context, hookimpl
from mooring.serve.containers import Containers

if TYPE_CHECKING:
    from mooring.catalog.source import SourceKind
    from mooring.export.base import Exporter, Offer
    from mooring.export.litellm import LiteLLM


class Builtin:
    """The plugin "mooring"."""

    def __init__(
        self,
        keeper: Keeper,
        report: Report,
        containers: Containers,
        sinks: Sequence[Sink] = (),
        litellm: Callable[[], LiteLLM] | None = None,
    ) -> None:
        self.functions = FunctionsLauncher()
        self.containers = containers
        self._launchers = (Processes(keeper, report), containers, Remotes(), self.functions)
        self._sinks = sinks
        self._exporters = [LiteLLMExporter(litellm)] if litellm else []

    @hookimpl
    def mooring_launchers(self, context: Context) -> Sequence[Launcher]:
        """Processes, containers, remotes, and functions of this process."""
        return self._launchers

    @hookimpl
    def mooring_event_sinks(self, context: Context) -> Sequence[Sink]:
        """Log, metrics, what guards refused, and the audit log."""
        return self._sinks

    @hookimpl
    def mooring_catalog_sources(self, context: Context) -> Sequence[SourceKind]:
        """The starter list, registries, Docker's catalog, files."""
        from mooring.catalog.sources.docker import DockerCatalog
        from mooring.catalog.sources.files import Files
        from mooring.catalog.sources.registry import Registry
        from mooring.catalog.sources.starter import Starter

        return [Starter(), Registry(), DockerCatalog(), Files()]

    @hookimpl
    def mooring_exporters(self, context: Context) -> Sequence[Exporter]:
        """LiteLLM, in the daemon."""
        return self._exporters


class LiteLLMExporter:
    """Loads what syncs with LiteLLM when a configuration asks for it."""

    name = "litellm"

    def __init__(self, litellm: Callable[[], LiteLLM]) -> None:
        self._litellm = litellm

    async def export(self, offer: Offer) -> float | None:
        """See ``export.litellm.LiteLLM.export``."""
        return None if offer.plan.litellm is None else await self._litellm().export(offer)
