"""What a client says in either era: parameters of requests and answers to questions. Pure."""

from __future__ import annotations

from typing import Any, Literal

from mooring.testing.peer import JSON

Era = Literal["legacy", "modern"]

META = "io.modelcontextprotocol/"
CLIENT_INFO: JSON = {"name": "mooring-testing", "version": "1.0.0"}
NEWEST: dict[Era, str] = {"legacy": "2025-11-25", "modern": "2026-07-28"}
DIALOGUE: JSON = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
"""Client capabilities that cover everything a server may ask."""

ANSWERS: dict[str, JSON] = {
    "elicitation/create": {"action": "accept", "content": {"name": "octocat"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "sampled"},
        "model": "none",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///tmp", "name": "tmp"}]},
}
"""What the clients answer when a server asks; replace entries of ``client.answers`` to answer otherwise."""


def hello(version: str, capabilities: JSON) -> JSON:
    """``params`` of ``initialize``."""
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT_INFO}


def modern(params: JSON, version: str, capabilities: JSON) -> JSON:
    """``params`` with the ``_meta`` that every modern request carries; what is there already stays."""
    own: JSON = {
        META + "protocolVersion": version,
        META + "clientInfo": CLIENT_INFO,
        META + "clientCapabilities": capabilities,
    }
    return {**params, "_meta": {**own, **params.get("_meta", {})}}


def retry(params: JSON, result: JSON, answers: dict[str, JSON]) -> JSON:
    """``params`` of the request that follows an input-required ``result``."""
    asked: dict[str, JSON] = result.get("inputRequests", {})
    again: dict[str, Any] = {
        **params,
        "inputResponses": {key: answers[value["method"]] for key, value in asked.items()},
    }
    if "requestState" in result:
        again["requestState"] = result["requestState"]
    return again
