"""The daemon's parts, put together: the only place that knows them all.

``App`` is used by the daemon (a home, a store file, fronts) and by the library (no home, a store in memory, no
port). What is opened together is closed together, in reverse order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from mooring import __version__
from mooring.access.keys import Keys
from mooring.access.login import Login
from mooring.access.pins import Pins
from mooring.config.names import prefix_of
from mooring.config.plan import REGISTRY, Audit, Gateway, Plan, Telemetry, Variant
from mooring.errors import ConfigError
from mooring.instances.opener import Demand
from mooring.instances.pool import Pool
from mooring.instances.spares import Spares
from mooring.launch.base import Launcher
from mooring.launch.kept import Keeper
from mooring.nouns import InstanceKey, PinRow, ReloadReport
from mooring.observe.audit import AuditLog
from mooring.observe.events import Event, Events, Sink
from mooring.observe.redact import Redactor
from mooring.observe.sinks import Metrics, describe, log_sink
from mooring.relay import bridge
from mooring.relay.first_look import FirstLooks
from mooring.relay.listener import InstanceListener
from mooring.relay.listings import Listings
from mooring.relay.parked import Parked
from mooring.relay.relay import Relay
from mooring.relay.subscriptions import Subscriptions
from mooring.relay.views import Views
from mooring.relay.watching import Watching
from mooring.serve.additions import Additions
from mooring.serve.builtin import Builtin
from mooring.serve.containers import Containers
from mooring.serve.denials import Denials
from mooring.serve.functions import FunctionServer, check_addition
from mooring.serve.kinds import unsupported
from mooring.serve.logs import Logs
from mooring.serve.reload import Configuration, changed_workspaces, changes_report
from mooring.serve.remembered import Remembered
from mooring.serve.starter import Starter
from mooring.serve.upstream import Upstream
from mooring.serve.verdicts import Verdicts
from mooring.store.base import Store
from mooring.tasks import Tasks
from mooring.wire.connection import Connection

if TYPE_CHECKING:
    from mooring.config.secrets import Secrets
    from mooring.export.base import Offer
    from mooring.export.litellm import LiteLLM
    from mooring.observe.otel import Otel
    from mooring.relay.methods import Methods
    from mooring.relay.stewards import Stewards
    from mooring.serve.registry import Registry
    from mooring.serve.verbs import Verbs


class App:
    """All parts, running. Made by ``serve.daemon`` and ``serve.library``."""

    def __init__(
        self, configuration: Configuration, store: Store, secrets: Secrets, keeper: Keeper, redact: Redactor
    ) -> None:
        """Raises ConfigError when the configuration is not valid."""
        self.configuration = configuration

        self.home = configuration.home
        self.store = store
        self.secrets = secrets
        self.started_at = time.time()
        self.endpoint = ""
        """URL of the data endpoint; "" without one."""
        self.public_url = ""
        """The same as others are told; "" without one."""
        self.config_error = ""
        """Why the newest configuration is not applied; "" when it is."""
        self.stopping = asyncio.Event()
        self.on_applied: list[Callable[[Plan], None]] = []
        """Called after every change of the plan, such as by the front to end sessions of removed workspaces."""
        self.metrics = Metrics()
        self.logs = Logs(redact)
        self.redact = redact
        containers = Containers(keeper, self.home, lambda: self._gateway.engine, self._report)
        self.denials = Denials()
        self.audit = AuditLog(self.home.audit_file, Audit(), redact) if self.home else None
        """None for the library, which has no place for it."""
        sinks: tuple[Sink, ...] = (log_sink, self.metrics, self.denials, *((self.audit,) if self.audit else ()))
        self.builtin = Builtin(keeper, self._report, containers, sinks, lambda: self.litellm)
        self.remembered = Remembered(store, configuration.file, lambda: configuration.plugins.mark)
        configuration.plugins.own["mooring"] = self.builtin
        self._resolved = self.remembered.recall() or configuration.resolved()
        """As the configuration has it, without what plugins and the library add."""
        collected = configuration.plugins.collected
        self.plugins = configuration.plugins.objects
        self.context = configuration.plugins.context
        self._guards = collected.guards
        self.events = Events(collected.sinks)
        self.telemetry: Otel | None = None
        """What sends traces and metrics to a collector, where there is one."""
        self.launchers: dict[str, Launcher] = collected.by_kind()
        self.plugin_problems = collected.problems
        self.keys = Keys(store, self.events)
        self.plan = Plan()
        self.listings = Listings(store)
        self.verdicts = Verdicts(store)
        self.pins = Pins(store, self.events)
        self.views = Views(self.plan, self.listings, self.pins.waiting)
        self.login = Login(self.keys, lambda: self.plan.workspaces)
        self.subscriptions = Subscriptions()
        starter = Starter(self.launchers, secrets, self.logs, redact, self.events)
        self.spares = Spares(starter.launched)
        self.upstream = Upstream(self.spares.launched, self.verdicts, self._listener, self.logs, redact, secrets)
        self.additions = Additions(store, self.events, secrets, unsupported, registry=self.home is not None)
        self.builtin.functions.offer(REGISTRY, self._registry_connection)
        self.pool: Pool
        self.tasks: Tasks
        self.looks: FirstLooks
        self.watching: Watching
        self.parked: Parked
        self.relay: Relay
        self._gateway = Gateway()
        """As it was at boot: what of it needs a restart still holds."""
        self._registry: Registry | None = None
        self._reloading = asyncio.Lock()
        self.looking = False
        """Whether servers that nobody has listed yet are looked at."""

    async def start(self, stack: AsyncExitStack) -> None:
        """Open what has tasks; ``stack`` ends it."""
        if self.audit:
            await stack.enter_async_context(self.audit)
        stack.push_async_callback(self._untold)
        self.keys.load()
        self.pins.load()
        plan = self._resolved
        self._gateway = plan.gateway
        self.additions.load()
        complete = self.additions.over(plan)
        self.listings.load(complete.variants.values())
        self.verdicts.load(complete.variants.values())
        await stack.enter_async_context(self.spares)
        self.pool = await stack.enter_async_context(
            Pool(
                self.upstream.open,
                self.events,
                listed=self.listed,
                max_starting=plan.gateway.max_starting,
                max_instances=plan.gateway.max_instances,
                complete=bridge.own,
            )
        )
        stack.callback(self.spares.dismiss)  # so that they end together with the instances
        self.tasks = tasks = await stack.enter_async_context(Tasks())
        self.looks = FirstLooks(self.pool, self.listings, self.views, tasks, plan.gateway.max_instances)
        self.watching = Watching(tasks)
        self.parked = Parked(tasks)
        stack.callback(self.subscriptions.close)

        def methods(stewards: Stewards) -> Methods:
            from mooring.relay.methods import Methods  # not before the first request

            parts = self.views, self.pool, self.looks, self.subscriptions, self.watching, self.parked, self.events
            return Methods(*parts, __version__, self._guards, stewards)

        self.relay = Relay(self.subscriptions, self.watching, self.events, methods)
        self._apply(plan)

    @cached_property
    def litellm(self) -> LiteLLM:
        """What keeps LiteLLM in step. Raises ConfigError in the library, which has no endpoint that LiteLLM could
        call."""
        from mooring.export.litellm import LiteLLM
        from mooring.export.litellm_vault import Vault

        if self.home is None:
            raise ConfigError("Only the daemon keeps LiteLLM in step; start it with: mooring up")
        return LiteLLM(self.store, Vault(self.secrets, self.keys))

    @cached_property
    def verbs(self) -> Verbs:
        """What the control socket and the library ask for by name."""
        from mooring.serve.verbs import Verbs

        return Verbs(self)

    def offer(self) -> Offer:
        """What exporters tell others."""
        from mooring.export.base import Offer

        return Offer(self.plan, self.public_url.removesuffix("/mcp"))

    def look(self) -> None:
        """From now on servers that nobody has listed yet are looked at. Called once the fronts listen: a daemon that
        cannot have its address must not have started anything."""
        self.looking = True
        self._look()

    def _look(self) -> None:
        self.tasks.create_task(self.builtin.containers.look_after(self.plan))
        self.looks.start(self.plan)
        self.spares.apply(self.plan.variants)

    async def remember(self) -> None:
        """Let the next boot start from this plan, if it was read now. Raises StoreError."""
        if self.configuration.read_at:
            await self.remembered.keep(self._resolved, self.configuration.read_at)

    async def reload(self) -> ReloadReport:
        """Load, resolve, compare, apply. An invalid configuration changes nothing."""
        async with self._reloading:
            try:
                plan = await self.configuration.read(look=True)
            except ConfigError as error:
                self.config_error = str(error)
                self.events.emit(Event("config.rejected", time.time(), data={"error": str(error)}))
                return ReloadReport(applied=False, error=str(error))
            self.config_error = ""
            report = await self._change(plan)
            await self.remember()
            return report

    async def add_functions(
        self, name: str, functions: Sequence[Callable[..., Any]], workspaces: tuple[str, ...] | None
    ) -> None:
        """Offer Python functions as a server (library only). Raises ConfigError."""
        async with self._reloading:
            plan = await self.configuration.read()
            check_addition(self.plan, name, workspaces)
            self.builtin.functions.add(name, functions)
            self.additions.functions[name] = FunctionServer(prefix_of(name), workspaces)
            await self._change(plan)

    async def change(self, edit: Callable[[], Callable[[], None]]) -> None:
        """Change at run time what the configuration is edited with: ``edit`` does it and returns how to undo it, which
        happens when the result is not valid or cannot be applied. Raises ConfigError, StoreError."""
        async with self._reloading:
            undo = edit()
            try:
                plan = await self.configuration.read()
                await self._change(plan)
            except BaseException:
                undo()
                raise

    async def adjust(self) -> None:
        """What there is besides the configuration changed, such as a mount: the plan follows. Raises StoreError."""
        async with self._reloading:
            await self._known(self._resolved)
            self._apply(self._resolved)

    @property
    def registry(self) -> Registry:
        """The catalog, and what was added of it."""
        if self._registry is None:
            from mooring.serve.catalog import Catalog
            from mooring.serve.registry import Registry  # who never looks for anything does not pay for it

            self._registry = Registry(self, Catalog(self))
        return self._registry

    def _registry_connection(self, key: InstanceKey) -> Connection:
        from mooring.serve.registry_server import RegistryConnection

        return RegistryConnection(self, key.scope.removeprefix("w:"))

    async def _known(self, plan: Plan) -> Plan:
        """The plan with all additions, once what is stored about its variants is in memory."""
        complete = self.additions.over(plan)
        await self.listings.fetch(complete.variants.values())
        await self.verdicts.fetch(complete.variants.values())
        return complete

    async def _change(self, plan: Plan) -> ReloadReport:
        await self.additions.renew()
        complete = await self._known(plan)
        running = msgspec.structs.replace(self.plan, gateway=self._gateway)
        report = changes_report(running, complete)
        outdated = self.configuration.plugins.outdated()
        report = msgspec.structs.replace(report, needs_restart=(*report.needs_restart, *outdated))
        self._resolved = plan
        self._apply(plan)
        data = {"added": report.added, "removed": report.removed, "changed": report.changed}
        self.events.emit(Event("config.applied", time.time(), data=data))
        return report

    def _apply(self, plan: Plan) -> None:
        """In this order: routes first, so that no new call goes to what is about to drain."""
        plan = msgspec.structs.replace(plan, problems=(*plan.problems, *self.plugin_problems))
        before, self.plan = self.plan, self.additions.over(plan)
        self.views.apply(self.plan)
        self.metrics.declare(
            (mount.workspace, mount.server) for room in self.plan.workspaces.values() for mount in room.mounts
        )
        if self.audit:
            self.audit.settings = self.plan.audit
        if self.plan.telemetry != before.telemetry and self.home:
            self._telemeter(self.plan.telemetry)
        self.watching.apply(self.plan)
        self.pool.apply(self.plan.variants, (mount for room in self.plan.workspaces.values() for mount in room.mounts))
        self._forget_others()
        if self.looking:
            self._look()
        self.subscriptions.changed(changed_workspaces(before, self.plan), ("tools", "prompts", "resources"))
        for applied in self.on_applied:
            applied(self.plan)

    def _forget_others(self) -> None:
        """What is known of servers and definitions that are not there any more goes: a daemon runs for months."""
        variants = self.plan.variants.values()
        self.listings.forget_others(variants)
        self.verdicts.forget_others(variants)
        self.pins.forget_others(self.plan.variants)
        self.denials.forget_others(self.plan.variants)
        self.logs.forget_others({variant.server for variant in variants})

    def _telemeter(self, wanted: Telemetry | None) -> None:
        """What a collector is sent from now on."""
        if self.telemetry is not None:
            self.telemetry.end()
        others = tuple(sink for sink in self.events.sinks if sink is not self.telemetry)
        self.telemetry = None
        if wanted is not None:
            from mooring.observe.otel import Otel  # who sends nothing does without it

            ready = ((row.instance, row.server) for row in self.pool.rows() if row.state == "ready")
            self.telemetry = Otel(wanted, ready)
        self.events.sinks = others if self.telemetry is None else (*others, self.telemetry)

    async def _untold(self) -> None:
        """Let the collector have the rest."""
        if self.telemetry is not None:
            self.telemetry.end()
            await self.telemetry.ended()

    def _report(self, name: str, variant: Variant, data: dict[str, Any]) -> None:
        """What a launcher has to say of a server that runs: for the event sinks, and for the server's own log."""
        event = Event(name, time.time(), server=variant.server, instance=variant.id, data=data)
        self.events.emit(event)
        self.logs.add(variant.server, f"[mooring] {describe(event)}")

    async def approve(self, variants: Mapping[str, str], fingerprints: Collection[str]) -> list[PinRow]:
        """Pin the tools of these variants (id to server) that are as somebody saw them, and offer what was withheld.
        Raises StoreError."""

        def offered(variant: str) -> None:
            if self.views.strict:
                self.subscriptions.changed(self.views.changed(variant), ("tools",))

        return await self.pins.approve(variants, fingerprints, offered)

    def _listener(self, variant: Variant, key: InstanceKey) -> InstanceListener:
        return InstanceListener(key, self.pool, self.watching)

    async def listed(self, variant: Variant, key: InstanceKey, connection: Connection, demand: Demand | None) -> None:
        """Called at every ``ready`` and after a list change: ask, keep, tell."""
        from mooring.serve.discovery import discovered  # not before the first server runs

        await discovered(self, variant, connection, demand)
