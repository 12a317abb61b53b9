"""How a variant becomes a conversation: secrets, launcher, handshake. The ``Opener`` that ``serve.app`` gives the pool.

Runs inside the owner task of one instance; leaving the block ends the server. Each step is named, so that a failure
says where it happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Protocol

from mooring.config.plan import Launch, Variant, references
from mooring.errors import NoLauncher
from mooring.instances.opener import Birth, Running
from mooring.launch.base import Launched, Launcher, Local, Pipes, Url
from mooring.nouns import Era, InstanceKey
from mooring.serve.logs import Logs
from mooring.serve.redacted import Redacted
from mooring.serve.verdicts import Verdicts
from mooring.wire.connection import Connection, Listener

STRAY_SHOWN = 200
"""Bytes shown of a line on stdout that is no message."""


class SecretSource(Protocol):
    """Where values of secret references come from, at the moment of a start; may block on disk."""

    def fetch_all(self, launch: Launch) -> dict[str, str]: ...


class Upstream:
    """Opens instances."""

    def __init__(
        self,
        launchers: Mapping[str, Launcher],
        secrets: SecretSource,
        verdicts: Verdicts,
        listener: Callable[[Variant, InstanceKey], Listener],
        logs: Logs,
        redact: Callable[[str], str],
    ) -> None:
        """``launchers`` by the tag of ``config.plan.Launch``; ``listener`` hears what is said outside calls."""
        self._launchers = launchers
        self._secrets = secrets
        self._verdicts = verdicts
        self._listener = listener
        self._logs = logs
        self._redact = redact

    @asynccontextmanager
    async def open(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncGenerator[Running, None]:
        """Start ``variant`` and speak with it. Raises StartFailed, LaunchMissing, NoLauncher, UpstreamProtocol."""
        from mooring.wire import stdio_upstream

        birth.phase("look-up")
        launcher = self._launchers.get(kind(variant))
        if launcher is None:
            raise NoLauncher(f"Nothing here can start {kind(variant)} servers.", server=variant.server)
        # In a thread, as it may block; but most servers have no secrets, and a thread costs memory for good.
        needed = bool(references(variant.launch))
        values = await asyncio.to_thread(self._secrets.fetch_all, variant.launch) if needed else {}
        era = birth.demand.era if birth.demand else self._verdicts.get(variant)
        try:
            async with self._attempt(launcher, variant, key, values, birth, era) as running:
                yield running
                return
        except stdio_upstream.NeedsRespawn as probe:
            era = probe.era
        # It ended at the sight of the probe: a fresh process, spoken to in the other era from its first byte.
        async with self._attempt(launcher, variant, key, values, birth, era) as running:
            yield running

    @asynccontextmanager
    async def _attempt(
        self,
        launcher: Launcher,
        variant: Variant,
        key: InstanceKey,
        values: Mapping[str, str],
        birth: Birth,
        era: Era | None,
    ) -> AsyncGenerator[Running, None]:
        birth.phase("start")
        async with launcher.launch(variant, key, values) as started:
            launched = Redacted(started, self._redact)
            birth.spawned(launched)
            launched.stderr.follow(partial(self._logs.add, variant.server))
            birth.phase("initialize")
            async with self._connected(variant, key, launched, birth, era) as connection:
                if birth.demand is None:
                    await self._verdicts.put(variant, connection.facts)
                yield Running(connection, launched)

    @asynccontextmanager
    async def _connected(
        self, variant: Variant, key: InstanceKey, launched: Launched, birth: Birth, era: Era | None
    ) -> AsyncGenerator[Connection, None]:
        demand = birth.demand
        listener = demand.listener if demand else self._listener(variant, key)
        match launched.endpoint:
            case Local(connection):
                yield connection
            case Pipes() as pipes:
                from mooring.wire import stdio_upstream

                async with stdio_upstream.connect(
                    pipes,
                    exited=launched.exited,
                    listener=listener,
                    era=era,
                    capabilities=demand.capabilities if demand else b"{}",
                    timeout=variant.timeouts.initialize,
                    phase=birth.phase,
                    name=variant.server,
                    stray=partial(self._stray, variant.server),
                ) as connection:
                    yield connection
            case Url() as url:
                await asyncio.to_thread(_load_http)
                from mooring.wire import remote_upstream

                starting = launched.pid is not None or launched.container is not None
                terms = remote_upstream.Terms(
                    name=variant.server,
                    exited=launched.exited,
                    listener=listener,
                    capabilities=demand.capabilities if demand else b"{}",
                    timeout=variant.timeouts.start if starting else variant.timeouts.initialize,
                    phase=birth.phase,
                    era=era,
                    starting=starting,
                )
                async with remote_upstream.connect(url, terms) as connection:
                    yield connection

    def _stray(self, server: str, line: bytes, why: str) -> None:
        """What a server prints on stdout that is no message goes to its log, where its author looks for it."""
        self._logs.add(server, f"[stdout, {why}] {line[:STRAY_SHOWN].decode('utf-8', 'replace')}")


def prepare() -> None:
    """Load what the first start of a process needs. Called once the daemon serves: its boot does without."""
    import_module("mooring.wire.stdio_upstream")


def _load_http() -> None:
    """The HTTP library and the certificates take a while to load, and not every daemon needs them."""
    import_module("mooring.wire.remote_upstream")
    import_module("mooring.wire.http_client").tls_context()


def kind(variant: Variant) -> str:
    """The tag of a variant's launch, which names its launcher."""
    return str(type(variant.launch).__struct_config__.tag)
