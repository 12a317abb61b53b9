"""Tools, prompts and completions: requests that are routed by an advertised name."""

from __future__ import annotations

import time

import msgspec

from mooring.access.policy import check
from mooring.errors import MooringError
from mooring.nouns import Principal
from mooring.observe.events import Event, Events
from mooring.relay import refusals
from mooring.relay.first_look import FirstLooks
from mooring.relay.forward import Forward, allowed, named
from mooring.relay.handles import Handles
from mooring.relay.table import Route
from mooring.relay.views import Views
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.param_headers import disagreement
from mooring.wire.session import Request

LINK_SCAN_LIMIT = 1 << 20
"""Bytes of a tool result that are searched for resource links; larger results are passed on unread."""
_LINK = b'"resource_link"'


class _Link(msgspec.Struct):
    type: str = ""
    uri: str = ""


class _Links(msgspec.Struct):
    content: list[_Link] = []


class Calls:
    """``tools/call``, ``prompts/get`` and ``completion/complete``."""

    def __init__(self, views: Views, looks: FirstLooks, forward: Forward, handles: Handles, events: Events) -> None:
        self._views = views
        self._handles = handles
        self._looks = looks
        self._forward = forward
        self._events = events

    async def tool(self, request: Request) -> Answer:
        """Call a tool. Every failure of Mooring is a result with ``isError``."""
        parts = jsonrpc.members(request.params)
        name = jsonrpc.string(parts.get("name")) or ""
        principal = request.session.principal
        try:
            route = self._views.of(principal).table.tools.get(name) or await self._unlisted(principal, name)
        except MooringError as error:
            return refusals.tool_failure(error, request.era)
        reason = "no such tool"
        if route is not None:
            decision = check(principal, "call", route.advertised, route.variant.id)
            reason = "" if decision.allowed else decision.reason
        if route is None or reason:
            data = {"tool": name, "key": principal.key_id, "reason": reason}
            self._events.emit(Event("policy.denied", time.time(), principal.workspace, data=data))
            return refusals.unknown_tool(request.era)
        if route.marks and request.era == "modern" and request.headers:
            mismatch = disagreement(route.marks, request.params, request.headers)
            if mismatch is not None:
                return mismatch
        answer = await self._timed(request, route, named(request, parts, "name", route))
        if answer.result is not None:
            self._remember_links(request, route, answer.result)
            self._handles.remember(principal, answer.result, route)
        return answer

    async def prompt(self, request: Request) -> Answer:
        """Get a prompt."""
        parts = jsonrpc.members(request.params)
        view = self._views.of(request.session.principal)
        route = view.table.prompts.get(jsonrpc.string(parts.get("name")) or "")
        if route is None or not allowed(request, route):
            return refusals.unknown("prompt")
        return await self._forward.reported(request, route, named(request, parts, "name", route))

    async def complete(self, request: Request) -> Answer:
        """Complete an argument of a prompt or of a resource template."""
        parts = jsonrpc.members(request.params)
        reference = jsonrpc.members(parts.get("ref", jsonrpc.EMPTY))
        view = self._views.of(request.session.principal)
        if jsonrpc.string(reference.get("type")) == "ref/prompt":
            route = view.table.prompts.get(jsonrpc.string(reference.get("name")) or "")
        else:
            route = view.template(jsonrpc.string(reference.get("uri")) or "")
        if route is None or not allowed(request, route):
            return refusals.unknown("prompt or resource")
        params = request.params
        if "name" in reference and route.advertised != route.upstream:
            renamed = jsonrpc.build({**reference, "name": jsonrpc.text(route.upstream)})
            params = jsonrpc.build({**parts, "ref": renamed})
        return await self._forward.reported(request, route, params)

    async def _unlisted(self, principal: Principal, name: str) -> Route | None:
        """A client may know a tool from an earlier day, while its server is listed again for the first time or cannot
        be. Raises what is in the way; None when no such server is behind the name."""
        view = self._views.of(principal)
        mounts = [
            mount
            for mount in view.mounts
            if mount.variant not in view.listings and name.startswith(mount.prefix and f"{mount.prefix}_")
        ]
        mount = max(mounts, key=lambda mount: len(mount.prefix), default=None)
        if mount is None or not check(principal, "call", name, mount.variant).allowed:
            return None
        await self._looks.needed(mount.variant)
        return self._views.of(principal).table.tools.get(name)

    async def _timed(self, request: Request, route: Route, params: bytes) -> Answer:
        started, clock = time.time(), time.perf_counter()
        outcome, received, failure = "cancelled", 0, None
        try:
            answer = await self._forward(request, route, params)
            outcome, received = ("ok", len(answer.result)) if answer.result is not None else ("error", 0)
        except MooringError as error:
            outcome, failure = "failed", error.kind
            answer = refusals.tool_failure(error, request.era)
        finally:
            principal = request.session.principal
            data = {
                "tool": route.advertised,
                "key": principal.key_id,
                "outcome": outcome,
                "seconds": time.perf_counter() - clock,
                "sent": len(params),
                "received": received,
            }
            if failure:
                data["error"] = failure
            self._events.emit(
                Event("call.finished", started, principal.workspace, route.mount.server, route.variant.id, "", data)
            )
        return answer

    def _remember_links(self, request: Request, route: Route, result: bytes) -> None:
        """A server may hand out URIs that it never lists; they must be readable afterwards."""
        if len(result) > LINK_SCAN_LIMIT or _LINK not in result:
            return
        try:
            links = msgspec.json.decode(result, type=_Links).content
        except msgspec.DecodeError:
            return
        uris = [link.uri for link in links if link.type == "resource_link" and link.uri]
        self._views.remember(request.session.principal.workspace, uris, route.variant.id)
