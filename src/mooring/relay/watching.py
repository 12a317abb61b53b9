"""Resource subscriptions: who watches which resource of which instance.

One owner task for each watched (instance, URI): it holds the lease that keeps the instance from idling, subscribes in
the server's era, and subscribes again when the server crashed and came back. It ends with its last watcher. Used by
``relay.resources``. Source: MCP 2025-11-25 "Resources: subscriptions"; 2026-07-28 "Subscriptions".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mooring.config.plan import Plan
from mooring.errors import MooringError
from mooring.nouns import InstanceKey
from mooring.relay import bridge, refusals
from mooring.relay.subscriptions import Target
from mooring.tasks import Tasks
from mooring.wire import jsonrpc
from mooring.wire.connection import Connection
from mooring.wire.jsonrpc import Answer

if TYPE_CHECKING:
    from mooring.instances.lease import Lease

GRACE = 5.0
"""Seconds that subscribing, or taking a subscription back, may take."""
PAUSE = 1.0
"""Seconds between two tries to subscribe again where nothing names another time."""

_ANY = "any"
"""Stands for every sharing."""
_UPDATED = "notifications/resources/updated"
_DONE = Answer(result=jsonrpc.EMPTY)
_GIVEN_UP = jsonrpc.failure(jsonrpc.INTERNAL_ERROR, "the subscription was given up")
_OVERDUE = jsonrpc.failure(jsonrpc.INTERNAL_ERROR, f"the server did not take the subscription within {GRACE:g} s")
Take = Callable[[], "Awaitable[Lease]"]


class _Watch:
    """One watched resource. It is the ``Caller`` of a modern server's listen request."""

    def __init__(self, key: InstanceKey, uri: str, take: Take) -> None:
        self.key = key
        self.uri = uri
        self.take = take
        self.targets: set[Target] = set()
        self.begun: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.headers: Mapping[str, str] = {}

    def heard(self, method: str, params: bytes) -> None:
        if method == _UPDATED:
            self.updated(params)
        elif method == "notifications/subscriptions/acknowledged":
            self.answered(_DONE)

    async def ask(self, method: str, params: bytes) -> Answer:
        return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "nobody can be asked here")

    def updated(self, params: bytes) -> None:
        for target in tuple(self.targets):
            target.tell(_UPDATED, params)

    def answered(self, answer: Answer) -> None:
        if not self.begun.done():
            self.begun.set_result(answer)


class Watching:
    """All watched resources. ``tasks`` owns the tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._watches: dict[tuple[InstanceKey, str], _Watch] = {}

    async def watch(self, key: InstanceKey, uri: str, target: Target, take: Take) -> Answer:
        """Let ``target`` hear updates of ``uri``; the answer is the server's to the first subscription."""
        watch = self._watches.get((key, uri))
        if watch is None:
            watch = _Watch(key, uri, take)
            self._begin(watch)
        watch.targets.add(target)
        answer = await asyncio.shield(watch.begun)
        if answer.error is not None:
            self._leave(watch, target)
        return answer

    def unwatch(self, key: InstanceKey, uri: str, target: Target) -> None:
        """Let ``target`` hear no more of ``uri``."""
        watch = self._watches.get((key, uri))
        if watch is not None:
            self._leave(watch, target)

    def forget(self, target: Target) -> None:
        """All subscriptions of a target end."""
        for watch in tuple(self._watches.values()):
            self._leave(watch, target)

    def apply(self, plan: Plan) -> None:
        """Another plan holds: who does not mount a server any more, or shares it otherwise, watches nothing there. A
        server whose definition changed is subscribed to anew, so that the old one can drain."""
        mounted = {
            (name, mount.variant, sharing)
            for name, workspace in plan.workspaces.items()
            for mount in workspace.mounts
            for sharing in (mount.sharing, _ANY)
        }
        for watch in tuple(self._watches.values()):
            for target in tuple(watch.targets):
                if (target.workspace, watch.key.variant, _sharing(watch.key.scope)) not in mounted:
                    self._leave(watch, target)
            if watch.targets and plan.variants[watch.key.variant].digest != watch.key.digest:
                self._end(watch)
                watch.key = msgspec.structs.replace(watch.key, digest=plan.variants[watch.key.variant].digest)
                self._begin(watch)

    def updated(self, key: InstanceKey, params: bytes) -> None:
        """A server said, outside any request, that a resource, or something below it, changed."""
        uri = jsonrpc.string(jsonrpc.members(params).get("uri")) or ""
        for watch in tuple(self._watches.values()):
            if watch.key == key and _covers(watch.uri, uri):
                watch.updated(params)

    def _begin(self, watch: _Watch) -> None:
        self._watches[watch.key, watch.uri] = watch
        watch.task = self._tasks.create_task(self._keep(watch))

    def _end(self, watch: _Watch) -> None:
        del self._watches[watch.key, watch.uri]
        if watch.task is not None:
            watch.task.cancel()

    def _leave(self, watch: _Watch, target: Target) -> None:
        if target in watch.targets:
            watch.targets.remove(target)
            if not watch.targets:
                self._end(watch)
                watch.answered(_GIVEN_UP)  # its task may have had no time to begin

    async def _keep(self, watch: _Watch) -> None:
        try:
            while True:
                try:
                    await self._subscribed(watch)
                except MooringError as error:
                    watch.answered(refusals.failure(error))
                    retry_at = error.details.get("retry_at") or 0.0
                    await asyncio.sleep(max(retry_at - time.time(), PAUSE))
        finally:
            if watch.task is asyncio.current_task():  # else it goes on with another definition
                watch.answered(_GIVEN_UP)

    async def _subscribed(self, watch: _Watch) -> None:
        """One subscription, from taking a lease until the server is gone or nobody watches any more."""
        lease = await watch.take()
        overdue = asyncio.get_running_loop().call_later(GRACE, watch.answered, _OVERDUE)
        try:
            connection = lease.connection
            if connection.facts.era == "modern":
                filters = jsonrpc.text({"notifications": {"resourceSubscriptions": [watch.uri]}})
                params = bridge.own(connection.facts, filters)
                ended = await connection.request("subscriptions/listen", params, watch)
                watch.answered(ended if ended.error is not None else _DONE)
                await asyncio.sleep(PAUSE)  # a server that ends its streams at once is not asked in a circle
                return
            watch.answered(await connection.request("resources/subscribe", jsonrpc.text({"uri": watch.uri})))
            try:
                await asyncio.shield(connection.closed)
            except asyncio.CancelledError:
                await _unsubscribe(connection, watch.uri)
                raise
        finally:
            overdue.cancel()
            lease.release()


def _sharing(scope: str) -> str:
    """The sharing of mounts whose instances have this scope; a session may have any to itself."""
    return _ANY if scope.startswith("s:") else "workspace" if scope.startswith("w:") else "shared"


def _covers(watched: str, uri: str) -> bool:
    """Whether ``uri`` is what is watched, or a part of it (which servers may name instead)."""
    return uri == watched or (uri.startswith(watched) and (watched[-1:] == "/" or uri[len(watched)] in "/?#"))


async def _unsubscribe(connection: Connection, uri: str) -> None:
    """Tell a legacy server, without waiting long: the watcher is gone either way."""
    try:
        async with asyncio.timeout(GRACE):
            await connection.request("resources/unsubscribe", jsonrpc.text({"uri": uri}))
    except (MooringError, TimeoutError):
        pass
