"""One conversation with a running server, whatever carries it. The contract that upstream transports fulfil.

Used by the relay (calls), by ``instances.listing`` (lists) and ``instances.health`` (ping). The transport owns ids,
progress tokens and cancellation; callers own meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from mooring.nouns import Facts
from mooring.wire.jsonrpc import Answer


class Caller(Protocol):
    """Where the things go that a server says while it works on a request."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What the request carries over HTTP to a modern server, besides the usual."""
        ...

    def heard(self, method: str, params: bytes) -> None:
        """A notification that belongs to this request: progress (token already the caller's own), log message."""
        ...

    async def ask(self, method: str, params: bytes) -> Answer:
        """The server asks its client (elicitation, sampling, roots) within this request; legacy era only."""
        ...


class Listener(Protocol):
    """Where the things go that a server says outside any request."""

    alone: bool
    """Whether all callers of this conversation are one client."""

    def announced(self, method: str, params: bytes) -> None:
        """list_changed, resources/updated, and log messages that belong to no single request."""
        ...

    async def asked(self, method: str, params: bytes) -> Answer:
        """A server request that cannot be tied to one running request."""
        ...


class Connection(Protocol):
    """A conversation that is past its handshake."""

    facts: Facts
    closed: asyncio.Future[str]
    """Resolves with the reason when the conversation is over; every pending request has failed with Crashed by then."""

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """Send a request, wait for its answer; no time limit of its own. ``params`` is a raw JSON object that is
        complete for this connection's era. If it holds ``_meta.progressToken``, the token is replaced on the way out
        and restored on the way back. Cancelling the awaiting task sends the cancellation upstream.

        Raises Crashed when the server goes away first; ``details["written"]`` tells whether the bytes had been handed
        to the pipe (then the request must not be repeated)."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification; lost silently if the conversation is over."""
        ...
