"""How a variant becomes a conversation: secrets, launcher, credentials, MCP. ``serve.app`` gives it to the pool.

Runs inside the owner task of one instance; leaving the block ends the server. Each step is named, so that a failure
says where it happened; what a failure says holds no secret, even where the server said it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from mooring.config.plan import CLIENT_SECRET, Launch, Remote, Variant, credentials, references
from mooring.errors import MooringError, NoLauncher, StartFailed
from mooring.instances.opener import Birth, Running
from mooring.launch.base import Launched, Launcher, Local, Pipes, Url
from mooring.nouns import Era, InstanceKey
from mooring.observe.events import Event, Events
from mooring.observe.redact import Redactor
from mooring.serve.logs import Logs
from mooring.serve.redacted import Redacted
from mooring.serve.verdicts import Verdicts
from mooring.wire.connection import Connection, Listener

if TYPE_CHECKING:
    from mooring.config.logins import LoginPlace
    from mooring.wire.bearer import Bearer

STRAY_SHOWN = 200
"""Characters shown of a line on stdout that is no message."""
STRAY_READ = 4096
"""Bytes of it that are looked at for secrets."""


class SecretSource(Protocol):
    """Where values of secret references come from, at the moment of a start; may block on disk."""

    def fetch_all(self, launch: Launch) -> dict[str, str]: ...

    def login(self, variant: str) -> LoginPlace: ...


class Upstream:
    """Opens instances."""

    def __init__(
        self,
        launchers: Mapping[str, Launcher],
        secrets: SecretSource,
        verdicts: Verdicts,
        listener: Callable[[Variant, InstanceKey], Listener],
        logs: Logs,
        redact: Redactor,
        events: Events,
    ) -> None:
        """``launchers`` by the tag of ``config.plan.Launch``; ``listener`` hears what is said outside calls."""
        self._launchers = launchers
        self._secrets = secrets
        self._verdicts = verdicts
        self._listener = listener
        self._logs = logs
        self._redact = redact
        self._events = events

    @asynccontextmanager
    async def open(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncGenerator[Running, None]:
        """Start ``variant`` and speak with it. Raises StartFailed, LaunchMissing, NoLauncher, UpstreamProtocol."""
        try:
            async with self._opened(variant, key, birth) as running:
                yield running
        except Exception as error:  # its text may be the server's
            error.args = tuple(self._redact(arg) if isinstance(arg, str) else arg for arg in error.args)
            raise

    @asynccontextmanager
    async def _opened(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncGenerator[Running, None]:
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
        smcp = credentials(variant.launch)
        secrets = {name: value for name, value in values.items() if name not in (smcp or {})}
        async with launcher.launch(variant, key, secrets) as started:
            launched = Redacted(started, self._redact)
            birth.spawned(launched)
            launched.stderr.follow(partial(self._logs.add, variant.server))
            if smcp is not None:
                birth.phase("credentials")
                given = {name: values[name] for name in smcp if name in values}
                launched.endpoint = await self._handshaken(variant, key, launched, given)
            birth.phase("initialize")
            async with self._connected(variant, key, launched, birth, era, values) as connection:
                if birth.demand is None:
                    await self._verdicts.put(variant, connection.facts)
                yield Running(connection, launched)

    async def _handshaken(
        self, variant: Variant, key: InstanceKey, launched: Launched, credentials: Mapping[str, str]
    ) -> Pipes:
        from mooring.launch.smcp import handshake  # few servers are of this kind

        def sent() -> None:
            data = {"keys": list(credentials), "digest": key.digest[:12]}
            self._events.emit(Event("credentials.sent", time.time(), "", variant.server, variant.id, "", data))

        return await handshake(
            launched, credentials, server=variant.server, timeouts=variant.timeouts, redact=self._redact, sent=sent
        )

    @asynccontextmanager
    async def _connected(
        self,
        variant: Variant,
        key: InstanceKey,
        launched: Launched,
        birth: Birth,
        era: Era | None,
        values: Mapping[str, str],
    ) -> AsyncGenerator[Connection, None]:
        demand = birth.demand
        listener = demand.listener if demand else self._listener(variant, key)
        match launched.endpoint:
            case Local(connection):
                yield connection
            case Pipes() as pipes:
                from mooring.wire import stdio_upstream

                stray = _Stray(partial(self._logs.add, variant.server), self._redact)
                try:
                    async with stdio_upstream.connect(
                        pipes,
                        exited=launched.exited,
                        listener=listener,
                        era=era,
                        capabilities=demand.capabilities if demand else b"{}",
                        timeout=variant.timeouts.initialize,
                        phase=birth.phase,
                        name=variant.server,
                        stray=stray,
                    ) as connection:
                        stray.check(variant.server)
                        yield connection
                except MooringError:
                    stray.check(variant.server)
                    raise
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
                    auth=self._auth(variant, url.url, values),
                )
                async with remote_upstream.connect(url, terms) as connection:
                    yield connection

    def _auth(self, variant: Variant, url: str, values: Mapping[str, str]) -> Bearer | None:
        if not (isinstance(variant.launch, Remote) and variant.launch.auth == "oauth"):
            return None
        from mooring.wire.bearer import Bearer

        place = self._secrets.login(variant.id)
        return Bearer(variant.server, url, place, values.get(CLIENT_SECRET, ""), self._redact.add)


class _Stray:
    """What a server prints on stdout that is no message goes to its log, where its author looks for it."""

    def __init__(self, log: Callable[[str], None], redact: Callable[[str], str]) -> None:
        self._log = log
        self._redact = redact
        self._asks = False

    def __call__(self, line: bytes, why: str) -> None:
        self._asks = self._asks or line.rstrip() == b"+READY"
        text = self._redact(line[:STRAY_READ].decode("utf-8", "replace"))  # before it is cut for the eye
        self._log(f"[stdout, {why}] {text[:STRAY_SHOWN]}")

    def check(self, server: str) -> None:
        """Raises StartFailed when the server is an SMCP server, of which the configuration does not know."""
        if self._asks:
            message = (
                f'Server "{server}" asks for credentials (+READY): it is an SMCP server. '
                "Give it its credentials, or if it needs none: credentials = {}"
            )
            raise StartFailed(message, server=server, phase="initialize")


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
