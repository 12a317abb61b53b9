"""Failures of Mooring itself in the form a client gets them. Upstream errors never pass through here.

``tools/call`` fails with a result (models read it), every other method with a JSON-RPC error; both carry the same
facts.
"""

from __future__ import annotations

import time
from typing import Any

from mooring.config.plan import Policy
from mooring.errors import BackingOff, MooringError
from mooring.instances.rules import next_try
from mooring.nouns import Era
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer

ERROR_KEY = "mooring/error"
MODERN_ONLY = jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "This method is not part of this protocol version.")
LEGACY_ONLY = jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, "This method is not part of protocol version 2026-07-28.")


def unknown_tool(era: Era) -> Answer:
    """One text for a tool that does not exist and one that is not allowed."""
    return _tool_error("There is no such tool here, or this key may not call it. List the tools to see what there is.",
                       {"kind": "refused"}, era)  # fmt: skip


def unknown(what: str, **named: str) -> Answer:
    """One error for a prompt or resource that does not exist and one that is not allowed; ``named`` is its data."""
    message = f"There is no such {what} here, or this key may not use it."
    return jsonrpc.failure(jsonrpc.INVALID_PARAMS, message, named or None)


def tool_failure(error: MooringError, era: Era) -> Answer:
    """A failed call as a result that a model can read."""
    return _tool_error(_told(error), error.shown(), era)


def failure(error: MooringError) -> Answer:
    """Any other failed request."""
    return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, _told(error), error.shown())


def fitting_tool(answer: Answer, policy: Policy | None, era: Era) -> Answer:
    """A tool's answer, or, where ``policy``, the strictest, allows less, a result that says so."""
    if policy is None or answer.result is None or len(answer.result) <= policy.max_result:
        return answer
    size = len(answer.result)
    return _tool_error(_too_long(size, policy), _sizes(size, policy), era)


def fitting(answer: Answer, policy: Policy | None) -> Answer:
    """The same for any other request."""
    if policy is None or answer.result is None or len(answer.result) <= policy.max_result:
        return answer
    size = len(answer.result)
    return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, _too_long(size, policy), _sizes(size, policy))


def _too_long(size: int, policy: Policy) -> str:
    return (
        f"The result has {size} bytes; {policy.name} allows {policy.max_result} (max_result). It is left out, not cut: "
        "ask for less."
    )


def _sizes(size: int, policy: Policy) -> dict[str, Any]:
    return {"kind": "too_large", "size": size, "limit": policy.max_result}


def explained(error: MooringError, next_step: str = "") -> str:
    """What failed and why, with the server's last output."""
    stderr = str(error.details.get("stderr") or "").strip()
    text = f"{str(error).removesuffix('.')}; {next_step}" if next_step else str(error)
    return f"{text}\nLast lines of its stderr:\n{stderr}" if stderr else text


def _told(error: MooringError) -> str:
    """The same at the moment when it is told: with the next try, where there is one."""
    retry_at = error.details.get("retry_at")
    if retry_at is None or isinstance(error, BackingOff):  # whose message names it
        return explained(error)
    return explained(error, next_try(retry_at - time.time()))


def _tool_error(text: str, facts: dict[str, Any], era: Era) -> Answer:
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "_meta": {ERROR_KEY: facts},
    }
    if era == "modern":
        result["resultType"] = "complete"
    return Answer(result=jsonrpc.text(result))
