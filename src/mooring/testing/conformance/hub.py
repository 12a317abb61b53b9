"""What all clients of one conformance server share: the lists that change, and who hears of it."""

from __future__ import annotations

from mooring.testing.call import META
from mooring.testing.conformance.call import Call, Client
from mooring.testing.conformance.content import PROMPTS
from mooring.testing.conformance.tools import TOOLS, definition
from mooring.testing.peer import JSON

EXTRA: dict[str, JSON] = {
    "tools": {"name": "test_dynamic_tool", "description": "Comes and goes", "inputSchema": {"type": "object"}},
    "prompts": {"name": "test_dynamic_prompt", "description": "Comes and goes"},
}
"""What the two trigger tools add, and take away again."""
TRIGGERS = {"test_trigger_tool_change": "tools", "test_trigger_prompt_change": "prompts"}


class Hub:
    """One server process."""

    def __init__(self) -> None:
        self.clients: set[Client] = set()
        """Legacy conversations."""
        self.listens: dict[Call, JSON] = {}
        """Open listen requests of modern clients, and what they are told."""
        self.lists: dict[str, list[JSON]] = {
            "tools": [definition(name) for name in TOOLS] + [_trigger(name) for name in TRIGGERS],
            "prompts": list(PROMPTS),
        }

    def toggle(self, kind: str) -> None:
        """Change a list and announce it in each era's way."""
        items, extra = self.lists[kind], EXTRA[kind]
        (items.remove if extra in items else items.append)(extra)
        method = f"notifications/{kind}/list_changed"
        for client in self.clients:
            if client.initialized:
                client.say({"jsonrpc": "2.0", "method": method})
        for call, wanted in self.listens.items():
            if wanted.get(f"{kind}ListChanged"):
                call.notify(method, tagged(call))


def tagged(call: Call) -> JSON:
    """Params of a message on a listen stream."""
    return {"_meta": {META + "subscriptionId": call.id}}


def _trigger(name: str) -> JSON:
    what = TRIGGERS[name]
    schema: JSON = {"type": "object", "properties": {}}
    return {"name": name, "description": f"Changes the list of {what}", "inputSchema": schema}
