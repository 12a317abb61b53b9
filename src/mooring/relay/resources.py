"""Resources: requests that are routed by a URI, and those who watch one."""

from __future__ import annotations

import asyncio

import msgspec

from mooring.relay import links, refusals
from mooring.relay.first_look import FirstLooks
from mooring.relay.forward import Forward
from mooring.relay.subscriptions import Listen, Subscriptions, Target
from mooring.relay.table import Route
from mooring.relay.views import Views
from mooring.relay.watching import Watching
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

_DONE = Answer(result=jsonrpc.EMPTY)
_KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


class Resources:
    """``resources/read``, ``subscribe``, ``unsubscribe`` and ``subscriptions/listen``."""

    def __init__(
        self, views: Views, looks: FirstLooks, forward: Forward, subscriptions: Subscriptions, watching: Watching
    ) -> None:
        self._views = views
        self._looks = looks
        self._forward = forward
        self._record = forward.record
        self._subscriptions = subscriptions
        self._watching = watching

    async def read(self, request: Request) -> Answer:
        """Read a resource."""
        parts = jsonrpc.decisive(request.params)
        uri = jsonrpc.string(parts.get("uri")) or ""
        route = await self._known(request, uri)
        if route is None:
            return self._denied(request, uri)
        answer = await self._forward.reported(request, route, jsonrpc.build(parts), uri)
        if answer.result is not None and (uris := links.in_contents(answer.result)):
            self._views.remember(request.session.principal.workspace, uris, route.variant.id)
        return answer

    async def subscribe(self, request: Request) -> Answer:
        """A legacy session watches a resource; the instance stays until it stops watching."""
        if request.era == "modern":
            return refusals.LEGACY_ONLY
        return await self._watch(request, _uri(request))

    async def unsubscribe(self, request: Request) -> Answer:
        """A legacy session stops watching."""
        if request.era == "modern":
            return refusals.LEGACY_ONLY
        uri = _uri(request)
        route = self._route(request, uri)
        target = self._subscriptions.target(request.session)
        if route is None or target is None:
            return self._denied(request, uri)
        return await self._record.carried(
            request, route, uri, request.params, self._unwatch(request, uri, route, target)
        )

    async def _unwatch(self, request: Request, uri: str, route: Route, target: Target) -> Answer:
        self._watching.unwatch(self._forward.key(request, route), uri, target)
        return _DONE

    async def listen(self, request: Request) -> Answer:
        """A modern client's stream of announcements; it lasts until the client cancels it. A legacy one could not: its
        calls go on when their connection ends."""
        if request.era == "legacy":
            return refusals.MODERN_ONLY
        wanted = jsonrpc.members(jsonrpc.members(request.params).get("notifications", jsonrpc.EMPTY))
        kinds = {member: kind for member, kind in _KINDS.items() if bytes(wanted.get(member, b"")) == b"true"}
        listen = Listen(request, frozenset(kinds.values()))
        try:
            with self._subscriptions.listening(listen):
                honoured = dict.fromkeys(kinds, b"true")
                uris = _strings(wanted.get("resourceSubscriptions"))
                answers = await asyncio.gather(*(self._watch(request, uri, listen) for uri in uris))
                watched = [uri for uri, answer in zip(uris, answers, strict=True) if answer.error is None]
                if watched:
                    honoured["resourceSubscriptions"] = jsonrpc.text(watched)
                listen.acknowledge(jsonrpc.build({"notifications": jsonrpc.build(honoured)}))
                await asyncio.get_running_loop().create_future()  # until cancelled: nothing else ends the stream
        finally:
            self._watching.forget(listen)
        return _DONE

    async def _watch(self, request: Request, uri: str, listen: Listen | None = None) -> Answer:
        route = await self._known(request, uri)
        target = listen or self._subscriptions.target(request.session)  # which may have ended while that was waited for
        if route is None or target is None:
            return self._denied(request, uri)
        key = self._forward.key(request, route)
        work = self._watching.watch(key, uri, target, lambda: self._forward.lease(request, route))
        return await self._record.carried(request, route, uri, request.params, work)

    def _denied(self, request: Request, uri: str) -> Answer:
        self._record.denied(request, uri, *self._views.of(request.session.principal).withheld(uri))
        return refusals.unknown("resource", uri=uri)

    async def _known(self, request: Request, uri: str) -> Route | None:
        """The route of a URI; where no list names it, servers that are seen for the first time are waited for."""
        view = self._views.of(request.session.principal)
        if view.missing and uri not in view.table.resources:
            await self._looks.wait(mount.variant for mount in view.mounts)
        return self._route(request, uri)

    def _route(self, request: Request, uri: str) -> Route | None:
        principal = request.session.principal
        route = self._views.of(principal).resource(uri, self._views.remembered(principal.workspace))
        return route if route is not None and self._views.allowed(principal, route) else None


def _uri(request: Request) -> str:
    return jsonrpc.string(jsonrpc.members(request.params).get("uri")) or ""


def _strings(raw: msgspec.Raw | None) -> list[str]:
    try:
        return msgspec.json.decode(raw or b"[]", type=list[str])
    except msgspec.DecodeError:
        return []
