"""The conformance server on HTTP: both eras at ``/mcp``, one request a connection.

Source: MCP 2025-11-25 "Streamable HTTP", "Session Management"; MCP 2026-07-28 "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from typing import Any

from mooring.testing.conformance.call import Client, Era
from mooring.testing.conformance.headers import disagreement, local
from mooring.testing.conformance.server import LEGACY_VERSIONS, Server
from mooring.testing.conformance.streams import Stream, whole
from mooring.testing.peer import INVALID_REQUEST, JSON, PARSE_ERROR, RpcError


class Session:
    """One legacy session."""

    def __init__(self) -> None:
        self.id = secrets.token_urlsafe()
        self.outside = Stream(None, 0)
        """What it hears outside of requests."""
        self.client = Client(self.outside.say)
        self.streams = [self.outside]

    def stream(self, out: asyncio.StreamWriter, headers: str = "") -> Stream:
        """The stream of a new request."""
        self.streams.append(Stream(out, len(self.streams), headers))
        return self.streams[-1]

    def resumed(self, out: asyncio.StreamWriter, last: str | None) -> Stream | None:
        """The stream that a GET goes on with; None when there is no such."""
        number, _, index = (last or "0-999999999").partition("-")
        if not (number.isdigit() and index.isdigit() and int(number) < len(self.streams)):
            return None
        stream = self.streams[int(number)]
        stream.resume(out, int(index))
        return stream


class Request:
    """One HTTP request as it was read."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = [line.partition(":") for line in lines if line]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return Request(method, path, headers, body)


class Endpoint:
    """All connections of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sessions: dict[str, Session] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await _read(reader)
            refusal = await self._serve(request, reader, writer)
            if refusal is not None:
                writer.write(refusal)
            with suppress(RuntimeError):
                await writer.drain()
        writer.close()

    async def _serve(self, request: Request, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> bytes | None:
        """Write the answer, or return it."""
        headers = request.headers
        if not local(headers):
            return whole(403, {"error": "meant for someone else"})
        if request.path != "/mcp":
            return whole(404, {"error": "MCP is at /mcp"})
        legacy = self._era(headers) == "legacy"
        if request.method != "POST":
            return await self._other(request, reader, out) if legacy else whole(405)
        try:
            message: Any = json.loads(request.body)
        except ValueError as error:
            return _refused(400, PARSE_ERROR, str(error))
        if not isinstance(message, dict):
            return _refused(400, INVALID_REQUEST, "not a JSON-RPC message")
        take = self._legacy if legacy else self._modern
        return await take(message, headers, reader, out)  # pyright: ignore[reportUnknownArgumentType]

    def _era(self, headers: dict[str, str]) -> Era:
        if len(self._server.eras) == 1:
            return self._server.eras[0]
        version = headers.get("mcp-protocol-version")
        return "legacy" if version is None or version in LEGACY_VERSIONS else "modern"

    async def _modern(
        self, message: JSON, headers: dict[str, str], reader: asyncio.StreamReader, out: asyncio.StreamWriter
    ) -> bytes | None:
        if "method" not in message or "id" not in message:
            return whole(202)
        wrong = disagreement(headers, message)
        stream = Stream(out, None)
        if wrong is not None:
            stream.end({"jsonrpc": "2.0", "id": message["id"], "error": wrong.body()})
            return None
        answer = self._server.answer(Client(stream.say), message, "modern", stream.say)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(answer)
            left = group.create_task(_left(reader))
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            (left if work.done() else work).cancel()
        if not work.cancelled():
            stream.end(work.result())
        return None

    async def _legacy(
        self, message: JSON, headers: dict[str, str], reader: asyncio.StreamReader, out: asyncio.StreamWriter
    ) -> bytes | None:
        version = headers.get("mcp-protocol-version", LEGACY_VERSIONS[0])
        if version not in LEGACY_VERSIONS:
            return _refused(400, INVALID_REQUEST, f"protocol version {version} is not supported")
        if message.get("method") == "initialize":
            session = Session()
            self._sessions[session.id] = session
            stream = session.stream(out, f"Mcp-Session-Id: {session.id}\r\n")
        else:
            found = self._session(headers)
            if isinstance(found, bytes):
                return found
            session = found
            if "method" not in message or "id" not in message:
                self._server.notified(session.client, message)
                return whole(202)
            stream = session.stream(out)
        with suppress(asyncio.CancelledError):
            stream.end(await self._server.answer(session.client, message, "legacy", stream.say, stream.pause))
        return None

    def _session(self, headers: dict[str, str]) -> Session | bytes:
        id = headers.get("mcp-session-id")
        if id is None:
            return _refused(400, INVALID_REQUEST, "the Mcp-Session-Id header is missing")
        return self._sessions.get(id) or _refused(404, INVALID_REQUEST, "no such session")

    async def _other(self, request: Request, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> bytes | None:
        """GET and DELETE."""
        session = self._session(request.headers)
        if isinstance(session, bytes):
            return session
        if request.method == "DELETE":
            del self._sessions[session.id]
            self._server.gone(session.client)
            for each in session.streams:
                each.ended.set()
            return whole(200)
        if request.method != "GET":
            return whole(405)
        stream = session.resumed(out, request.headers.get("last-event-id"))
        if stream is None:
            return _refused(400, INVALID_REQUEST, "Last-Event-ID names no event of this session")
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(_left(reader)), group.create_task(stream.ended.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()
        stream.lost()
        return None


async def _left(reader: asyncio.StreamReader) -> None:
    """Wait until the client closes its connection."""
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass


def _refused(status: int, code: int, why: str) -> bytes:
    return whole(status, {"jsonrpc": "2.0", "id": None, "error": RpcError(code, why).body()})


async def serve(server: Server, port: int) -> None:
    """Serve for ever; the first line on stdout is the address."""
    endpoint = Endpoint(server)
    async with await asyncio.start_server(endpoint.connected, "127.0.0.1", port, limit=1 << 20) as listener:
        number = listener.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{number}/mcp", flush=True)
        await listener.serve_forever()
