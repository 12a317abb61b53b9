"""The load generator's MCP client: raw sockets, and every answer is decoded and compared.

Used by the suites. A request is one write, a response is parsed by hand (Content-Length or chunked; JSON or the first
matching SSE event). No retries and no limits of its own: who calls sets a timeout around it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, cast

import msgspec

LEGACY, MODERN = "2025-11-25", "2026-07-28"
CLIENT = {"name": "bench", "version": "1"}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ENCODE = msgspec.json.Encoder().encode


class WrongAnswerError(Exception):
    """The peer answered, but not with what had to come."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a peer is reached, and with which bearer token."""

    port: int
    path: str = "/mcp"
    token: str = "bench"


class Message(msgspec.Struct):
    """A JSON-RPC message of which only the envelope is decoded."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class Content(msgspec.Struct):
    """One piece of a tool's answer."""

    text: str = ""


class ToolResult(msgspec.Struct):
    """What is looked at in the result of ``tools/call``."""

    content: list[Content]
    isError: bool = False


class Tool(msgspec.Struct):
    """What is looked at in a listed tool."""

    name: str


class ToolsPage(msgspec.Struct):
    """One page of ``tools/list``."""

    tools: list[Tool]
    nextCursor: str | None = None


MESSAGE = msgspec.json.Decoder(Message).decode
TOOL_RESULT = msgspec.json.Decoder(ToolResult).decode
TOOLS_PAGE = msgspec.json.Decoder(ToolsPage).decode


class Response(msgspec.Struct):
    """A parsed HTTP response."""

    status: int
    headers: dict[bytes, bytes]
    message: Message | None
    arrived: float
    """``perf_counter`` when the message was complete; an SSE stream may end later."""


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self) -> None:
        self._done: asyncio.Future[Response] | None = None
        self._clear()

    def _clear(self) -> None:
        self._input = bytearray()
        self._body = bytearray()
        self._response: Response | None = None
        self._length: int | None = None
        self._scanned = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told."""
        if self._done and not self._done.done():
            self._done.set_exception(WrongAnswerError("the connection was closed instead of an answer"))

    async def exchange(self, request: bytes, number: int | None) -> Response:
        """Send a request; the response, with the message of that id in it."""
        self._clear()
        self._number = number
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        """Parse as far as it goes."""
        if not self._done or self._done.done():
            return
        if self._length is None:
            self._input += data
        else:
            self._body += data
        try:
            if self._parse():
                assert self._response
                self._done.set_result(self._response)
        except Exception as error:
            self._done.set_exception(error)

    def _parse(self) -> bool:
        """True when the response is complete."""
        response = self._response or self._parse_head()
        if response is None:
            return False
        complete = self._unchunk() if self._length is None else len(self._body) >= self._length
        kind = response.headers.get(b"content-type", b"")
        if response.message is None and kind.startswith(b"text/event-stream"):
            self._scan_events(response)
        elif complete and self._body and b"json" in kind:
            response.message = MESSAGE(self._body)
            response.arrived = time.perf_counter()
        return complete

    def _parse_head(self) -> Response | None:
        end = self._input.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = bytes(self._input[:end]).split(b"\r\n")
        del self._input[: end + 4]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if headers.get(b"transfer-encoding") != b"chunked":
            self._length = int(headers.get(b"content-length", 0))
            self._body, self._input = self._input, self._body
        self._response = Response(int(first.split(b" ", 2)[1]), headers, None, time.perf_counter())
        return self._response

    def _unchunk(self) -> bool:
        """Move whole chunks from the input to the body; True after the last one."""
        while (end := self._input.find(b"\r\n")) >= 0:
            size = int(self._input[:end], 16)
            if len(self._input) < end + size + 4:
                return False
            self._body += self._input[end + 2 : end + 2 + size]
            del self._input[: end + size + 4]
            if size == 0:
                return True
        return False

    def _scan_events(self, response: Response) -> None:
        """Look for the event that carries the answer."""
        body = bytes(self._body[self._scanned :]).replace(b"\r\n", b"\n")
        if b"\n\n" not in body:
            return
        for event in body.split(b"\n\n")[:-1]:
            data = b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
            message = MESSAGE(data) if data.strip() else Message()
            if message.id == self._number:
                response.message, response.arrived = message, time.perf_counter()
                return


class Session:
    """One caller: a connection, and in the legacy era a session that several callers may share."""

    def __init__(self, endpoint: Endpoint, *, modern: bool = False) -> None:
        self.endpoint = endpoint
        self.modern = modern
        self._numbers = itertools.count(1)
        self._session = b""

    async def open(self) -> Session:
        """Connect, and shake hands where the era has a handshake. Raises OSError, WrongAnswerError."""
        await self._connect()
        if not self.modern:
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
            response, _ = await self._request("initialize", hello)
            self._session = response.headers.get(b"mcp-session-id", b"")
            await self._connection.exchange(self._post({"method": "notifications/initialized"}), None)
        return self

    async def sibling(self) -> Session:
        """Another connection of the same session."""
        other = Session(self.endpoint, modern=self.modern)
        other._session, other._numbers = self._session, self._numbers
        await other._connect()
        return other

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(Connection, "127.0.0.1", self.endpoint.port)

    def close(self) -> None:
        """End the connection; peers forget sessions by themselves."""
        self._connection.transport.abort()

    def _post(self, message: dict[str, Any], extra: str = "") -> bytes:
        body = ENCODE({"jsonrpc": "2.0", **message})
        version = MODERN if self.modern else LEGACY
        session = f"Mcp-Session-Id: {self._session.decode()}\r\n" if self._session else ""
        head = (
            f"POST {self.endpoint.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.endpoint.port}\r\n"
            f"Authorization: Bearer {self.endpoint.token}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\n"
            f"{session}{extra}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _request(self, method: str, params: dict[str, Any]) -> tuple[Response, msgspec.Raw]:
        number, extra = next(self._numbers), ""
        if self.modern:
            name = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
            params, extra = {**params, "_meta": MODERN_META}, f"Mcp-Method: {method}\r\n{name}"
        request = self._post({"id": number, "method": method, "params": params}, extra)
        response = await self._connection.exchange(request, number)
        message = response.message
        if response.status != 200 or message is None or message.id != number or not memoryview(message.result):
            seen = bytes(message.error) or b"no error given" if message else b"no message"
            raise WrongAnswerError(f"{method}: HTTP {response.status}, {seen[:300].decode(errors='replace')}")
        return response, message.result

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, float]:
        """The text a tool answered, and the seconds until it was there."""
        begun = time.perf_counter()
        response, raw = await self._request("tools/call", {"name": tool, "arguments": arguments})
        result = TOOL_RESULT(raw)
        if result.isError:
            raise WrongAnswerError(f"{tool} failed: {result.content[0].text[:300]}")
        return result.content[0].text, response.arrived - begun

    async def tools(self) -> tuple[list[str], float]:
        """The names of all tools, and the seconds until the last page was there."""
        names: list[str] = []
        begun, params = time.perf_counter(), {}
        while True:
            response, raw = await self._request("tools/list", params)
            page = TOOLS_PAGE(raw)
            names += [tool.name for tool in page.tools]
            if not page.nextCursor:
                return names, response.arrived - begun
            params = {"cursor": page.nextCursor}


async def healthy(port: int, path: str) -> None:
    """Ask a peer on this machine whether it is ready. Raises OSError or WrongAnswerError when it is not yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        if b" 200 " not in await reader.readline():
            raise WrongAnswerError(f"{path} does not say 200")
    finally:
        writer.close()
