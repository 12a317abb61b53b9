"""The launcher of containers for those who need it: its code is loaded when there is a container to start or to end.

Made by ``serve.app``, which tells it the plan after boot and after each reload.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from mooring.config.home import Home
from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Container
from mooring.launch.base import Report
from mooring.launch.kept import Keeper
from mooring.nouns import InstanceKey

if TYPE_CHECKING:
    from mooring.launch.container import ContainerLauncher, LaunchedContainer

MARKER = "containers"
"""File in the state folder, see ``launch.runtime``: there may be containers of an earlier daemon."""


class Containers:
    """Implements ``launch.base.Launcher`` and ``Preparing`` by the launcher that it loads."""

    kinds: ClassVar[tuple[str, ...]] = ("container",)

    def __init__(self, keeper: Keeper, home: Home | None, engine: Callable[[], str], report: Report) -> None:
        """``home`` None: a library, nothing of which outlives its process. ``engine``: ``gateway.engine``."""
        self._report = report
        self._keeper = keeper
        self._home = home
        self._engine = engine
        self._launcher: ContainerLauncher | None = None

    async def look_after(self, plan: Plan) -> None:
        """See ``ContainerLauncher.look_after``; nothing happens, and nothing is loaded, where there is no container."""
        variants = [variant for variant in plan.variants.values() if isinstance(variant.launch, Container)]
        if variants or (self._home is not None and os.path.exists(os.path.join(self._home.state, MARKER))):
            await self._loaded().look_after(variants)

    async def prepare(self, variant: Variant, phase: Callable[[str], None], said: Callable[[str], None]) -> None:
        """See ``launch.base.Preparing``."""
        await self._loaded().prepare(variant, phase, said)

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[LaunchedContainer]:
        """See ``launch.base.Launcher``."""
        async with self._loaded().launch(variant, key, secrets) as launched:
            yield launched

    def _loaded(self) -> ContainerLauncher:
        if self._launcher is None:
            from pathlib import Path

            from mooring.launch.container import ContainerLauncher

            state = Path(self._home.state) if self._home else None
            self._launcher = ContainerLauncher(self._keeper, self._engine(), self._installation(), state, self._report)
        return self._launcher

    def _installation(self) -> str:
        """What tells the containers of this home from those of any other."""
        if self._home is None:
            return os.urandom(8).hex()
        from mooring.config.secrets import Secrets
        from mooring.launch.runtime import installation_id

        return installation_id(Secrets(self._home).installation_key(), self._home.state)
