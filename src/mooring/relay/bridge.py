"""A request and its answer across the two protocol eras, and what is declared on the way. Pure; used by whatever in
this room passes a request on.

Same-era pairs pass untouched. Source: ``wire.eras`` for the shapes; MCP 2026-07-28 "Versioning".
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from mooring.config.plan import Variant
from mooring.config.plan_servers import Remote
from mooring.nouns import Facts
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request
from mooring.wire.upstream_handshake import CLIENT_INFO

CARRIED = b'{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}}}'
"""Client capabilities by which a server may ask: all that Mooring carries to a client and back. Legacy servers hear of
them once, when a conversation begins, and may offer more to a client that can be asked."""
_QUESTIONS = ("elicitation", "roots", "sampling")


def asks(capabilities: bytes) -> str:
    """What a client with these capabilities can be asked for, such as "elicitation,roots"; "" for nothing."""
    declared = jsonrpc.fields(capabilities)
    return ",".join(question for question in _QUESTIONS if question in declared)


EVERYTHING = ",".join(_QUESTIONS)


def may_ask(variant: Variant) -> bool:
    """Whether callers that can be asked have a conversation with this server to themselves, should it be a legacy one.
    One more costs a remote little and a process much: those do it where the configuration says so."""
    return variant.dialogue == "session" or isinstance(variant.launch, Remote)


def outgoing(request: Request, params: bytes, facts: Facts) -> bytes:
    """``params`` of a client's request, complete for the era of the server it goes to."""
    if request.era == facts.era:
        return params
    if facts.era == "legacy":
        return eras.to_legacy_params(params)
    return eras.to_modern_params(
        params,
        version=facts.version,
        capabilities=request.session.capabilities,
        client_info=CLIENT_INFO,
        log_level=request.session.log_level,
    )


def capabilities(request: Request) -> bytes:
    """What the client of this request declared, in its era's place; raw JSON."""
    if request.era == "legacy":
        return request.session.capabilities
    meta = jsonrpc.fields(jsonrpc.members(request.params).get("_meta"))
    return bytes(meta.get(eras.CLIENT_CAPABILITIES_KEY, jsonrpc.EMPTY))


def own(facts: Facts, params: bytes) -> bytes:
    """Parameters of a request that Mooring itself makes, complete for the server's era. It declares what any caller
    may declare, so that lists are complete; such requests lead to no question."""
    if facts.era == "legacy":
        return params
    return eras.to_modern_params(
        params, version=facts.version, capabilities=CARRIED, client_info=CLIENT_INFO, log_level=None
    )


def incoming(request: Request, answer: Answer, facts: Facts) -> Answer:
    """A server's answer as the client's era has it. Errors pass unchanged, but for a code that the era has given up."""
    if request.era == facts.era:
        return answer
    if answer.result is None:
        return _current(request, answer) if request.era == "modern" else answer
    try:
        if facts.era == "legacy":
            return Answer(result=eras.to_modern_result(request.method, answer.result, facts.server_info))
        return Answer(result=eras.to_legacy_result(request.method, answer.result))
    except jsonrpc.BadFrame:  # not what the client sent is wrong
        return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, f"the server's result of {request.method} is no object")


def _current(request: Request, answer: Answer) -> Answer:
    """A legacy server's error for a modern client, whose era has given up two codes."""
    parts = jsonrpc.fields(answer.error)
    code = bytes(parts.get("code", b""))
    if code == b"%d" % eras.RESOURCE_NOT_FOUND_LEGACY:
        return Answer(error=jsonrpc.build({**parts, "code": b"%d" % jsonrpc.INVALID_PARAMS}))
    if code == b"%d" % eras.URL_ELICITATION_LEGACY:
        return _visits(request, parts)
    return answer


def _visits(request: Request, error: dict[str, Raw]) -> Answer:
    """The error "URL elicitation required" as the questions that it stands for: the client has its user visit these
    places and makes the call again."""
    if "url" not in jsonrpc.fields(jsonrpc.fields(capabilities(request)).get("elicitation")):
        missing: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"url": {}}}}
        return jsonrpc.failure(eras.MISSING_CAPABILITY, "the user has to visit a URL before this call", missing)
    try:
        raw = jsonrpc.fields(error.get("data")).get("elicitations", b"[]")
        places = msgspec.json.decode(raw, type=list[Raw])
    except msgspec.DecodeError:
        places = []
    if not places or request.method not in eras.IN_ROUNDS:
        return Answer(error=jsonrpc.build({**error, "code": b"%d" % jsonrpc.INTERNAL_ERROR}))
    asked = {
        f"q{number}": jsonrpc.build({"method": b'"elicitation/create"', "params": place})
        for number, place in enumerate(places, 1)
    }
    return Answer(result=jsonrpc.build({"resultType": b'"input_required"', "inputRequests": jsonrpc.build(asked)}))
