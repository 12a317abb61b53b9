"""How a variant becomes a running server: secrets, launcher, credentials. Spares and starts are launched by this alike.

Made by ``serve.app``, used by ``instances.spares``, and through it by ``serve.upstream``. It never speaks MCP.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mooring.config.plan import Variant
from mooring.config.plan_servers import Launch, credentials, references
from mooring.errors import NoLauncher
from mooring.instances.opener import Progress
from mooring.launch.base import Launched, Launcher, Pipes, Preparing
from mooring.nouns import InstanceKey
from mooring.observe.events import Event, Events
from mooring.serve.logs import Logs
from mooring.serve.redacted import Redacted

if TYPE_CHECKING:
    from mooring.config.logins import LoginPlace


class SecretSource(Protocol):
    """Where values of secret references come from, at the moment of a start; may block on disk."""

    def fetch_all(self, launch: Launch) -> dict[str, str]: ...

    def login(self, variant: str) -> LoginPlace: ...


async def fetched(secrets: SecretSource, launch: Launch) -> dict[str, str]:
    """The secrets that ``launch`` needs, looked up beside everything else. Raises ConfigError."""
    from mooring.launch.aside import aside  # most servers have no secrets

    return await aside(partial(secrets.fetch_all, launch), (secrets, *references(launch).items()))


class Starter:
    """Launches servers; what they say on stderr goes, redacted, to their log."""

    def __init__(
        self,
        launchers: Mapping[str, Launcher],
        secrets: SecretSource,
        logs: Logs,
        redact: Callable[[str], str],
        events: Events,
    ) -> None:
        """``launchers`` by the tag of ``config.plan_servers.Launch``."""
        self._launchers = launchers
        self._secrets = secrets
        self._logs = logs
        self._redact = redact
        self._events = events

    @asynccontextmanager
    async def launched(self, variant: Variant, key: InstanceKey, progress: Progress) -> AsyncGenerator[Launched, None]:
        """The server, running within the block and not spoken to yet. Raises StartFailed, LaunchMissing, NoLauncher,
        and ConfigError for a secret that cannot be had."""
        progress.phase("look-up")
        launcher = self._launchers.get(kind(variant))
        if launcher is None:
            raise NoLauncher(f"Nothing here can start {kind(variant)} servers.", server=variant.server)
        values = await fetched(self._secrets, variant.launch) if references(variant.launch) else {}
        if isinstance(launcher, Preparing):
            await launcher.prepare(variant, progress.phase, partial(self._logs.add, variant.server))
        progress.phase("start")
        smcp = credentials(variant.launch)
        secrets = {name: value for name, value in values.items() if name not in (smcp or {})}
        async with launcher.launch(variant, key, secrets) as started:
            launched = Redacted(started, self._redact)
            progress.spawned(launched)
            launched.stderr.follow(partial(self._logs.add, variant.server))
            if smcp is not None:
                progress.phase("credentials")
                given = {name: values[name] for name in smcp if name in values}
                launched.endpoint = await self._handshaken(variant, key, launched, given)
            yield launched

    async def _handshaken(
        self, variant: Variant, key: InstanceKey, launched: Launched, credentials: Mapping[str, str]
    ) -> Pipes:
        from mooring.launch.smcp import handshake  # few servers are of this kind

        def sent() -> None:
            data = {"keys": list(credentials)}
            self._events.emit(Event("credentials.sent", time.time(), "", variant.server, key.id, "", data))

        return await handshake(
            launched, credentials, server=variant.server, timeouts=variant.timeouts, redact=self._redact, sent=sent
        )


def kind(variant: Variant) -> str:
    """The tag of a variant's launch, which names its launcher."""
    return str(type(variant.launch).__struct_config__.tag)
