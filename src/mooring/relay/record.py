"""What the events tell of requests that name something: who asked for what, whether they got it, and how it went.

Used by the parts of the relay for every tool, prompt, resource, completion and subscription. It decides nothing; the
audit, the metrics and the traces read what it tells.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from mooring.access.policy import ALLOWED, Decision, covers
from mooring.errors import MooringError, Refused
from mooring.nouns import InstanceKey
from mooring.observe.events import Event, Events
from mooring.relay.table import Route
from mooring.relay.views import Views
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

TRACE_LIMIT = 512
"""Characters of a trace context that are kept: a ``traceparent`` has 55, a ``tracestate`` may have as many as this."""
TARGET_LIMIT = 1000
"""Characters of a name or URI that are kept: a stranger may ask for anything."""
CODE_LIMIT = 12
"""Characters of an error's code that are kept: it is the server's, and should be a small number."""
SESSION_SHOWN = 6
"""Characters of a session's id that are told, as in ``InstanceKey.whom``."""
ERROR_LIMIT = 1 << 16
"""Bytes of a result that is looked into for ``isError``; a longer one is content."""
_TRACEPARENT = b'"traceparent"'
_IS_ERROR = b'"isError"'
_REFUSED = {
    "declined": "the user did not agree",
    "unconfirmed": "a person has to agree, and the client cannot ask one",
    "refused": "its definition is not approved",
}
"""Errors that are decisions, with the reason for the audit."""


class Record:
    """Tells. ``key``: which instance serves a request."""

    def __init__(self, views: Views, key: Callable[[Request, Route], InstanceKey], events: Events) -> None:
        self._views = views
        self._key = key
        self._events = events

    def denied(self, request: Request, target: str, route: Route | None, decision: Decision) -> None:
        """It was refused, or names nothing. ``target``: name or URI as the caller wrote it."""
        server, variant = ("", "") if route is None else (route.mount.server, route.variant.id)
        data = {**self._about(request, target), "reason": decision.reason, "ground": decision.ground}
        workspace = request.session.principal.workspace
        trace = self._traced(request, data)
        self._events.emit(Event("policy.denied", time.time(), workspace, server, variant, trace, data))

    async def carried(
        self,
        request: Request,
        route: Route,
        target: str,
        sent: bytes,
        work: Awaitable[Answer],
        decision: Decision = ALLOWED,
    ) -> Answer:
        """Await ``work``, which brings ``sent`` to a server, and tell how it went. Raises what it raises."""
        started, clock = time.time(), time.perf_counter()
        answer, failure, reason = None, "", ""
        try:
            answer = await work
            return answer
        except MooringError as error:
            failure, reason = error.kind, error.details.get("reason", "")
            raise
        finally:
            data = self._about(request, target)
            data["seconds"] = time.perf_counter() - clock
            data["sent"] = len(sent)
            data["decision"] = (
                "denied" if failure in _REFUSED else _agreed(answer, failure) if decision.confirm else "allowed"
            )
            if failure in _REFUSED:
                data["reason"] = reason or _REFUSED[failure]
            _ended(data, answer, failure)
            trace = self._traced(request, data)
            self._with_arguments(request, route, data)
            workspace, instance = request.session.principal.workspace, self._instance(request, route)
            self._events.emit(Event("call.finished", started, workspace, route.mount.server, instance, trace, data))

    def _instance(self, request: Request, route: Route) -> str:
        try:
            return self._key(request, route).id
        except Refused:  # the workspace is gone by now
            return route.variant.id

    def _about(self, request: Request, target: str) -> dict[str, Any]:
        session = request.session
        return {
            "method": request.method,
            "tool" if request.method == "tools/call" else "target": target[:TARGET_LIMIT],
            "key": session.principal.key_id,
            "session": session.id[:SESSION_SHOWN] if session.era == "legacy" else "",
            "version": request.version,
            "id": request.raw_id.decode()[:TARGET_LIMIT],
        }

    def _traced(self, request: Request, data: dict[str, Any]) -> str:
        """The caller's W3C trace context."""
        if _TRACEPARENT not in request.params:
            return ""
        meta = jsonrpc.fields(jsonrpc.fields(request.params).get("_meta"))
        if state := jsonrpc.string(meta.get("tracestate")):
            data["tracestate"] = state[:TRACE_LIMIT]
        return (jsonrpc.string(meta.get("traceparent")) or "")[:TRACE_LIMIT]

    def _with_arguments(self, request: Request, route: Route, data: dict[str, Any]) -> None:
        """The arguments of a tool where they are to be recorded."""
        rules = self._views.plan.audit.arguments
        if rules and route.about.kind == "tool" and any(covers(rule, route.about) for rule in rules):
            arguments = jsonrpc.fields(request.params).get("arguments", jsonrpc.EMPTY)
            data["arguments"] = Raw(bytes(arguments))


def _ended(data: dict[str, Any], answer: Answer | None, failure: str) -> None:
    """``outcome``, what was ``received``, and the ``error`` where there is one."""
    if failure:
        data["outcome"], data["error"] = "failed", failure
    elif answer is None:
        data["outcome"] = "cancelled"
    elif answer.result is None:
        data["outcome"], data["error"] = "error", _code(answer)
    else:
        data["received"] = len(answer.result)
        failed = _is_error(answer.result)
        data["outcome"] = "error" if failed else "ok"
        if failed:
            data["error"] = "tool_error"


def _is_error(result: bytes) -> bool:
    """Whether a tool says in its result that it failed."""
    if len(result) > ERROR_LIMIT or _IS_ERROR not in result:
        return False
    return bytes(jsonrpc.fields(result).get("isError", b"")) == b"true"


def _code(answer: Answer) -> str:
    """Of a JSON-RPC error, such as ``-32602``."""
    return bytes(jsonrpc.fields(answer.error).get("code", b"")).decode()[:CODE_LIMIT]


def _agreed(answer: Answer | None, failure: str) -> str:
    """How far a call is that a person has to agree to."""
    if answer is None:
        return "confirmed" if failure else "asked"
    waits = answer.result is not None and eras.result_type(answer.result) == "input_required"
    return "asked" if waits else "confirmed"
