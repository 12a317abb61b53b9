"""A raw MCP client over Streamable HTTP for tests: no SDK, both eras, keep-alive, every byte visible."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

from mooring.testing import speech
from mooring.testing.client import Client
from mooring.testing.http_wire import Reply, Wire, head
from mooring.testing.peer import JSON

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_SSE = "text/event-stream"


class HttpClient(Client):
    """Speaks MCP with ``url`` (http). ``timeout`` bounds every wait, in seconds; ``token`` is the bearer key.

    ``replies`` holds every response with its raw bytes; ``notifications`` what servers said; ``asked`` their own
    requests (legacy), which are answered from ``answers``. Cancelling a task that waits in ``request`` closes its
    connection."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        era: speech.Era = "legacy",
        version: str | None = None,
        capabilities: JSON | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(era, capabilities, timeout)
        self.url = url
        self.token = token
        self.version = version or speech.NEWEST[era]
        self.headers = dict(headers or {})
        self.session: str | None = None
        self.replies: list[Reply] = []
        self._idle: list[Wire] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._idle:
            wire.close()

    async def open(self) -> JSON:
        """The first exchange: the result of ``initialize`` (legacy) or of ``server/discover`` (modern)."""
        if self.era == "modern":
            return await self.result("server/discover")
        result = await self.result("initialize", speech.hello(self.version, self.capabilities))
        self.session = self.replies[-1].headers.get("mcp-session-id")
        self.version = result["protocolVersion"]
        await self.notify("notifications/initialized")
        return result

    async def notify(self, method: str, params: JSON | None = None) -> int:
        """Send a notification; returns the HTTP status."""
        return await self._post_away({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def request(self, method: str, params: JSON | None = None, headers: Mapping[str, str] | None = None) -> JSON:
        """Send a request and wait for the response message. Raises TimeoutError, ConnectionError."""
        self._last_id += 1
        number, params = self._last_id, params or {}
        if self.era == "modern":
            params = speech.modern(params, self.version, self.capabilities)
        message: JSON = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        own = self._mirrored(method, params)
        async with (
            asyncio.timeout(self.timeout),
            self.post(json.dumps(message).encode(), {**own, **(headers or {})}) as it,
        ):
            if not it.headers.get("content-type", "").startswith(_SSE):
                return json.loads(await it.body())
            async for event in it.events():
                answer = await self._take(event)
                if answer is not None and answer.get("id") == number:
                    await it.body()
                    return answer
        raise ConnectionError("the stream ended without an answer")

    @asynccontextmanager
    async def listening(self, wanted: JSON | None = None) -> AsyncGenerator[Reply]:
        """The stream of what the server says outside requests, open within the block: GET (legacy), or
        ``subscriptions/listen`` for the notifications ``wanted`` (modern)."""
        self._last_id += 1
        params = speech.modern({"notifications": wanted or {}}, self.version, self.capabilities)
        message: JSON = {"jsonrpc": "2.0", "id": self._last_id, "method": "subscriptions/listen", "params": params}
        if self.era == "modern":
            stream = self.post(json.dumps(message).encode(), self._mirrored("subscriptions/listen", params))
        else:
            stream = self.exchange("GET", b"", {"Accept": _SSE, **self._own_headers()})
        async with stream as reply:
            reader = asyncio.create_task(self._follow(reply))
            try:
                yield reply
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def delete(self) -> int:
        """End the session (legacy); returns the HTTP status."""
        async with self.exchange("DELETE", b"", self._own_headers()) as reply:
            await reply.body()
            return reply.status

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Reply]:
        """``async with client.post(body) as reply``: any body, with the usual headers, some replaced by ``headers``."""
        usual = {"Content-Type": "application/json", "Accept": f"application/json, {_SSE}", **self._own_headers()}
        return self.exchange("POST", body, {**usual, **(headers or {})})

    @asynccontextmanager
    async def exchange(self, method: str, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[Reply]:
        """One HTTP exchange with exactly these headers (and Host, Content-Length) on a kept or a new connection, which
        is closed if the reply is not read to its end."""
        wire = self._kept() or await Wire.open(self.url)
        reply: Reply | None = None
        try:
            async with asyncio.timeout(self.timeout):
                reply = await wire.send(head(method, self.url, headers, body))
            self.replies.append(reply)
            yield reply
        finally:
            if reply is not None and reply.complete and reply.headers.get("connection", "").lower() != "close":
                self._idle.append(wire)
            else:
                wire.close()

    def _kept(self) -> Wire | None:
        """The connection used last that the server has not closed meanwhile, as it does with those that are idle."""
        while self._idle:
            wire = self._idle.pop()
            if not wire.closed:
                return wire
            wire.close()
        return None

    def _own_headers(self) -> dict[str, str]:
        own = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.session:
            own["Mcp-Session-Id"] = self.session
        if self.session or self.era == "modern":
            own["MCP-Protocol-Version"] = self.version
        return {**own, **self.headers}

    def _mirrored(self, method: str, params: JSON) -> dict[str, str]:
        """The headers that repeat what the body says (modern)."""
        if self.era != "modern":
            return {}
        name = params.get(_NAMED.get(method, ""))
        return {"Mcp-Method": method, **({"Mcp-Name": header_value(name)} if name else {})}

    async def _post_away(self, message: JSON) -> int:
        async with asyncio.timeout(self.timeout), self.post(json.dumps(message).encode()) as reply:
            await reply.body()
            return reply.status

    async def _follow(self, reply: Reply) -> None:
        async for event in reply.events():
            await self._take(event)

    async def _take(self, event: dict[str, str]) -> JSON | None:
        """Sort one event in; returns the message when it is a response."""
        if not event.get("data"):
            return None
        message: JSON = json.loads(event["data"])
        if "method" not in message:
            return message
        if "id" in message:
            self.asked.append(message)
            await self._post_away(
                {"jsonrpc": "2.0", "id": message["id"], "result": speech.answer(self.answers, message)}
            )
        else:
            self.notifications.append(message)
        async with self._news:
            self._news.notify_all()
        return None


def header_value(text: str) -> str:
    """``text`` for a header: plain where that is safe, else in the base64 form of the specification."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
