"""An MCP server on stdio, protocol 2025-11-25 or (``--modern``) 2026-07-28, with things that only their owner may know:
a resource that is in no list, one that can be watched, a task it hands out, tools that announce changes.

It writes down every request it gets, as lines of ``METHOD PARAMS``, in the file that is its first argument; the last
part of that path is its name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NAME = os.path.basename(sys.argv[1]) if len(sys.argv) > 1 else ""
MODERN = "--modern" in sys.argv
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "tasks": {"cancel": {}},
}
INFO = {"name": "secretive", "version": "1"}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("link", "start", "touch", "grow", "guarded")]
listening: list[Any] = []


def listed(name: str) -> str:
    """The resource that the server of this name lists."""
    return f"secret://{name}/listed"


def hidden(name: str) -> str:
    """The one that only a result names."""
    return f"secret://{name}/hidden"


def task(name: str) -> str:
    """The id of its task."""
    return f"task-4c9d2f7a61-{name}"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(method: str, params: dict[str, Any]) -> None:
    """Outside any request, or on every stream that listens."""
    if not MODERN:
        send({"method": method, "params": params})
    for id in listening:
        send({"method": method, "params": {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}})


def called(name: str) -> dict[str, Any]:
    if name == "link":
        return {"content": [{"type": "resource_link", "uri": hidden(NAME), "name": "hidden"}]}
    if name == "start":
        begun = {"taskId": task(NAME), "status": "working"}
        return {"resultType": "task", **begun} if MODERN else {"task": begun}
    if name == "touch":
        tell("notifications/resources/updated", {"uri": listed(NAME)})
    if name == "grow":
        TOOLS.append({"name": f"more_{len(TOOLS)}", "inputSchema": {"type": "object"}})
        tell("notifications/tools/list_changed", {})
    return {"content": [{"type": "text", "text": name}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO}
        case "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        case "tools/list":
            return {"tools": TOOLS}
        case "prompts/list":
            return {"prompts": [{"name": "confess"}]}
        case "resources/list":
            return {"resources": [{"uri": listed(NAME), "name": "listed"}]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "tools/call":
            return called(params["name"])
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "the secret"}]}
        case "prompts/get":
            return {"messages": []}
        case "completion/complete":
            return {"completion": {"values": ["the secret"]}}
        case _:
            return {}


def main() -> None:
    with open(sys.argv[1], "a") as journal:
        for line in sys.stdin:
            message = json.loads(line)
            method, params = message.get("method", ""), message.get("params", {})
            if "id" not in message:
                continue
            journal.write(f"{method} {json.dumps(params)}\n")
            journal.flush()
            if method == ("initialize" if MODERN else "server/discover"):
                send({"id": message["id"], "error": {"code": -32601, "message": "not in this era"}})
            elif method == "subscriptions/listen":
                listening.append(message["id"])
                about = {"notifications": params["notifications"]}
                tell("notifications/subscriptions/acknowledged", about)
            else:
                found = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}
                send({"id": message["id"], "result": {**found, **(answer(method, params) or {})}})


if __name__ == "__main__":
    main()
