"""Task handles: which server gave one to whom, so that what is asked about a task later goes there.

An id is passed on as the server wrote it, so it is remembered here, with a bound. Ids are random by their nature, and
one counts for the key it was given to only. Filled and read by ``relay.calls`` and ``relay.extensions``.

Source: tasks extension ``io.modelcontextprotocol/tasks`` (2026-07-28); MCP 2025-11-25 "Tasks".
"""

from __future__ import annotations

from collections import OrderedDict

from mooring.nouns import Principal
from mooring.relay.table import Route
from mooring.wire import jsonrpc

REMEMBERED = 10_000
"""Handles kept for everybody together; beyond it the longest unused goes."""
SCAN_LIMIT = 1 << 16
"""Bytes of a result that may be a handle; larger ones are something else."""
SIGN = b'"taskId"'
"""What a result without a handle hardly holds."""


def handle_in(result: bytes) -> str | None:
    """The id of the task that a result hands out: modern at its top, legacy in its member ``task``."""
    if len(result) > SCAN_LIMIT or SIGN not in result:
        return None
    parts = jsonrpc.fields(result)
    if jsonrpc.string(parts.get("resultType")) == "task":
        return jsonrpc.string(parts.get("taskId"))
    return jsonrpc.string(jsonrpc.fields(parts.get("task")).get("taskId"))


class Handles:
    """The handles given out."""

    def __init__(self) -> None:
        self._routes: OrderedDict[tuple[str, str, str], Route] = OrderedDict()
        """By key, workspace and handle: who comes without a key may be in several workspaces."""

    def remember(self, principal: Principal, result: bytes, route: Route) -> None:
        """Keep the handle in a result, if it is one."""
        id = handle_in(result)
        if id is None:
            return
        place = principal.key_id, principal.workspace, id
        self._routes[place] = route
        self._routes.move_to_end(place)
        if len(self._routes) > REMEMBERED:
            self._routes.popitem(last=False)

    def route(self, principal: Principal, id: str) -> Route | None:
        """The route of the call that this key got the handle from."""
        place = principal.key_id, principal.workspace, id
        route = self._routes.get(place)
        if route is not None:
            self._routes.move_to_end(place)
        return route
