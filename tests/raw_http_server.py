"""A raw MCP server over HTTP for tests: both eras, both transports, every byte under the test's control.

    async with RawServer(era="legacy") as server:
        server.tools["wait"] = my_tool          # async def my_tool(exchange, arguments) -> result
        ... server.url ... server.seen ...

No SDK; asyncio only. It can be stopped and started again on its port, forget its sessions, and refuse as told.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

JSON = dict[str, Any]
Tool = Callable[["Exchange", JSON], Awaitable[JSON | None]]
META = "io.modelcontextprotocol/"
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


class Exchange:
    """One HTTP request, and the ways to answer it."""

    def __init__(self, server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.verb = self.path = ""
        self.headers: dict[str, str] = {}
        self.body = b""
        self.message: JSON = {}
        self.over = asyncio.Event()
        """The client closed the connection while it was being answered."""
        self.streaming = False
        self._reader = reader
        self._writer = writer

    async def read(self) -> bool:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            self.verb, self.path, _ = first.split(" ")
            self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self.body = await self._reader.readexactly(int(self.headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.message = json.loads(self.body) if self.body else {}
        return True

    async def reply(self, status: int, body: bytes | JSON = b"", kind: str = "application/json", **more: str) -> None:
        """A whole response; ``more``: headers with ``_`` for ``-``."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": kind, "content-length": str(len(data)), **more}
        self._head(status, headers)
        self._writer.write(data)
        await self._writer.drain()

    async def result(self, result: JSON, **more: str) -> None:
        await self.reply(200, {"jsonrpc": "2.0", "id": self.message["id"], "result": result}, **more)

    async def error(self, status: int, code: int, message: str = "no", data: Any = None) -> None:
        error = {"code": code, "message": message, **({"data": data} if data else {})}
        await self.reply(status, {"jsonrpc": "2.0", "id": self.message.get("id"), "error": error})

    async def stream(self, **more: str) -> None:
        """Begin an event stream."""
        if not self.streaming:
            self.streaming = True
            self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **more})
            await self._writer.drain()

    async def event(self, data: JSON | str, kind: str = "", id: str = "", retry: int | None = None) -> None:
        """One event; begins the stream if need be."""
        await self.stream()
        text = data if isinstance(data, str) else json.dumps(data)
        fields = (f"event: {kind}\n" if kind else "") + (f"id: {id}\n" if id else "")
        fields += f"retry: {retry}\n" if retry is not None else ""
        await self.raw(f"{fields}data: {text}\n\n".encode())

    async def note(self, method: str, **params: Any) -> None:
        await self.event({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: JSON) -> JSON:
        """A request to the client on this stream; its response, which comes in a POST of its own."""
        self.server.asked += 1
        number = f"q{self.server.asked}"
        answer = self.server.answers[number] = asyncio.get_running_loop().create_future()
        await self.event({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await answer

    async def raw(self, data: bytes) -> None:
        """Bytes of the stream, in a chunk."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    async def finish(self, result: JSON) -> None:
        """The answer on the stream, and its end."""
        await self.event({"jsonrpc": "2.0", "id": self.message["id"], "result": result})
        await self.end()

    async def end(self) -> None:
        """The proper end of the stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        """Break the connection off."""
        self._writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())


class RawServer:
    """``era``: "legacy", "modern", "dual" or "sse" (the old transport). ``streams``: it has a GET stream."""

    def __init__(self, era: str = "dual", *, sessions: bool = True, streams: bool = True) -> None:
        self.era = era
        self.sessions = sessions
        self.streams = streams
        self.capabilities: JSON = CAPABILITIES
        self.tools: dict[str, Tool] = {"echo": _echo}
        self.seen: list[Exchange] = []
        self.known: set[str] = set()
        self.outside: list[Exchange] = []
        """Open streams for what is said outside requests."""
        self.override: Callable[[Exchange], Awaitable[bool]] | None = None
        """Sees every exchange first; True: it has answered."""
        self.answers: dict[str, asyncio.Future[JSON]] = {}
        self.asked = 0
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._count = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/mcp" if self.tls else f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        """What was asked of it: JSON-RPC methods, or HTTP verbs where there was none."""
        return [it.message.get("method", "answer") if it.verb == "POST" else it.verb for it in self.seen]

    def last(self, method: str) -> Exchange:
        return next(it for it in reversed(self.seen) if it.message.get("method") == method or it.verb == method)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; again on the same port after ``stop``."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=1 << 27, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be gone: nobody listens, every connection breaks, every session is forgotten."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.known.clear()
        self.outside.clear()

    async def announce(self, method: str, **params: Any) -> None:
        """Say something outside any request."""
        for exchange in tuple(self.outside):
            tag = {f"{META}subscriptionId": exchange.message["id"]} if exchange.verb == "POST" else None
            with suppress(RuntimeError):  # its client has just left
                await exchange.note(method, **params, **({"_meta": tag} if tag else {}))

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                exchange = Exchange(self, reader, writer)
                if not await exchange.read():
                    return
                self.seen.append(exchange)
                await self._watched(exchange, reader)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async def _watched(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        """Answer, and notice meanwhile when the client goes away."""
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._handle(exchange))

        async def watch() -> None:
            while not reader.at_eof() and reader.exception() is None:
                await asyncio.sleep(0.01)
            exchange.over.set()
            work.cancel()

        watcher = loop.create_task(watch())
        try:
            await asyncio.wait((work,))
        finally:
            watcher.cancel()
            work.cancel()
            await asyncio.gather(work, watcher, return_exceptions=True)
        if work.cancelled():
            raise ConnectionError("the client went away")
        work.result()

    async def _handle(self, it: Exchange) -> None:
        if self.override is not None and await self.override(it):
            return
        if self.era == "sse":
            await self._old(it)
        elif it.verb == "GET" and self.era != "modern":
            await self._get(it)
        elif it.verb == "DELETE":
            self.known.discard(it.headers.get("mcp-session-id", ""))
            await it.reply(200)
        elif it.verb != "POST":
            await it.reply(405)
        elif "method" not in it.message:
            self.answers.pop(it.message["id"]).set_result(it.message)
            await it.reply(202)
        elif f"{META}protocolVersion" in it.message.get("params", {}).get("_meta", {}) and self.era != "legacy":
            await self._answer(it, modern=True)
        elif self.era == "modern":
            await it.error(400, -32602, "no version")
        else:
            await self._legacy(it)

    async def _get(self, it: Exchange) -> None:
        if not self.streams:
            await it.reply(405)
        elif self.sessions and it.headers.get("mcp-session-id") not in self.known:
            await it.reply(404)
        else:
            await it.stream()
            await self._open(it)

    async def _open(self, it: Exchange) -> None:
        """Something may be said here until the client leaves."""
        self.outside.append(it)
        try:
            await it.over.wait()
        finally:
            if it in self.outside:
                self.outside.remove(it)

    async def _legacy(self, it: Exchange) -> None:
        if it.message["method"] == "initialize":
            self._count += 1
            session = {"mcp_session_id": f"s{self._count}"} if self.sessions else {}
            self.known.update(session.values())
            await it.result(self._hello("2025-11-25"), **session)
        elif self.sessions and "mcp-session-id" not in it.headers:
            await it.error(400, -32000, "Bad Request: Server not initialized")
        elif self.sessions and it.headers["mcp-session-id"] not in self.known:
            await it.error(404, -32001, "Session not found")
        elif "id" not in it.message:
            await it.reply(202)
        else:
            await self._answer(it, modern=False)

    def _hello(self, version: str) -> JSON:
        info = {"name": "raw", "version": "1"}
        return {"protocolVersion": version, "capabilities": self.capabilities, "serverInfo": info}

    async def _answer(self, it: Exchange, modern: bool) -> None:
        params = it.message.get("params", {})
        done = {"resultType": "complete"} if modern else {}
        match it.message["method"]:
            case "server/discover" if modern:
                offered = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
                await it.result({**done, **offered, "_meta": {f"{META}serverInfo": {"name": "raw", "version": "1"}}})
            case "subscriptions/listen" if modern:
                tag = {"_meta": {f"{META}subscriptionId": it.message["id"]}}
                await it.note("notifications/subscriptions/acknowledged", notifications=params["notifications"], **tag)
                await self._open(it)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
                await it.result({**done, "tools": tools})
            case "resources/list" | "resources/templates/list":
                member = "resources" if it.message["method"] == "resources/list" else "resourceTemplates"
                await it.result({**done, member: []})
            case "tools/call" if params["name"] in self.tools:
                result = await self.tools[params["name"]](it, params.get("arguments", {}))
                if result is not None:
                    await (it.finish if it.streaming else it.result)({**done, **result})
            case "ping" | "resources/subscribe" | "logging/setLevel":
                await it.result({})
            case _:
                await it.error(404 if modern else 200, -32601, "unknown method")

    async def _old(self, it: Exchange) -> None:
        """HTTP+SSE: POST to the stream's own URL is refused, messages go to another."""
        if it.verb == "GET":
            await it.stream()
            self.outside.append(it)
            await it.event(f"/messages?session={len(self.outside)}", kind="endpoint")
            await it.over.wait()
        elif not it.path.startswith("/messages"):
            await it.reply(405)
        else:
            await it.reply(202)
            await self._old_message(it.message, self.outside[int(it.path.partition("=")[2]) - 1])

    async def _old_message(self, message: JSON, stream: Exchange) -> None:
        if message.get("method") == "initialize":
            await stream.event({"jsonrpc": "2.0", "id": message["id"], "result": self._hello("2024-11-05")})
        elif message.get("method") == "tools/list":
            tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
            await stream.event({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        elif message.get("method") == "tools/call":
            result = await _echo(stream, message["params"].get("arguments", {}))
            await stream.event({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "id" in message:
            await stream.event({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})


async def _echo(exchange: Exchange, arguments: JSON) -> JSON:
    return {"content": [{"type": "text", "text": json.dumps(arguments)}], "structuredContent": arguments}
