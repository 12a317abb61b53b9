"""One message's way there and back: the ``handle`` that every front calls, for every request kind.

    route in the caller's view -> policy -> lease -> rename -> connection -> answer

It knows nothing of bytes on a wire (``wire``) or of lifetimes (``instances``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from mooring.observe.events import Event, Events
from mooring.relay.ending import Ending
from mooring.relay.subscriptions import Subscriptions
from mooring.relay.watching import Watching
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

if TYPE_CHECKING:
    from mooring.relay.methods import Methods
    from mooring.relay.stewards import Stewards

_OWN = frozenset(("notifications/initialized", "notifications/progress"))
"""Notifications that end here: the handshake is Mooring's own, and so are progress tokens."""


class Relay:
    """The request half of the gateway. Implements ``wire.session.Handler``."""

    def __init__(
        self, subscriptions: Subscriptions, watching: Watching, events: Events, methods: Callable[[Stewards], Methods]
    ) -> None:
        """``methods`` is called for the first request."""
        self._subscriptions = subscriptions
        self._watching = watching
        self._events = events
        self._load = methods
        self.stewards: Stewards = {}
        """Those who look at the tool calls of a workspace first."""
        self._ending = Ending()

    @cached_property
    def methods(self) -> Methods:
        """What serves requests, loaded for the first: a daemon is ready before it can serve, and serves when asked."""
        return self._load(self.stewards)

    async def handle(self, request: Request) -> Answer:
        """Answer any request. Raises Refused when the caller's workspace is gone."""
        try:
            return await self._ending.run(request, self.methods.of(request.method))
        except jsonrpc.BadFrame as error:
            return jsonrpc.failure(error.code, f"{request.method}: {error}")

    async def stop(self) -> None:
        """Take no more requests, and have those under way answered: by their servers within a grace, else with an
        error that says why. Bounded."""
        await self._ending.stop()

    def notified(self, session: Session, method: str, params: bytes) -> None:
        """A client's notification that its front does not handle itself."""
        if method not in _OWN:
            self.methods.extensions.notified(session, method, params)

    def opened(self, session: Session) -> None:
        """A session began: it hears list changes until it ends."""
        target = self._subscriptions.opened(session)
        workspace = session.principal.workspace
        self._events.emit(Event("session.opened", time.time(), workspace))

        def closed() -> None:
            self._watching.forget(target)
            self._events.emit(Event("session.closed", time.time(), workspace))

        session.on_close.append(closed)
