"""Tools, prompts and completions: requests that are routed by an advertised name."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

import msgspec
from msgspec import Raw

from mooring.access.limits import Limits
from mooring.access.policy import DISAGREED, Decision, held_back, unknown
from mooring.errors import MooringError, Refused
from mooring.nouns import Principal
from mooring.relay import handles, links, refusals
from mooring.relay.confirm import Confirm
from mooring.relay.first_look import FirstLooks
from mooring.relay.forward import Forward, named
from mooring.relay.guards import Guarded
from mooring.relay.handles import Handles
from mooring.relay.indirect import indirect, meant
from mooring.relay.record import Record
from mooring.relay.stewards import Steward, Stewards
from mooring.relay.table import Route
from mooring.relay.view import View
from mooring.relay.views import Views
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.param_headers import disagreement
from mooring.wire.session import Request

_UNKNOWN, _NO_PROMPT = unknown("tool"), unknown("prompt")


def _named(request: Request, view: View) -> tuple[Mapping[str, Raw], str, Route | None]:
    """The members of a call's params, the name of its tool, and where that leads."""
    parts = jsonrpc.decisive(request.params)
    name = jsonrpc.string(parts.get("name")) or ""
    return parts, name, view.table.tools.get(name)


class Calls:
    """``tools/call``, ``prompts/get`` and ``completion/complete``."""

    def __init__(
        self,
        views: Views,
        looks: FirstLooks,
        forward: Forward | Guarded,
        given: Handles,
        confirm: Confirm,
        limits: Limits,
        record: Record,
        stewards: Stewards,
    ) -> None:
        self._views = views
        self._confirm = confirm
        self._limits = limits
        self._handles = given
        self._looks = looks
        self._forward = forward
        self._record = record
        self._stewards = stewards

    async def tool(self, request: Request) -> Answer:
        """Call a tool. Every failure of Mooring is a result with ``isError``."""
        principal = request.session.principal
        try:
            view = self._views.of(principal)
            parts, name, route = _named(request, view)
            if route is None:
                route, view = await self._tool(principal, name), self._views.of(principal)
            if route is not None and indirect(route):
                request = meant(request, view.table.tools)
                parts, name, route = _named(request, view)
                if route is None:
                    route, view = await self._tool(principal, name), self._views.of(principal)
        except MooringError as error:
            return refusals.tool_failure(error, request.era)
        decision = _UNKNOWN if route is None else view.for_call(route)
        if route is None or not decision.allowed:
            self._record.denied(request, name, route, decision)
            return refusals.unknown_tool(request.era)
        if route.marks and request.era == "modern" and request.headers:
            mismatch = disagreement(route.marks, request.params, request.headers)
            if mismatch is not None:
                return mismatch
        steward = self._stewards.get(principal.workspace)
        if steward is None:
            return await self._carried(request, parts, route, decision)
        return await self._attended(steward, request, route, decision)

    async def _attended(self, steward: Steward, request: Request, route: Route, decision: Decision) -> Answer:
        """A call that somebody looks at first, who then is the one to ask a person."""
        carried = False

        async def proceed(call: Request) -> Answer:
            nonlocal carried
            carried = True
            agreed = msgspec.structs.replace(decision, confirm=False)
            return await self._carried(call, jsonrpc.decisive(call.params), route, agreed, attended=True)

        answer = await steward.attended(request, route, decision.confirm, proceed)
        if not carried:
            self._record.denied(request, route.advertised, route, DISAGREED)
        return answer

    async def _carried(
        self,
        request: Request,
        parts: Mapping[str, bytes | Raw],
        route: Route,
        decision: Decision,
        attended: bool = False,
    ) -> Answer:
        params = named(parts, "name", route)
        work = self._guarded(request, route, params, decision, attended)
        try:
            answer = await self._record.carried(request, route, route.advertised, params, work, decision)
        except MooringError as error:
            return refusals.tool_failure(error, request.era)
        if answer.result is not None:
            self._learn(request.session.principal, answer.result, route)
        return answer

    async def prompt(self, request: Request) -> Answer:
        """Get a prompt."""
        parts = jsonrpc.decisive(request.params)
        name = jsonrpc.string(parts.get("name")) or ""
        try:
            route = await self._prompt(request.session.principal, name)
        except MooringError as error:
            return refusals.failure(error)
        decision = self._decision(request.session.principal, route)
        if route is None or not decision.allowed:
            self._record.denied(request, name, route, decision)
            return refusals.unknown("prompt")
        return await self._forward.reported(request, route, named(parts, "name", route), name)

    async def complete(self, request: Request) -> Answer:
        """Complete an argument of a prompt or of a resource template."""
        parts = jsonrpc.decisive(request.params)
        reference = jsonrpc.decisive(parts.get("ref", jsonrpc.EMPTY))
        principal = request.session.principal
        of_prompt = jsonrpc.string(reference.get("type")) == "ref/prompt"
        target = jsonrpc.string(reference.get("name" if of_prompt else "uri")) or ""
        try:
            route = await (self._prompt(principal, target) if of_prompt else self._template(principal, target))
        except MooringError as error:
            return refusals.failure(error)
        decision = self._decision(principal, route)
        if route is None or not decision.allowed:
            why = (route, decision) if of_prompt else self._views.of(principal).withheld(target)
            self._record.denied(request, target, *why)
            return refusals.unknown("prompt or resource")
        if "name" in reference and route.advertised != route.upstream:
            reference = {**reference, "name": jsonrpc.text(route.upstream)}
        params = jsonrpc.build({**parts, "ref": jsonrpc.build(reference)})
        return await self._forward.reported(request, route, params, target)

    def _learn(self, principal: Principal, result: bytes, route: Route) -> None:
        """Keep what a result hands out that later requests name: URIs and tasks."""
        if uris := links.in_content(result):
            self._views.remember(principal.workspace, uris, route.variant.id)
        if len(result) <= handles.SCAN_LIMIT and handles.SIGN in result:
            self._handles.remember(principal, result, route)

    async def _tool(self, principal: Principal, name: str) -> Route | None:
        """Where the name of a tool leads that nobody is known to have, once those who may have it are listed."""
        return self._views.of(principal).table.tools.get(name) if await self._looked(principal, name) else None

    async def _prompt(self, principal: Principal, name: str) -> Route | None:
        route = self._views.of(principal).table.prompts.get(name)
        if route is None and await self._looked(principal, name):
            route = self._views.of(principal).table.prompts.get(name)
        return route

    async def _template(self, principal: Principal, template: str) -> Route | None:
        view = self._views.of(principal)
        if view.missing and view.template(template) is None:
            await self._looks.wait(mount.variant for mount in view.mounts)
        return self._views.of(principal).template(template)

    async def _looked(self, principal: Principal, name: str) -> bool:
        """A client may know a tool or prompt from an earlier day, while its server is listed again for the first time
        or cannot be: wait for that. Raises what is in the way; False when no such server is behind the name."""
        view = self._views.of(principal)
        mounts = [
            mount
            for mount in view.mounts
            if mount.variant not in view.listings and name.startswith(mount.prefix and f"{mount.prefix}_")
        ]
        mount = max(mounts, key=lambda mount: len(mount.prefix), default=None)
        if mount is None or held_back(principal, "call", mount.variant, "tool", name):
            return False
        await self._looks.needed(mount.variant)
        return True

    def _decision(self, principal: Principal, route: Route | None) -> Decision:
        return _NO_PROMPT if route is None else self._views.of(principal).decide("call", route)

    def _again(self, principal: Principal, route: Route) -> Route:
        """What was decided may hold no more once a person has been asked: where the same name leads now. Raises
        Refused."""
        view = self._views.of(principal)
        now = view.table.tools.get(route.advertised)
        if now is None or (now.variant.id, now.upstream) != (route.variant.id, route.upstream):
            raise Refused(reason=_UNKNOWN.reason)
        decision = view.for_call(now)
        if not decision.allowed:
            raise Refused(reason=decision.reason)
        return now

    async def _guarded(
        self, request: Request, route: Route, params: bytes, decision: Decision, attended: bool
    ) -> Answer:
        """Within what the caller's policies allow. Raises Busy, Unconfirmed, Declined, Refused and what a forward
        raises."""
        principal = request.session.principal
        view = self._views.of(principal)

        def carry(call: Request) -> Awaitable[Answer]:
            now = self._again(principal, route) if attended or decision.confirm else route
            return self._forward(call, now, params)

        with self._limits.entered(principal.workspace, view.limited):
            answer = await (self._confirm(request, route, carry) if decision.confirm else carry(request))
        return refusals.fitting_tool(answer, view.shortest, request.era)
