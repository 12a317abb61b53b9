"""The scripted model's port: which path is which wire format, and what was asked."""

from __future__ import annotations

import asyncio
import json
import re
from types import TracebackType
from typing import Any, Self

import msgspec

from mooring.testing.model import anthropic, chat, gemini, responses
from mooring.testing.model.schema import smallest
from mooring.testing.model.script import Answer
from mooring.testing.model.shapes import JSON, Asked, Events, Tool, Wire
from mooring.wire.http import HttpServer, Reply, Request, Stream

_WIRES: tuple[tuple[str, Wire, str], ...] = (
    ("anthropic", anthropic, r"/v1/messages$"),
    ("responses", responses, r"/responses$"),
    ("chat", chat, r"/chat/completions$"),
    ("gemini", gemini, r"/models/[^/]+:(generateContent|streamGenerateContent)$"),
)
_SIDE: tuple[tuple[str, JSON], ...] = (
    (r"/v1/messages/count_tokens$", {"input_tokens": 1}),
    (r"/models/[^/]+:countTokens$", {"totalTokens": 1}),
    (
        r"/models$",  # a list that OpenAI's, Anthropic's and Codex's clients can all read
        {
            "object": "list",
            "data": [{"id": "scripted", "object": "model", "type": "model", "created": 0, "owned_by": "mooring"}],
            "has_more": False,
            "models": [],
        },
    ),
    (r"^/$", {}),
)
"""Other paths that clients ask on their way, and what they are told."""
_EVENTS = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
_SECONDS = 1.0
"""That running answers have at the end."""


class Recorded(msgspec.Struct):
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    """Values by lower-case name."""
    body: Any
    """What its JSON says; None without a body."""
    wire: str = ""
    """anthropic, responses, chat or gemini; empty for side requests."""
    tools: list[Tool] = []
    results: list[str] = []
    """What the tools called in the turn before gave, as the client tells its model."""

    @property
    def offered(self) -> list[str]:
        """The names of the tools that the client offered, sorted."""
        return sorted(tool.name for tool in self.tools)


class Model:
    """Serves between ``async with`` and its end. ``url`` is what Anthropic's and Gemini's clients call the base URL;
    OpenAI's want ``url + "/v1"``. ``requests`` holds everything that came, oldest first."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.url = ""
        self.requests: list[Recorded] = []
        self._address = (host, port)
        self._server = HttpServer(self._handle, grace=_SECONDS)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        host, port = await self._server.listen(*self._address)
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()

    @property
    def turns(self) -> list[Recorded]:
        """The requests for a turn of the model that offered it tools."""
        return [each for each in self.requests if each.tools]

    async def _handle(self, request: Request) -> Reply | Stream:
        seen = Recorded(request.method.decode(), request.path, _named(request), None)
        self.requests.append(seen)
        try:
            seen.body = json.loads(request.body) if request.body else None
        except ValueError:
            return _reply(400, {"error": {"message": "the body is not JSON"}})
        for pattern, reply in _SIDE:
            if re.search(pattern, request.path):
                return _reply(200, reply)
        for name, wire, pattern in _WIRES:
            if request.method == b"POST" and re.search(pattern, request.path):
                seen.wire = name
                return await _turn(wire, request, seen)
        return _reply(404, {"error": {"message": f"nothing is at {request.path}"}})


async def _turn(wire: Wire, request: Request, seen: Recorded) -> Reply | Stream:
    """Read, decide, write."""
    asked = wire.read(seen.body)
    seen.tools, seen.results = asked.tools, asked.transcript.results
    answer = _decide(asked)
    await asyncio.sleep(answer.wait)
    if answer.fail:
        return _reply(answer.fail, wire.failure(answer.fail, "refused as the script says"))
    reply = wire.write(asked, answer)
    if b"alt=sse" in request.query or seen.body.get("stream"):
        return _stream(request, wire.events(reply))
    return _reply(200, reply)


def _decide(asked: Asked) -> Answer:
    """Side requests that want JSON get the least of it; they may quote the prompt, and are not meant by it."""
    if asked.schema is not None:
        return Answer(json.dumps(smallest(asked.schema)))
    return asked.transcript.answer([tool.name for tool in asked.tools])


def _stream(request: Request, events: Events) -> Stream:
    stream = request.begin(_EVENTS, b": waiting\n\n")
    for name, data in events:
        head = f"event: {name}\n" if name else ""
        text = data if isinstance(data, str) else json.dumps(data)
        stream.send(f"{head}data: {text}\n\n".encode())
    return stream


def _reply(status: int, body: JSON) -> Reply:
    return Reply(status, json.dumps(body).encode())


def _named(request: Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
