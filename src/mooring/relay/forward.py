"""A routed request to its server and back: lease, rename, connection, answer. Used by the parts of the relay.

A request whose bytes were written is never sent twice; one that was not moves on to the next instance, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping

from msgspec import Raw

from mooring.access.limits import Limits
from mooring.config.plan import Variant
from mooring.config.plan_servers import Remote
from mooring.errors import Crashed, MooringError, Refused, TimedOut, Unavailable
from mooring.instances.lease import Lease
from mooring.instances.opener import Demand
from mooring.instances.pool import Pool
from mooring.nouns import Facts, InstanceKey
from mooring.observe.events import Events
from mooring.relay import bridge, refusals
from mooring.relay.deadlines import Deadlines
from mooring.relay.exchange import Exchange
from mooring.relay.levels import Levels, wanted
from mooring.relay.listener import InstanceListener, SessionListener
from mooring.relay.parked import Parked
from mooring.relay.record import Record
from mooring.relay.rounds import completed
from mooring.relay.table import Route
from mooring.relay.views import Views
from mooring.relay.watching import Watching
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

MIRRORED = "legacy"
"""Scope of the conversation that legacy clients share at a remote which speaks both eras."""


def scope(route: Route, request: Request, facts: Facts | None) -> str:
    """For whom the instance behind a route is: "" for all, ``MIRRORED``, one workspace, or one session. ``facts``: the
    server's, as far as it was listed. A legacy server is told once what its client can do, a modern client says it with
    every request: what it declares differently is another instance."""
    session = request.session
    if alone(route.variant, request, facts):
        told_once = request.era == "modern" and _legacy(facts)
        return f"s:{session.id}{_digest(bridge.capabilities(request)) if told_once else ''}"
    if route.mount.sharing == "session":
        return f"s:{session.id}"
    if route.mount.sharing == "workspace":
        return f"w:{session.principal.workspace}"
    return MIRRORED if mirrored(route.variant, request, facts) else ""


def mirrored(variant: Variant, request: Request, facts: Facts | None) -> bool:
    """Whether a legacy client meets, in its own era, a remote that was listed as modern: it may speak both. Those of
    them that cannot be asked share one conversation. A process would have to be started once more for it."""
    return (
        request.era == "legacy" and isinstance(variant.launch, Remote) and facts is not None and facts.era == "modern"
    )


def alone(variant: Variant, request: Request, facts: Facts | None) -> bool:
    """Whether the server may ask this caller, who therefore has a conversation with it to itself. Modern ones on both
    sides need none: there the question is an answer."""
    if variant.dialogue == "session":
        return True
    if not bridge.may_ask(variant) or facts is None or "modern" == facts.era == request.era:
        return False
    return bool(bridge.asks(bridge.capabilities(request)))


def _legacy(facts: Facts | None) -> bool:
    return facts is not None and facts.era == "legacy"


def _digest(capabilities: bytes) -> str:
    return f":{hashlib.sha256(capabilities).hexdigest()[:12]}"


def named(parts: Mapping[str, bytes | Raw], member: str, route: Route) -> bytes:
    """A request's params with the name that the server knows. They are put together anew in any case: a member that
    came twice must not mean something else to the server than it meant to us."""
    if route.advertised == route.upstream:
        return jsonrpc.build(parts)
    return jsonrpc.build({**parts, member: jsonrpc.text(route.upstream)})


class Forward:
    """Carries requests to instances."""

    def __init__(
        self, views: Views, pool: Pool, watching: Watching, parked: Parked, limits: Limits, events: Events
    ) -> None:
        self._views = views
        self._limits = limits
        self._pool = pool
        self._watching = watching
        self._own: dict[str, set[InstanceKey]] = {}
        """Instances that open sessions have had to themselves, by session."""
        self._modern_only: set[tuple[str, str]] = set()
        """Remotes that were asked in the legacy era and do not speak it, by variant and digest."""
        self._parked = parked
        self._levels = Levels()
        self._deadlines = Deadlines()
        self.record = Record(views, self.key, events)

    def __call__(self, request: Request, route: Route, params: bytes) -> Awaitable[Answer]:
        """The server's answer in the caller's era. Raises the errors of ``lease``, Crashed and TimedOut."""
        asks = request.era == "modern" and request.method in eras.IN_ROUNDS
        if asks and alone(self._variant(route), request, self._facts(request, route)):
            # Its server may turn out to be a legacy one that asks in the middle of the call.
            return self._parked.run(request, lambda call: self._carry(call, route, params))
        return self._carry(request, route, params)

    async def _carry(self, request: Request, route: Route, params: bytes) -> Answer:
        unsent = 0
        while True:
            lease = self._ready(request, route) or await self.lease(request, route)
            try:
                if self._views.strict:
                    await self._vet(request, route, lease)
                if (level := wanted(request)) is not None:
                    await self._levels.tell(level, lease)
                return await self.over(request, route, params, lease)
            except Crashed as error:
                unsent += 1
                if error.details.get("written", True) or unsent > 1:
                    raise
            finally:
                lease.release()

    async def verbatim(self, request: Request, route: Route) -> Answer | None:
        """The answer to a method that nobody could translate; None when the server speaks another era than the caller.
        Raises like calling it."""
        principal = request.session.principal
        view = self._views.of(principal)
        with self._limits.entered(principal.workspace, view.limited):
            lease = await self.lease(request, route)
            try:
                if lease.connection.facts.era != request.era:
                    return None
                return refusals.fitting(await self.over(request, route, request.params, lease), view.shortest)
            finally:
                lease.release()

    def notify(self, session: Session, only: Route | None, method: str, params: bytes) -> None:
        """Pass a client's notification on to the running instances that its session has to itself, and to the shared
        one of ``only``; in the same era, and starting nothing."""
        keys = set(self._own.get(session.id, ()))
        if only is not None and only.mount.sharing == "shared":
            keys.add(self._variant(only).key())
        for key in keys:
            instance = self._pool.ready(key)
            if instance is None:
                continue
            lease = instance.lease()
            if lease.connection.facts.era == session.era:
                lease.connection.notify(method, params)
            lease.release()

    async def reported(self, request: Request, route: Route, params: bytes, target: str) -> Answer:
        """Like calling it within the caller's limits, with failures of Mooring as JSON-RPC errors, and told: ``target``
        is the name or URI that the caller used."""
        try:
            return await self.record.carried(request, route, target, params, self._limited(request, route, params))
        except MooringError as error:
            return refusals.failure(error)

    async def _limited(self, request: Request, route: Route, params: bytes) -> Answer:
        principal = request.session.principal
        view = self._views.of(principal)
        with self._limits.entered(principal.workspace, view.limited):
            return refusals.fitting(await self(request, route, params), view.shortest)

    async def lease(self, request: Request, route: Route) -> Lease:
        """A lease on the instance that serves this caller; starts it when needed. Raises Unavailable or TimedOut."""
        if (ready := self._ready(request, route)) is not None:
            return ready
        session = request.session
        variant = self._variant(route)
        key = self.key(request, route)
        if key.scope.startswith("s:"):
            self._ends_with(session, key)
        demand = None
        if alone(variant, request, self._facts(request, route)):
            listener = SessionListener(key, self._pool, self._watching, session)
            demand = Demand(bridge.capabilities(request), request.era, listener)
        elif key.scope == MIRRORED:
            demand = Demand(jsonrpc.EMPTY, "legacy", InstanceListener(key, self._pool, self._watching))
        lease = await self._pool.lease(variant, key, demand)
        if demand is not None and request.era == "legacy" and lease.connection.facts.era == "modern":
            self._modern_only.add((variant.id, variant.digest))
            if variant.dialogue != "session":
                self._pool.drain(key, "the server speaks the modern era only")  # from now on all share
        return lease

    def _ready(self, request: Request, route: Route) -> Lease | None:
        """A lease that can be had at once."""
        instance = self._pool.ready(self.key(request, route))
        return None if instance is None else instance.lease()

    def _ends_with(self, session: Session, key: InstanceKey) -> None:
        if session.closed:  # nothing would ever end what is started for it now
            raise Unavailable("The session of this call is over.")

        def closed() -> None:
            for scope in {key.scope for key in self._own.pop(session.id, ())}:
                self._pool.end_scope(scope)

        if session.id not in self._own:
            self._own[session.id] = set()
            session.on_close.append(closed)
        self._own[session.id].add(key)

    def key(self, request: Request, route: Route) -> InstanceKey:
        """The instance that serves this caller."""
        variant = self._variant(route)
        if route.common is not None and variant is route.variant:
            return route.common
        return InstanceKey(variant.id, variant.digest, scope(route, request, self._facts(request, route)))

    def _facts(self, request: Request, route: Route) -> Facts | None:
        """What the server said about itself when it was listed; None for one that nobody need have to himself."""
        variant = route.variant
        if self._modern_only and request.era == "legacy" and (variant.id, variant.digest) in self._modern_only:
            return None
        return route.facts

    async def over(self, request: Request, route: Route, params: bytes, lease: Lease) -> Answer:
        """One exchange over a lease that the caller holds."""
        connection = lease.connection
        facts = connection.facts
        variant = route.variant
        try:
            limit = variant.timeouts.call
            with Exchange(request, variant.server, limit, self._deadlines, route.marks, params) as exchange:
                outgoing = bridge.outgoing(request, params, facts)
                if request.era == "legacy" and facts.era == "modern":
                    answer = await completed(connection, request.method, outgoing, exchange)
                else:
                    answer = await connection.request(request.method, outgoing, exchange)
        except TimedOut:
            self._pool.suspect(lease.key)
            raise
        except Crashed as error:
            if (obstacle := self._pool.obstacle(lease.key)) is not None:
                error.details = {**obstacle.details, **error.details}  # its last words, and when it is tried again
            raise
        return bridge.incoming(request, answer, facts)

    def _variant(self, route: Route) -> Variant:
        """The newest definition: a route may have been looked up just before a reload."""
        return self._views.plan.variants.get(route.variant.id, route.variant)

    async def _vet(self, request: Request, route: Route, lease: Lease) -> None:
        """Where pins are strict, a server that has just started is listed before its first call: the tool may be
        another one today. Raises Refused."""
        await self._pool.listed(lease.key)
        view = self._views.of(request.session.principal)
        now = view.table.tools.get(route.advertised) if route.about.kind == "tool" else None
        if now is not None and not view.for_call(now).allowed:
            raise Refused
