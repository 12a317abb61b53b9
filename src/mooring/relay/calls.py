"""Tools, prompts and completions: requests that are routed by an advertised name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from mooring.access.limits import Limits
from mooring.access.policy import Decision, covers, held_back
from mooring.errors import MooringError
from mooring.nouns import Principal
from mooring.observe.events import Event, Events
from mooring.relay import handles, links, refusals
from mooring.relay.confirm import Confirm
from mooring.relay.first_look import FirstLooks
from mooring.relay.forward import Forward, named
from mooring.relay.guards import Guarded
from mooring.relay.handles import Handles
from mooring.relay.indirect import meant
from mooring.relay.stewards import Steward, Stewards
from mooring.relay.table import Route
from mooring.relay.views import Views
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.param_headers import disagreement
from mooring.wire.session import Request

TRACE_LIMIT = 128
"""Characters of a trace context that are kept; a valid one has 55."""
_TRACEPARENT = b'"traceparent"'
_UNKNOWN = Decision(False, "no such tool")
_REFUSED = {
    "declined": "the user did not agree",
    "unconfirmed": "a person has to agree, and the client cannot ask one",
    "refused": "its definition is not approved",
}
"""Errors that are decisions, with the reason for the audit."""


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
        events: Events,
        stewards: Stewards,
    ) -> None:
        self._views = views
        self._confirm = confirm
        self._limits = limits
        self._handles = given
        self._looks = looks
        self._forward = forward
        self._events = events
        self._stewards = stewards

    async def tool(self, request: Request) -> Answer:
        """Call a tool. Every failure of Mooring is a result with ``isError``."""
        principal = request.session.principal
        try:
            request = meant(request, self._views.of(principal).table.tools)
            parts = jsonrpc.members(request.params)
            name = jsonrpc.string(parts.get("name")) or ""
            route = self._views.of(principal).table.tools.get(name)
            if route is None and await self._looked(principal, name):
                route = self._views.of(principal).table.tools.get(name)
        except MooringError as error:
            return refusals.tool_failure(error, request.era)
        decision = _UNKNOWN if route is None else self._views.of(principal).for_call(route)
        if route is None or not decision.allowed:
            self._denied(principal, name, route, decision.reason)
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
            return await self._carried(call, jsonrpc.members(call.params), route, agreed)

        answer = await steward.attended(request, route, decision.confirm, proceed)
        if not carried:
            self._denied(request.session.principal, route.advertised, route, "a person did not agree")
        return answer

    async def _carried(
        self, request: Request, parts: Mapping[str, bytes | Raw], route: Route, decision: Decision
    ) -> Answer:
        answer = await self._timed(request, route, named(request, parts, "name", route), decision)
        if answer.result is not None:
            self._learn(request.session.principal, answer.result, route)
        return answer

    async def prompt(self, request: Request) -> Answer:
        """Get a prompt."""
        parts = jsonrpc.members(request.params)
        name = jsonrpc.string(parts.get("name")) or ""
        try:
            route = await self._prompt(request.session.principal, name)
        except MooringError as error:
            return refusals.failure(error)
        if route is None or not self._views.allowed(request.session.principal, route):
            return refusals.unknown("prompt")
        return await self._forward.reported(request, route, named(request, parts, "name", route))

    async def complete(self, request: Request) -> Answer:
        """Complete an argument of a prompt or of a resource template."""
        parts = jsonrpc.members(request.params)
        reference = jsonrpc.members(parts.get("ref", jsonrpc.EMPTY))
        principal = request.session.principal
        try:
            if jsonrpc.string(reference.get("type")) == "ref/prompt":
                route = await self._prompt(principal, jsonrpc.string(reference.get("name")) or "")
            else:
                route = await self._template(principal, jsonrpc.string(reference.get("uri")) or "")
        except MooringError as error:
            return refusals.failure(error)
        if route is None or not self._views.allowed(request.session.principal, route):
            return refusals.unknown("prompt or resource")
        params = request.params
        if "name" in reference and route.advertised != route.upstream:
            renamed = jsonrpc.build({**reference, "name": jsonrpc.text(route.upstream)})
            params = jsonrpc.build({**parts, "ref": renamed})
        return await self._forward.reported(request, route, params)

    def _learn(self, principal: Principal, result: bytes, route: Route) -> None:
        """Keep what a result hands out that later requests name: URIs and tasks."""
        if uris := links.in_content(result):
            self._views.remember(principal.workspace, uris, route.variant.id)
        if len(result) <= handles.SCAN_LIMIT and handles.SIGN in result:
            self._handles.remember(principal, result, route)

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

    def _denied(self, principal: Principal, name: str, route: Route | None, reason: str) -> None:
        server, variant = ("", "") if route is None else (route.mount.server, route.variant.id)
        data = {"tool": name, "key": principal.key_id, "reason": reason}
        self._events.emit(Event("policy.denied", time.time(), principal.workspace, server, variant, data=data))

    async def _guarded(self, request: Request, route: Route, params: bytes, decision: Decision) -> Answer:
        """Within what the caller's policies allow. Raises Busy, Unconfirmed, Declined and what a forward raises."""
        principal = request.session.principal
        policies = self._views.of(principal).policies

        async def carry(call: Request) -> Answer:
            return await self._forward(call, route, params)

        with self._limits.entered(principal.workspace, policies):
            answer = await (self._confirm(request, route, carry) if decision.confirm else carry(request))
        return refusals.fitting_tool(answer, policies, request.era)

    async def _timed(self, request: Request, route: Route, params: bytes, decision: Decision) -> Answer:
        started, clock = time.time(), time.perf_counter()
        outcome, received, failure = "cancelled", 0, None
        told: Answer | None = None
        try:
            answer = told = await self._guarded(request, route, params, decision)
            outcome, received = ("ok", len(answer.result)) if answer.result is not None else ("error", 0)
        except MooringError as error:
            outcome, failure = "failed", error.kind
            answer = told = refusals.tool_failure(error, request.era)
        finally:
            principal = request.session.principal
            refused = failure in _REFUSED
            data: dict[str, Any] = {
                "tool": route.advertised,
                "key": principal.key_id,
                "decision": "denied" if refused else _agreed(told) if decision.confirm else "allowed",
                "outcome": outcome,
                "seconds": time.perf_counter() - clock,
                "sent": len(params),
                "received": received,
            }
            if failure:
                data["error"] = failure
            if refused:
                data["reason"] = _REFUSED[failure]
            meta, arguments = self._recorded(request, route)
            if arguments is not None:
                data["arguments"] = arguments
            self._events.emit(
                Event("call.finished", started, principal.workspace, route.mount.server, route.variant.id, meta, data)
            )
        return answer

    def _recorded(self, request: Request, route: Route) -> tuple[str, Raw | None]:
        """The caller's W3C trace context, and the arguments where they are to be recorded."""
        rules = self._views.plan.audit.arguments
        wanted = bool(rules) and any(covers(rule, route.about) for rule in rules)
        traced = _TRACEPARENT in request.params
        if not wanted and not traced:
            return "", None
        parts = jsonrpc.fields(request.params)
        trace = jsonrpc.string(jsonrpc.fields(parts.get("_meta")).get("traceparent")) or "" if traced else ""
        return trace[:TRACE_LIMIT], Raw(bytes(parts.get("arguments", jsonrpc.EMPTY))) if wanted else None


def _agreed(answer: Answer | None) -> str:
    """How far a call is that a person has to agree to."""
    if answer is None or answer.result is None:
        return "confirmed" if answer is not None else "asked"
    return "asked" if eras.result_type(answer.result) == "input_required" else "confirmed"
