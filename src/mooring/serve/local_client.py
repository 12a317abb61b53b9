"""The local user as a client of the relay: ``mooring call`` and the library go the way of any other call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mooring.nouns import Era, Principal
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer

_WHAT = {"notifications/progress": "progress", "notifications/message": "log"}


class LocalSession:
    """One verb's conversation; its principal may do what the workspace may. All of a workspace's have one id, as all
    requests of a key have: what belongs to a session lasts from one verb to the next."""

    era: Era = "legacy"
    closed = False

    def __init__(self, workspace: str) -> None:
        self.id = f"local:{workspace}"
        self.principal = Principal(f"local:{workspace}", workspace)
        self.version = eras.LEGACY_VERSIONS[0]
        self.capabilities = jsonrpc.EMPTY
        self.log_level: str | None = None
        self.on_close: list[Callable[[], None]] = []

    def send(self, method: str, params: bytes | None) -> None:
        """Nobody listens between calls."""

    async def ask(self, method: str, params: bytes) -> Answer:
        """Nobody can be asked."""
        return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "the command line answers no questions")


class LocalRequest:
    """One request of a verb; progress and log messages go to ``heard``."""

    raw_id = b"1"
    era: Era = "legacy"

    def __init__(
        self, session: LocalSession, method: str, params: bytes, heard: Callable[[str, Any], None] | None = None
    ) -> None:
        self.session = session
        self.method = method
        self.params = params
        self.version = session.version
        self.headers: Mapping[bytes, bytes] = {}
        self._heard = heard

    def heard(self, method: str, params: bytes) -> None:
        if self._heard is not None and method in _WHAT:
            self._heard(_WHAT[method], jsonrpc.value(params))

    async def ask(self, method: str, params: bytes) -> Answer:
        return await self.session.ask(method, params)
