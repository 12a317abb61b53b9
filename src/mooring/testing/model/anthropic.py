"""Anthropic Messages: ``POST /v1/messages``. Source: the API reference, and what Claude Code sends."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from mooring.testing.model.script import Answer, Transcript
from mooring.testing.model.shapes import JSON, Asked, Events, Tool, part, parts, texts

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
"""What Claude Code appends to results of tools."""
_USAGE: JSON = {
    "input_tokens": 1,
    "output_tokens": 1,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


def read(body: JSON) -> Asked:
    """A request for a message. A tool whose loading is deferred counts once a search has found it."""
    transcript = Transcript()
    found: set[str] = set()
    for message in body.get("messages", ()):
        blocks = parts(message["content"])
        if message["role"] == "assistant":
            if any(block["type"] == "tool_use" for block in blocks):
                transcript.called()
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                found |= {str(each["tool_name"]) for each in parts(block.get("content")) if "tool_name" in each}
                transcript.result(_REMINDER.sub("", texts(block.get("content"))))
        transcript.user(texts(blocks))
    tools = [
        Tool(tool["name"], tool.get("description", ""), tool.get("input_schema", {}), tool)
        for tool in body.get("tools", ())
        if not tool.get("defer_loading") or tool["name"] in found
    ]
    form = part(body, "output_config", "format") or part(body, "output_format")
    schema = form.get("schema") if form.get("type") == "json_schema" else None
    return Asked(body.get("model", ""), transcript, tools, schema)


def write(asked: Asked, answer: Answer) -> JSON:
    """The answer as a message."""
    content: list[JSON] = [] if answer.text is None else [{"type": "text", "text": answer.text}]
    content += [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments} for call in answer.calls
    ]
    return {
        "id": f"msg_{secrets.token_hex(8)}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def events(reply: JSON) -> Events:
    """The same message, piece by piece."""

    def event(kind: str, **members: Any) -> tuple[str, JSON]:
        return kind, {"type": kind, **members}

    begun: JSON = {**reply, "content": [], "stop_reason": None}
    yield event("message_start", message=begun)
    for index, block in enumerate(reply["content"]):
        empty: JSON = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": block.get("text")}]
        if block["type"] == "tool_use":
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in _halves(block["input"])]
        yield event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": 1})
    yield event("message_stop")


def failure(status: int, message: str) -> JSON:
    """A refusal."""
    kind = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    return {"type": "error", "error": {"type": kind.get(status, "api_error"), "message": message}}


def _halves(arguments: JSON) -> tuple[str, str]:
    """Arguments in two pieces, as they come from a real model: neither is JSON."""
    text = json.dumps(arguments)
    return text[:1], text[1:]
