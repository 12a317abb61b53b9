"""What the wire formats have in common: tools that are offered, a request as it was read, an answer to be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, cast

import msgspec

from mooring.testing.model.script import Answer, Transcript

JSON = dict[str, Any]
Events = Iterator[tuple[str, JSON | str]]
"""Server-sent events: name ("" for none) and data."""


class Tool(msgspec.Struct):
    """A tool that a client offers its model."""

    name: str
    """As a call may name it; with the namespace in front, where the format has such."""
    description: str
    schema: JSON
    """JSON schema of the arguments."""
    raw: JSON
    """As the client sent it."""
    namespace: str = ""


class Asked(msgspec.Struct):
    """A request for the model's next turn."""

    model: str
    transcript: Transcript
    tools: list[Tool]
    schema: JSON | None = None
    """JSON schema that the answer has to satisfy; None where text is wanted."""

    def tool(self, name: str) -> Tool:
        """The offered tool of this name."""
        return next(tool for tool in self.tools if tool.name == name)


class Wire(Protocol):
    """A wire format; each is a module of pure functions."""

    def read(self, body: JSON) -> Asked: ...
    def write(self, asked: Asked, answer: Answer) -> JSON: ...
    def events(self, reply: JSON) -> Events: ...
    def failure(self, status: int, message: str) -> JSON: ...


def part(body: JSON, *path: str) -> JSON:
    """The object that ``path`` leads to; an empty one where something else, or nothing, is there."""
    for name in path:
        inner = body.get(name)
        if not isinstance(inner, dict):
            return {}
        body = cast(JSON, inner)
    return body


def parts(content: Any) -> list[JSON]:
    """A message's content as a list of parts: it may be text, or a single part."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [content] if isinstance(content, dict) else list(content or ())


def texts(content: Any) -> str:
    """The text in a message's content."""
    return "\n".join(str(each["text"]) for each in parts(content) if each.get("text"))
