"""Gemini: ``POST /v1beta/models/M:generateContent`` and ``:streamGenerateContent``. Source: the API reference, and what
Gemini CLI sends."""

from __future__ import annotations

import json

from mooring.testing.model.script import Answer, Transcript
from mooring.testing.model.shapes import JSON, Asked, Events, Tool, part, parts, texts


def read(body: JSON) -> Asked:
    """A request for content."""
    transcript = Transcript()
    for content in body.get("contents", ()):
        inner = parts(content.get("parts"))
        if content.get("role") == "model":
            if any("functionCall" in each for each in inner):
                transcript.called()
            continue
        for each in inner:
            if "functionResponse" in each:
                transcript.result(_result(part(each, "functionResponse", "response")))
        transcript.user(texts(inner))
    declared = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations", ())]
    tools = [
        Tool(
            each["name"], each.get("description", ""), each.get("parametersJsonSchema") or each.get("parameters"), each
        )
        for each in declared
    ]
    config = part(body, "generationConfig")
    schema = part(config, "responseJsonSchema") or part(config, "responseSchema")
    return Asked("", transcript, tools, schema or None)


def _result(response: JSON) -> str:
    """Gemini CLI sends the text of a result as ``output``; what has none comes as JSON."""
    text = response.get("output")
    return text if isinstance(text, str) else json.dumps(response)


def write(asked: Asked, answer: Answer) -> JSON:
    """The answer as content."""
    said: list[JSON] = [] if answer.text is None else [{"text": answer.text}]
    said += [{"functionCall": {"id": call.id, "name": call.tool, "args": call.arguments}} for call in answer.calls]
    content = {"role": "model", "parts": said}
    return {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": content}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "scripted",
    }


def events(reply: JSON) -> Events:
    """The same content in one piece."""
    yield "", reply


def failure(status: int, message: str) -> JSON:
    """A refusal."""
    return {"error": {"code": status, "message": message, "status": "SCRIPTED"}}
