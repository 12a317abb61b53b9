"""The ground that agents stand on: what the running parts of this process give them. Behind ``Mooring.agents``.

Library only: the functions of an agent are functions of this process, and so is the one who answers its questions.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from mooring.agents.edits import Edits, edited
from mooring.agents.handler import Handler
from mooring.agents.pool import AgentPool
from mooring.config.home import Home
from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Launch, Process
from mooring.config.schema import Loaded
from mooring.errors import ConfigError, Refused
from mooring.launch.base import Launched
from mooring.launch.functions import FunctionConnection, Served
from mooring.nouns import InstanceKey, NewKey, Principal
from mooring.relay.relay import Relay
from mooring.relay.stewards import Stewards
from mooring.relay.table import advertised
from mooring.serve.app import App
from mooring.serve.control import serving
from mooring.serve.front import fronts
from mooring.serve.functions import FunctionServer
from mooring.serve.redacted import Redacted
from mooring.serve.starter import fetched, kind
from mooring.tasks import Tasks

LOCAL = (("127.0.0.1", 0),)
"""Where the endpoint for agents' programs listens: on this machine only, on any free port."""
LONGEST = 60
"""Bytes of a temporary folder's path below which a socket of ours is made."""


class Ground:
    """Implements ``agents.pool.Changing``."""

    def __init__(self, app: App, stack: AsyncExitStack, models: Mapping[str, Any]) -> None:
        self.models = models
        self._app = app
        self._stack = stack
        self._edits = Edits()
        self._opening = asyncio.Lock()
        self._served: dict[str, Served] = {}
        self._private = ""
        """Folder of the socket for shims; "" until it is wanted."""

    @property
    def plan(self) -> Plan:
        return self._app.plan

    @property
    def relay(self) -> Relay:
        return self._app.relay

    @property
    def stewards(self) -> Stewards:
        return self._app.relay.stewards

    def lend(self, workspace: str, name: str) -> NewKey:
        return self._app.keys.lend(workspace, name)

    def take_back(self, key_id: str) -> None:
        self._app.keys.take_back(key_id)

    async def endpoint(self) -> str:
        async with self._opening:
            if not self._app.endpoint:
                await self._stack.enter_async_context(fronts(self._app, LOCAL))
        return self._app.endpoint

    async def shim(self, workspace: str) -> tuple[tuple[str, ...], dict[str, str]]:
        async with self._opening:
            if not self._private:
                private = self._stack.enter_context(TemporaryDirectory(prefix="mooring-", dir=_roomy()))
                home = Home.below(private)
                home.prepare()
                attached = serving(home.socket, lambda: self._app.verbs, self.relay, self._attached)
                await self._stack.enter_async_context(attached)
                self._private = private
        argv = (sys.executable, "-m", "mooring", "stdio", "-w", workspace)
        return argv, {"MOORING_HOME": self._private}

    def _attached(self, workspace: str, registry: bool) -> Principal:
        """A shim that an agent's program started. Only this user reaches the socket."""
        if registry or workspace not in self.stewards:
            raise Refused
        return Principal(f"shim:{workspace}", workspace)

    async def serve(self, workspace: str, prefix: str, served: Served | None) -> None:
        name, functions = own(workspace), self._app.additions.functions
        self._app.builtin.functions.serve(name, served)
        if served is None:
            self._served.pop(name, None)
            functions.pop(name, None)
        else:
            self._served[name] = served
            functions[name] = FunctionServer(prefix, (workspace,))
        await self._app.adjust()
        if served is not None:
            await self.relisted(workspace)

    async def relisted(self, workspace: str) -> None:
        variant = self._app.plan.variants.get(own(workspace))
        served = self._served.get(own(workspace))
        if variant is not None and served is not None:  # one that is closing is still in the plan
            connection = FunctionConnection(served)
            await self._app.listed(variant, variant.key(), connection, None)

    @asynccontextmanager
    async def started(self, name: str, launch: Launch) -> AsyncGenerator[Launched]:
        variant = Variant(f"agent-{name}", f"agent {name}", "{}", "", launch)
        launcher = self._app.launchers[kind(variant)]
        secrets = await fetched(self._app.secrets, launch)
        async with launcher.launch(variant, InstanceKey(variant.id, ""), secrets) as launched:
            shown = Redacted(launched, self._app.redact)
            if isinstance(launch, Process):
                shown.stderr.follow(lambda line: self._app.logs.add(variant.server, line))
            yield shown

    async def edit(self, change: Callable[[Edits], None]) -> None:
        def applied() -> Callable[[], None]:
            before = copy.deepcopy(self._edits)
            change(self._edits)
            self._app.configuration.edited = self._edited

            def undo() -> None:
                self._edits = before

            return undo

        await self._app.change(applied)

    def _edited(self, loaded: Loaded) -> Loaded:
        return edited(loaded, self._edits)

    async def forget(self) -> None:
        """The configuration is again as it is written. One that is not valid now is left for later."""
        if self._app.configuration.edited == self._edited:
            self._app.configuration.edited = None
            with suppress(ConfigError):
                await self._app.change(lambda: lambda: None)

    async def route(self, workspace: str, servers: tuple[str, ...]) -> None:
        def change(edits: Edits) -> None:
            edits.routed[workspace] = tuple(dict.fromkeys((*edits.routed.get(workspace, ()), *servers)))

        await self.edit(change)

    def behind(self, workspace: str, tool: str) -> tuple[str, str] | None:
        mounts = self._app.plan.workspaces[workspace].mounts if workspace in self._app.plan.workspaces else ()
        listings = self._app.listings.of(self._app.plan.variants)
        for mount in mounts:
            listing = listings.get(mount.variant)
            for item in listing.tools if listing is not None else ():
                if advertised(mount.prefix, item.name) == tool:
                    return mount.server, item.name
        return None


def own(workspace: str) -> str:
    """The variant of an agent's own functions. No server can have this name, for its slash."""
    return f"own:{workspace}"


@asynccontextmanager
async def agents(app: App, handler: Handler, models: Mapping[str, Any]) -> AsyncGenerator[AgentPool]:
    """The agents of the configuration as long as the block lasts."""
    if app.home is not None:
        raise ConfigError("Agents run in the process that opened their Mooring, with mooring.open().")
    async with AsyncExitStack() as stack, Tasks() as tasks:
        ground = Ground(app, stack, models)
        pool = AgentPool(ground, handler, tasks)
        app.on_applied.append(pool.applied)
        try:
            yield pool
        finally:
            app.on_applied.remove(pool.applied)
            await pool.close()
            await ground.forget()


def _roomy() -> str:
    """A temporary folder in which a socket can be: the path of one has 104 bytes at most on some systems."""
    usual = gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST else "/tmp"  # noqa: S108 (a private folder is made in it)
