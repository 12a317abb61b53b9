"""What an instance says outside any call, and who hears it.

Made by ``serve.app`` for instances that nobody owns alone, by ``relay.forward`` for those that one session has to
itself; handed to the connection.
"""

from __future__ import annotations

import asyncio

from mooring.instances.pool import Pool
from mooring.nouns import InstanceKey
from mooring.relay.watching import Watching
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Session

_REFUSED = jsonrpc.failure(
    jsonrpc.METHOD_NOT_FOUND, "This server is shared by several callers; it can ask none of them outside a call."
)

_NOBODY = {
    "roots/list": Answer(result=b'{"roots":[]}'),
    "elicitation/create": Answer(result=b'{"action":"cancel"}'),
}


class InstanceListener:
    """Implements ``wire.connection.Listener`` for an instance that nobody owns alone."""

    alone = False

    def __init__(self, key: InstanceKey, pool: Pool, watching: Watching) -> None:
        self._key = key
        self._pool = pool
        self._watching = watching

    def announced(self, method: str, params: bytes) -> None:
        """List changes lead to a fresh listing, updates to the watchers. A log message that belongs to no single call
        reaches nobody: it could be about another caller's data."""
        if method.endswith("/list_changed"):
            self._pool.relist(self._key)
        elif method == "notifications/resources/updated":
            self._watching.updated(self._key, params)

    async def asked(self, method: str, params: bytes) -> Answer:
        """Nobody can answer."""
        return _REFUSED


class LookListener:
    """For an instance that is only looked at: nobody is there, which is said the way a client would say it."""

    alone = False

    def __init__(self, key: InstanceKey, pool: Pool) -> None:
        self._key = key
        self._pool = pool

    def announced(self, method: str, params: bytes) -> None:
        """Lists that change meanwhile are taken anew."""
        if method.endswith("/list_changed"):
            self._pool.relist(self._key)

    async def asked(self, method: str, params: bytes) -> Answer:
        """No roots, no consent."""
        return _NOBODY.get(method, _REFUSED)


class SessionListener(InstanceListener):
    """For an instance that belongs to one caller session: that hears its log messages and answers its questions."""

    alone = True

    def __init__(self, key: InstanceKey, pool: Pool, watching: Watching, session: Session) -> None:
        super().__init__(key, pool, watching)
        self._session = session

    def announced(self, method: str, params: bytes) -> None:
        """Changes go where they always go, all else to the session: log messages that it wants, and what nobody
        knows."""
        if method.endswith(("/list_changed", "resources/updated")):
            super().announced(method, params)
        elif method != "notifications/message" or self._wants(params):
            self._session.send(method, params)

    def _wants(self, params: bytes) -> bool:
        from mooring.relay import levels  # not needed before somebody calls

        return levels.reached(self._session.log_level or "debug", params)

    async def asked(self, method: str, params: bytes) -> Answer:
        """The session answers, in time or not at all."""
        from mooring.relay import exchange  # not needed before somebody calls

        try:
            async with asyncio.timeout(exchange.QUESTION_LIMIT):
                return await self._session.ask(method, params)
        except TimeoutError:
            return exchange.unanswered(method)
