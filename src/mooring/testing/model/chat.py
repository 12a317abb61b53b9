"""OpenAI Chat Completions: ``POST /v1/chat/completions``. Source: the API reference."""

from __future__ import annotations

import json
import secrets

from mooring.testing.model.script import Answer, Transcript
from mooring.testing.model.shapes import JSON, Asked, Events, Tool, part, texts

_USAGE: JSON = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def read(body: JSON) -> Asked:
    """A request for a completion."""
    transcript = Transcript()
    for message in body.get("messages", ()):
        match message["role"]:
            case "user":
                transcript.user(texts(message.get("content")))
            case "assistant" if message.get("tool_calls"):
                transcript.called()
            case "tool":
                transcript.result(texts(message.get("content")))
            case _:
                pass
    functions = [(tool["function"], tool) for tool in body.get("tools") or () if tool["type"] == "function"]
    tools = [
        Tool(function["name"], function.get("description", ""), function.get("parameters", {}), tool)
        for function, tool in functions
    ]
    form = part(body, "response_format")
    schema = part(form, "json_schema", "schema") if form.get("type") == "json_schema" else None
    return Asked(body.get("model", ""), transcript, tools, schema)


def write(asked: Asked, answer: Answer) -> JSON:
    """The answer as a completion."""
    message: JSON = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            }
            for call in answer.calls
        ]
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": 0,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}],
        "usage": _USAGE,
    }


def events(reply: JSON) -> Events:
    """The same completion, piece by piece: names of functions first, then their arguments."""
    (choice,) = reply["choices"]
    message = choice["message"]
    head = {key: reply[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: JSON, finish: str | None = None) -> tuple[str, JSON]:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if message["content"] is not None:
        yield chunk({"content": message["content"]})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield chunk({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    yield chunk({}, choice["finish_reason"])
    yield "", {**head, "choices": [], "usage": reply["usage"]}
    yield "", "[DONE]"


def failure(status: int, message: str) -> JSON:
    """A refusal."""
    return {"error": {"message": message, "type": "scripted", "param": None, "code": str(status)}}
