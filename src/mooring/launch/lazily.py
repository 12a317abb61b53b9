"""Launchers whose code is loaded when their first server starts. Made by ``serve.builtin``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import ClassVar

from mooring.config.plan import Variant
from mooring.launch.base import Launched, Launcher, Preparing, Report
from mooring.launch.kept import Keeper
from mooring.nouns import InstanceKey


class Lazily(ABC):
    """Implements ``launch.base.Launcher`` and ``Preparing`` by the launcher that it loads."""

    kinds: ClassVar[tuple[str, ...]]

    @abstractmethod
    def load(self) -> Launcher:
        """The launcher; called once."""

    @cached_property
    def _launcher(self) -> Launcher:
        return self.load()

    async def prepare(self, variant: Variant, phase: Callable[[str], None], said: Callable[[str], None]) -> None:
        """See ``launch.base.Preparing``."""
        if isinstance(self._launcher, Preparing):
            await self._launcher.prepare(variant, phase, said)

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[Launched, None]:
        """See ``launch.base.Launcher``."""
        async with self._launcher.launch(variant, key, secrets) as launched:
            yield launched


class Processes(Lazily):
    """``launch.process``."""

    kinds: ClassVar[tuple[str, ...]] = ("process",)

    def __init__(self, keeper: Keeper, report: Report) -> None:
        self._keeper = keeper
        self._report = report

    def load(self) -> Launcher:
        """See ``Lazily``."""
        from mooring.launch.process import ProcessLauncher

        return ProcessLauncher(self._keeper, self._report)


class Remotes(Lazily):
    """``launch.remote``."""

    kinds: ClassVar[tuple[str, ...]] = ("remote",)

    def load(self) -> Launcher:
        """See ``Lazily``."""
        from mooring.launch.remote import RemoteLauncher

        return RemoteLauncher()
