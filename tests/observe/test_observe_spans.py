"""What a span says: the conventions' names, few values for what is counted, no reasons and no URIs in names."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.observe.events import Event
from mooring.observe.spans import attributes, error_type, measured, name

ABOUT = {"method": "tools/call", "key": "k_1", "session": "abc123", "version": "2025-11-25", "id": "7"}


def finished(**data: Any) -> Event:
    told = {**ABOUT, "outcome": "ok", "decision": "allowed", "seconds": 0.5, "sent": 3, "received": 4, **data}
    return Event("call.finished", 1.0, "w", "time", "time@0a1b", data=told)


def test_a_tool_call_says_what_the_conventions_ask_for() -> None:
    assert attributes(finished(tool="time_now")) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "time_now",
        "gen_ai.operation.name": "execute_tool",
        "jsonrpc.request.id": "7",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": "abc123",
        "mooring.workspace": "w",
        "mooring.server": "time",
        "mooring.instance": "time@0a1b",
        "mooring.key": "k_1",
        "mooring.decision": "allowed",
        "mooring.outcome": "ok",
        "mooring.request.size": 3,
        "mooring.response.size": 4,
    }


@pytest.mark.parametrize(
    ("method", "data", "span", "attribute"),
    [
        ("tools/call", {"tool": "t"}, "tools/call t", "gen_ai.tool.name"),
        ("prompts/get", {"target": "p"}, "prompts/get p", "gen_ai.prompt.name"),
        ("resources/read", {"target": "x://1"}, "resources/read", "mcp.resource.uri"),
        ("subscriptions/listen", {"target": "x://1"}, "subscriptions/listen", "mcp.resource.uri"),
    ],
)
def test_what_it_was_about_has_its_own_attribute(method: str, data: dict[str, str], span: str, attribute: str) -> None:
    event = finished(method=method, **data)
    assert name(event) == span
    assert attributes(event)[attribute] == next(iter(data.values()))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, ""),
        ({"outcome": "error", "error": "tool_error"}, "tool_error"),
        ({"outcome": "error", "error": "-32602"}, "-32602"),
        ({"outcome": "failed", "error": "crashed"}, "crashed"),
        ({"outcome": "cancelled"}, "cancelled"),
    ],
)
def test_what_failed_has_its_type(data: dict[str, str], kind: str) -> None:
    event = finished(tool="t", **data)
    assert error_type(event) == kind
    assert attributes(event).get("error.type", "") == kind
    assert ("rpc.response.status_code" in attributes(event)) == (kind == "-32602")


def test_a_refusal_says_what_it_rests_on_and_not_the_reason() -> None:
    data = {**ABOUT, "tool": "whatever", "reason": "deny[0] of a rule", "ground": "rule"}
    event = Event("policy.denied", 1.0, "w", data=data)
    assert attributes(event)["error.type"] == "denied_rule"
    assert "deny[0]" not in str(attributes(event))
    assert "gen_ai.tool.name" not in measured(event)  # strangers may ask for ever new names
