"""OpenAI Responses: ``POST /v1/responses``. Source: the API reference, and what Codex sends: tools in namespaces."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from mooring.testing.model.chat import failure
from mooring.testing.model.script import Answer, Call, Transcript
from mooring.testing.model.shapes import JSON, Asked, Events, Tool, part, texts

__all__ = ["events", "failure", "read", "write"]

_USAGE: JSON = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
_LATER = ("additional_tools", "tool_search_output")
"""Input items that bring more tools."""


def read(body: JSON) -> Asked:
    """A request for a response."""
    asked: Any = body.get("input", "")
    items: list[JSON] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    transcript = Transcript()
    tools = list(_tools(body.get("tools") or ()))
    for item in items:
        match item.get("type", "message"):
            case "message" if item.get("role") == "user":
                transcript.user(texts(item.get("content")))
            case "function_call" | "custom_tool_call":
                transcript.called_by(item["call_id"])
            case "function_call_output" | "custom_tool_call_output":
                transcript.result(texts(item.get("output")))
            case kind if kind in _LATER:
                tools += _tools(item.get("tools") or ())
            case _:
                pass
    form = part(body, "text", "format")
    schema = part(form, "schema") if form.get("type") == "json_schema" else None
    return Asked(body.get("model", ""), transcript, tools, schema)


def _tools(listed: Any, namespace: str = "") -> Iterator[Tool]:
    for tool in listed:
        if tool["type"] == "namespace":
            yield from _tools(tool["tools"], tool["name"])
        elif tool["type"] in ("function", "custom"):
            prefix = f"{namespace.removesuffix('__')}__" if namespace else ""
            schema = part(tool, "parameters")
            yield Tool(prefix + tool["name"], tool.get("description", ""), schema, tool, namespace)


def write(asked: Asked, answer: Answer) -> JSON:
    """The answer as a response."""
    output: list[JSON] = [] if answer.text is None else [_message(answer.text)]
    output += [_call(asked.tool(call.tool), call) for call in answer.calls]
    return {
        "id": f"resp_{secrets.token_hex(8)}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": asked.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _USAGE,
    }


def _message(text: str) -> JSON:
    content: JSON = {"type": "output_text", "text": text, "annotations": []}
    own: JSON = {"type": "message", "id": f"msg_{secrets.token_hex(8)}"}
    return {**own, "role": "assistant", "status": "completed", "content": [content]}


def _call(tool: Tool, call: Call) -> JSON:
    own: JSON = {
        "id": f"fc_{secrets.token_hex(8)}",
        "call_id": call.id,
        "name": tool.raw["name"],
        "status": "completed",
    }
    if tool.raw["type"] == "custom":
        return {"type": "custom_tool_call", **own, "input": call.arguments.get("input", "")}
    space = {"namespace": tool.namespace} if tool.namespace else {}
    return {"type": "function_call", **own, **space, "arguments": json.dumps(call.arguments)}


def events(reply: JSON) -> Events:
    """The same response, piece by piece."""
    number = 0

    def event(kind: str, **members: Any) -> tuple[str, JSON]:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number - 1, **members}

    begun: JSON = {**reply, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(reply["output"]):
        for kind, members in _pieces(item):
            if kind == "output_item.added":
                yield event(f"response.{kind}", output_index=index, **members)
            else:
                yield event(f"response.{kind}", output_index=index, item_id=item["id"], **members)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=reply)


def _pieces(item: JSON) -> Iterator[tuple[str, JSON]]:
    """One output item: announced empty, then what is in it."""
    begun = {**item, "status": "in_progress"}
    if item["type"] == "message":
        (text,) = item["content"]
        where: JSON = {"content_index": 0}
        yield "output_item.added", {"item": {**begun, "content": []}}
        yield "content_part.added", {**where, "part": {**text, "text": ""}}
        yield "output_text.delta", {**where, "delta": text["text"], "logprobs": []}
        yield "output_text.done", {**where, "text": text["text"], "logprobs": []}
        yield "content_part.done", {**where, "part": text}
        return
    own, piece = ("input", "custom_tool_call_input")
    if item["type"] == "function_call":
        own, piece = ("arguments", "function_call_arguments")
    yield "output_item.added", {"item": {**begun, own: ""}}
    yield f"{piece}.delta", {"delta": item[own]}
    yield f"{piece}.done", {own: item[own], "name": item["name"]}
