"""Results of MCP tools in the forms that models and people read. Pure; used by the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.wire import jsonrpc


def shown(result: Mapping[str, Any]) -> str:
    """All that a model can read of a result: its text blocks, and what it points to; its structured content when it
    has no blocks."""
    texts = [_block(block) for block in result.get("content", ())]
    if not texts and "structuredContent" in result:
        return jsonrpc.text(result["structuredContent"]).decode()
    return "\n".join(texts)


def _block(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[resource {block.get('uri')}]"
        case "resource":
            inner = block.get("resource", {})
            return str(inner["text"]) if "text" in inner else f"[resource {inner.get('uri')}]"
        case kind:
            return f"[{kind} {block.get('mimeType', '')}]"
