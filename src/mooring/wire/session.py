"""One conversation with a client, and one request in it: what a front hands to the relay.

Fronts (``wire.http_front``, ``wire.stdio_front``, the in-process client) implement ``Session`` and ``Request``;
``relay`` consumes them. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mooring.errors import MooringError, Refused
from mooring.nouns import Era, Principal
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer


class Session(Protocol):
    """Legacy: one MCP session. stdio: one shim's life. Modern HTTP: one object per key and endpoint, since nothing else
    lasts."""

    id: str
    """Unguessable; also the session scope id of instances."""
    principal: Principal
    era: Era
    version: str
    """Negotiated protocol version."""
    capabilities: bytes
    """Raw client capabilities of ``initialize``; ``{}`` for modern, where each request carries its own."""
    log_level: str | None
    """Set by ``logging/setLevel`` (legacy)."""
    on_close: list[Callable[[], None]]
    """Called once, in order, when the session ends."""
    closed: bool
    """It has ended, though calls of it may still go on."""

    def send(self, method: str, params: bytes | None) -> None:
        """A notification outside any request (legacy and stdio); dropped when nobody listens."""
        ...

    async def ask(self, method: str, params: bytes) -> Answer:
        """A request to the client outside any request of its own (legacy and stdio)."""
        ...


class Request(Protocol):
    """One client message that wants an answer. It is a ``wire.connection.Caller`` as well."""

    @property
    def session(self) -> Session: ...

    @property
    def raw_id(self) -> bytes:
        """The JSON-RPC id as raw JSON; names the stream of ``subscriptions/listen``."""
        ...

    @property
    def method(self) -> str: ...

    @property
    def params(self) -> bytes:
        """Raw JSON object; ``{}`` when the client sent none."""
        ...

    @property
    def era(self) -> Era:
        """The era of this very message (a stdio shim may speak both)."""
        ...

    @property
    def version(self) -> str: ...

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Of the HTTP request, by lowercase name; empty where the transport has none."""
        ...

    def heard(self, method: str, params: bytes) -> None:
        """Send a notification that belongs to this request back to the caller."""
        ...

    async def ask(self, method: str, params: bytes) -> Answer:
        """Ask the caller within this request. Answers -32601 where the client's era or capabilities rule it out."""
        ...


class Handler(Protocol):
    """What a front calls for each request; ``relay.relay.Relay`` is one. Cancelling the call is the
    client's cancellation."""

    async def handle(self, request: Request) -> Answer: ...

    def notified(self, session: Session, method: str, params: bytes) -> None:
        """A notification from the client that is not a cancellation of its own request."""
        ...

    def opened(self, session: Session) -> None:
        """A session began (legacy: ``initialize`` was answered)."""
        ...


def failed(error: MooringError) -> Answer:
    """A failure of Mooring that the relay has not put into words, for either front."""
    code = jsonrpc.INVALID_PARAMS if isinstance(error, Refused) else jsonrpc.INTERNAL_ERROR
    return jsonrpc.failure(code, error.message, error.shown())
