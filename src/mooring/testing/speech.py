"""What a client says in either era: parameters of requests and answers to questions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from mooring.testing.peer import JSON

Era = Literal["legacy", "modern"]

META = "io.modelcontextprotocol/"
CLIENT_INFO: JSON = {"name": "mooring-testing", "version": "1.0.0"}
NEWEST: dict[Era, str] = {"legacy": "2025-11-25", "modern": "2026-07-28"}
DIALOGUE: JSON = {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}
"""Client capabilities that cover everything a server may ask."""

Answer = JSON | Callable[[JSON], JSON]
"""What is answered, or what makes it from the question's ``params``."""

ANSWERS: dict[str, Answer] = {
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


def answer(answers: Mapping[str, Answer], question: JSON) -> JSON:
    """The answer to a question (an object with ``method`` and ``params``)."""
    found = answers[question["method"]]
    return found(question.get("params", {})) if callable(found) else found


def retry(params: JSON, result: JSON, answers: Mapping[str, Answer]) -> JSON:
    """``params`` of the request that follows an input-required ``result``."""
    asked: dict[str, JSON] = result.get("inputRequests", {})
    again: dict[str, Any] = {
        **params,
        "inputResponses": {key: answer(answers, value) for key, value in asked.items()},
    }
    if "requestState" in result:
        again["requestState"] = result["requestState"]
    return again
