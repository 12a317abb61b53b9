"""One message's way there and back: the ``handle`` that every front calls, for every request kind.

    route in the caller's view -> policy -> lease -> rename -> connection -> answer

It knows nothing of bytes on a wire (``wire``) or of lifetimes (``instances``).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from mooring.access.limits import Limits
from mooring.instances.pool import Pool
from mooring.observe.events import Event, Events
from mooring.plugins.hooks import Guard
from mooring.relay.calls import Calls
from mooring.relay.confirm import Confirm
from mooring.relay.ending import Ending
from mooring.relay.extensions import Extensions
from mooring.relay.first_look import FirstLooks
from mooring.relay.forward import Forward
from mooring.relay.greetings import Greetings
from mooring.relay.guards import Guarded
from mooring.relay.handles import Handles
from mooring.relay.parked import Parked
from mooring.relay.resources import Resources
from mooring.relay.stewards import Stewards
from mooring.relay.subscriptions import Subscriptions
from mooring.relay.views import Views
from mooring.relay.watching import Watching
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

_OWN = frozenset(("notifications/initialized", "notifications/progress"))
"""Notifications that end here: the handshake is Mooring's own, and so are progress tokens."""


class Relay:
    """The request half of the gateway. Implements ``wire.session.Handler``."""

    def __init__(
        self,
        views: Views,
        pool: Pool,
        looks: FirstLooks,
        subscriptions: Subscriptions,
        watching: Watching,
        parked: Parked,
        events: Events,
        version: str,
        guards: Sequence[tuple[str, Guard]] = (),
    ) -> None:
        """``guards``: functions of plugins around every tool call, with their plugin's name."""
        self._subscriptions = subscriptions
        self._watching = watching
        self._events = events
        self.stewards: Stewards = {}
        """Those who look at the tool calls of a workspace first."""
        self._ending = Ending()
        limits = Limits()
        forward = Forward(views, pool, watching, parked, limits)
        handles = Handles()
        guarded = Guarded(forward, guards) if guards else forward
        calls = Calls(views, looks, guarded, handles, Confirm(parked, events), limits, events, self.stewards)
        self._extensions = extensions = Extensions(views, forward, handles)
        resources = Resources(views, looks, forward, subscriptions, watching)
        greetings = Greetings(views, looks, self.stewards, version)
        self._methods: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "tools/call": calls.tool,
            "prompts/get": calls.prompt,
            "completion/complete": calls.complete,
            "resources/read": resources.read,
            "resources/subscribe": resources.subscribe,
            "resources/unsubscribe": resources.unsubscribe,
            "subscriptions/listen": resources.listen,
            "initialize": greetings.initialize,
            "server/discover": greetings.discover,
            "tools/list": greetings.list,
            "prompts/list": greetings.list,
            "resources/list": greetings.list,
            "resources/templates/list": greetings.list,
            "ping": greetings.ping,
            "logging/setLevel": greetings.set_level,
            "tasks/get": extensions.task,
            "tasks/result": extensions.task,
            "tasks/update": extensions.task,
            "tasks/cancel": extensions.task,
            "tasks/list": extensions.unlisted,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer any request. Raises Refused when the caller's workspace is gone."""
        serve = self._methods.get(request.method, self._extensions.unknown)
        try:
            return await self._ending.run(request, serve)
        except jsonrpc.BadFrame as error:
            return jsonrpc.failure(error.code, f"{request.method}: {error}")

    async def stop(self) -> None:
        """Take no more requests, and have those under way answered: by their servers within a grace, else with an
        error that says why. Bounded."""
        await self._ending.stop()

    def notified(self, session: Session, method: str, params: bytes) -> None:
        """A client's notification that its front does not handle itself."""
        if method not in _OWN:
            self._extensions.notified(session, method, params)

    def opened(self, session: Session) -> None:
        """A session began: it hears list changes until it ends."""
        target = self._subscriptions.opened(session)
        workspace = session.principal.workspace
        self._events.emit(Event("session.opened", time.time(), workspace))

        def closed() -> None:
            self._watching.forget(target)
            self._events.emit(Event("session.closed", time.time(), workspace))

        session.on_close.append(closed)
