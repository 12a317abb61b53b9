"""How a variant becomes a conversation: a start, or a spare, then MCP. ``serve.app`` gives it to the pool.

Runs inside the owner task of one instance; leaving the block ends the server. Each step is named, so that a failure
says where it happened; what a failure says holds no secret, even where the server said it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from mooring.config.plan import Variant
from mooring.config.plan_servers import CLIENT_SECRET, Remote, references
from mooring.errors import MooringError, StartFailed
from mooring.instances.opener import Birth, Progress, Running
from mooring.launch.base import Launched, Local, Pipes, Settling, Url
from mooring.nouns import Era, InstanceKey
from mooring.observe.redact import Redactor
from mooring.serve.logs import Logs
from mooring.serve.starter import SecretSource, fetched
from mooring.serve.verdicts import Verdicts
from mooring.wire.connection import Connection, Listener

if TYPE_CHECKING:
    from mooring.config.logins import LoginPlace
    from mooring.wire.bearer import Bearer

STRAY_SHOWN = 200
"""Characters shown of a line on stdout that is no message."""
STRAY_READ = 4096
"""Bytes of it that are looked at for secrets."""


class Start(Protocol):
    """How a server comes into existence: ``serve.starter``, or a spare that it made earlier."""

    def __call__(
        self, variant: Variant, key: InstanceKey, progress: Progress
    ) -> AbstractAsyncContextManager[Launched]: ...


class Upstream:
    """Opens instances."""

    def __init__(
        self,
        start: Start,
        verdicts: Verdicts,
        listener: Callable[[Variant, InstanceKey], Listener],
        logs: Logs,
        redact: Redactor,
        secrets: SecretSource,
    ) -> None:
        """``listener`` hears what is said outside calls."""
        self._start = start
        self._verdicts = verdicts
        self._listener = listener
        self._logs = logs
        self._redact = redact
        self._secrets = secrets
        self._renewing: dict[str, asyncio.Lock] = {}
        """By variant: its conversations have one login."""

    @asynccontextmanager
    async def open(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncGenerator[Running, None]:
        """Start ``variant`` and speak with it. Raises what the start raises, and UpstreamProtocol."""
        try:
            async with self._opened(variant, key, birth) as running:
                yield running
        except Exception as error:  # its text may be the server's
            error.args = tuple(self._redact(arg) if isinstance(arg, str) else arg for arg in error.args)
            raise

    @asynccontextmanager
    async def _opened(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncGenerator[Running, None]:
        from mooring.wire import stdio_upstream

        era = (birth.demand and birth.demand.era) or self._verdicts.get(variant)
        try:
            async with self._attempt(variant, key, birth, era) as running:
                yield running
                return
        except stdio_upstream.NeedsRespawn as probe:
            era = probe.era
        # It ended at the sight of the probe: a fresh process, spoken to in the other era from its first byte.
        async with self._attempt(variant, key, birth, era) as running:
            yield running

    @asynccontextmanager
    async def _attempt(
        self, variant: Variant, key: InstanceKey, birth: Birth, era: Era | None
    ) -> AsyncGenerator[Running, None]:
        async with self._start(variant, key, birth) as launched:
            birth.spawned(launched)
            birth.phase("initialize")
            async with self._connected(variant, key, launched, birth, era) as connection:
                if isinstance(launched, Settling):
                    launched.answered()
                if birth.demand is None or birth.demand.era is None:
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
                    auth=await self._auth(variant, url.url),
                )
                async with remote_upstream.connect(url, terms) as connection:
                    yield connection

    async def _auth(self, variant: Variant, url: str) -> Bearer | None:
        launch = variant.launch
        if not (isinstance(launch, Remote) and launch.auth == "oauth"):
            return None
        from mooring.wire.bearer import Bearer

        needed = CLIENT_SECRET in references(launch)
        values = await fetched(self._secrets, launch) if needed else {}
        place = Place(self._secrets.login(variant.id), (self._secrets, "login", variant.id))
        turn = self._renewing.setdefault(variant.id, asyncio.Lock())
        return Bearer(variant.server, url, place, values.get(CLIENT_SECRET, ""), self._redact.add, turn)


class Place:
    """Implements ``wire.bearer.Place``: a keyring may hang, which keeps nobody else waiting."""

    def __init__(self, place: LoginPlace, about: Hashable) -> None:
        """``about``: equal for those that read the same."""
        self._place = place
        self._about = about

    async def read(self) -> bytes | None:
        """What is kept. Raises ConfigError."""
        from mooring.launch.aside import aside  # few servers are logged in at

        return await aside(self._place.read, self._about)

    async def change(self, to: Callable[[bytes | None], bytes | None]) -> None:
        """Replace what is kept. Raises ConfigError."""
        from mooring.launch.aside import aside

        await aside(partial(self._place.change, to))


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
    """Load what the first call and the first start of a process need. Called once the daemon serves: its boot does
    without."""
    for name in ("relay.methods", "instances.instance", "instances.listing", "launch.process", "wire.stdio_upstream"):
        import_module(f"mooring.{name}")


def _load_http() -> None:
    """The HTTP library and the certificates take a while to load, and not every daemon needs them."""
    import_module("mooring.wire.remote_upstream")
    import_module("mooring.wire.http_client").tls_context()
