"""What Mooring does not know, passed on: methods and notifications of extensions, and those of the tasks extension.

Nothing in a method that nobody knows says whose it is. So it goes to the server of a workspace that has only one, where
that speaks the era of the client and no tool filter is there that it could get around. Made by ``relay.methods``.
"""

from __future__ import annotations

from mooring.access.policy import unrestricted
from mooring.config.plan import ToolRules
from mooring.errors import MooringError, Refused
from mooring.relay import refusals
from mooring.relay.forward import Forward
from mooring.relay.handles import Handles
from mooring.relay.table import Route
from mooring.relay.view import View
from mooring.relay.views import Views
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

_UNKNOWN_METHOD = jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "Mooring does not know this method.")
_NO_FILTER = ToolRules()


class Extensions:
    """Requests and notifications without a place of their own."""

    def __init__(self, views: Views, forward: Forward, handles: Handles) -> None:
        self._views = views
        self._forward = forward
        self._handles = handles

    async def task(self, request: Request) -> Answer:
        """A request about a task: to the server that handed it out."""
        principal = request.session.principal
        view = self._views.of(principal)
        id = jsonrpc.string(jsonrpc.decisive(request.params).get("taskId")) or ""
        route = self._handles.route(principal, id)
        if route is None:
            route = _only(view)  # which may know it from before Mooring was started
            return refusals.unknown("task") if route is None else await self._pass(request, route)
        mounted = any(mount.variant == route.variant.id for mount in view.mounts)
        if not mounted or not self._views.allowed(principal, route):
            return refusals.unknown("task")
        return await self._pass(request, route)

    async def unlisted(self, request: Request) -> Answer:
        """``tasks/list`` would show the tasks of others: who has a task has its id."""
        return _UNKNOWN_METHOD

    async def unknown(self, request: Request) -> Answer:
        """Any other method."""
        route = _only(self._views.of(request.session.principal))
        return _UNKNOWN_METHOD if route is None else await self._pass(request, route)

    def notified(self, session: Session, method: str, params: bytes) -> None:
        """A client's notification: to the servers that the session has to itself, and to the only one."""
        try:
            route = _only(self._views.of(session.principal))
        except Refused:
            return
        self._forward.notify(session, route, method, params)

    async def _pass(self, request: Request, route: Route) -> Answer:
        if not self._views.allowed(request.session.principal, route):
            return _UNKNOWN_METHOD
        try:
            return await self._forward.record.carried(request, route, "", request.params, self._passed(request, route))
        except MooringError as error:
            return refusals.failure(error)

    async def _passed(self, request: Request, route: Route) -> Answer:
        return await self._forward.verbatim(request, route) or _UNKNOWN_METHOD


def _only(view: View) -> Route | None:
    """The one server behind a view, if nothing of it is held back from this key."""
    if len(view.mounts) != 1 or len(view.table.mounts) != 1 or not view.table.owners or view.principal.tools:
        return None
    (route,) = view.table.owners
    free = (route.mount.tools, route.variant.tools) == (_NO_FILTER, _NO_FILTER) and unrestricted(view.policies)
    return route if free and not any(tool.about.blocked for tool in view.table.tools.values()) else None
