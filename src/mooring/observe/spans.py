"""What a span and the metrics say of an event. Pure; used by ``observe.otel``.

Names are those of OpenTelemetry's conventions for MCP and GenAI where they have one, else they begin with ``mooring.``.
Source: open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md (status: development), as of autumn 2026.
"""

from __future__ import annotations

from mooring.observe.events import Event

Attributes = dict[str, str | int]
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds in seconds, as the conventions advise."""
REQUESTS = ("call.finished", "policy.denied")
_RESOURCES = ("resources/read", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen")
_PROMPT = "prompts/get"


def name(event: Event) -> str:
    """Of the span of a request: its method, and the tool or prompt; never a URI."""
    target = event.data.get("tool") or (event.data.get("target") if event.data["method"] == _PROMPT else "")
    return f"{event.data['method']} {target}" if target else event.data["method"]


def measured(event: Event) -> Attributes:
    """What a request is counted by: few values each."""
    data = event.data
    found: Attributes = {"mcp.method.name": data["method"], "mooring.workspace": event.workspace}
    if event.server:
        found["mooring.server"] = event.server
    if tool := data.get("tool", "") if event.server else "":  # what does not exist may have any name
        found["gen_ai.tool.name"] = tool
        found["gen_ai.operation.name"] = "execute_tool"
    if kind := error_type(event):
        found["error.type"] = kind
    return found


def attributes(event: Event) -> Attributes:
    """Of the span of a request. The reason of a refusal is for the audit alone."""
    data, found = event.data, measured(event)
    if tool := data.get("tool", ""):
        found["gen_ai.tool.name"] = tool
        found["gen_ai.operation.name"] = "execute_tool"
    if target := data.get("target", ""):
        if data["method"] == _PROMPT:
            found["gen_ai.prompt.name"] = target
        elif data["method"] in _RESOURCES:
            found["mcp.resource.uri"] = target
    if is_code(error := data.get("error", "")):
        found["rpc.response.status_code"] = error
    more = {
        "jsonrpc.request.id": data["id"].strip('"'),
        "mcp.protocol.version": data["version"],
        "mcp.session.id": data["session"],
        "mooring.instance": event.instance,
        "mooring.key": data["key"],
        "mooring.decision": data.get("decision", "denied"),
        "mooring.outcome": data.get("outcome", ""),
        "mooring.request.size": data.get("sent", 0),
        "mooring.response.size": data.get("received", 0),
    }
    return {**found, **{key: value for key, value in more.items() if value}}


def error_type(event: Event) -> str:
    """Of a request that did not succeed: ``tool_error``, a JSON-RPC code, a kind of failure, ``cancelled``, or what a
    refusal rests on; "" for one that did."""
    if event.name == "policy.denied":
        return f"denied_{event.data['ground']}"
    outcome = event.data["outcome"]
    return "" if outcome == "ok" else event.data.get("error") or str(outcome)


def is_code(error: str) -> bool:
    """Whether it is the code of a JSON-RPC error."""
    return error.removeprefix("-").isdecimal()
