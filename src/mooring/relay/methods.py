"""Every request method and who serves it: the parts of the relay that only a request needs. Made by ``relay.relay``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from mooring.access.limits import Limits
from mooring.instances.pool import Pool
from mooring.observe.events import Events
from mooring.plugins.hooks import Guard
from mooring.relay.calls import Calls
from mooring.relay.confirm import Confirm
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
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

Serve = Callable[[Request], Awaitable[Answer]]


class Methods:
    """The table of methods. ``extensions`` serves what is not in it."""

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
        guards: Sequence[tuple[str, Guard]],
        stewards: Stewards,
    ) -> None:
        """``guards``: functions of plugins around every tool call, with their plugin's name."""
        limits = Limits()
        forward = Forward(views, pool, watching, parked, limits, events)
        handles = Handles()
        guarded = Guarded(forward, guards) if guards else forward
        self.confirm = Confirm(parked, events)
        calls = Calls(views, looks, guarded, handles, self.confirm, limits, forward.record, stewards)
        self.extensions = extensions = Extensions(views, forward, handles)
        resources = Resources(views, looks, forward, subscriptions, watching)
        greetings = Greetings(views, looks, stewards, version)
        self._served: dict[str, Serve] = {
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

    def of(self, method: str) -> Serve:
        """Who serves it."""
        return self._served.get(method, self.extensions.unknown)
