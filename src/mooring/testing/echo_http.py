"""The echo server on HTTP, with a thread for each request: streamable HTTP in both eras, or the old HTTP+SSE.

Standard library only. ``echo --http PORT`` and ``--sse PORT`` run it; the first line on stdout is its URL. In the
legacy era each session is a server of its own, as a process is on stdio; modern requests share one. Ids are those of
the client, of which there should be one.

Source: MCP 2025-11-25 and 2026-07-28 "Streamable HTTP"; 2024-11-05 "HTTP with SSE".
"""

from __future__ import annotations

import json
import secrets
import select
import socket
from argparse import Namespace
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mooring.testing.peer import INVALID_PARAMS, JSON, METHOD_NOT_FOUND
from mooring.testing.server import LEGACY_VERSIONS, Server

LOOK = 0.05
"""Seconds between two looks whether the client is still there."""
_BAD = (INVALID_PARAMS, -32020, -32021, -32022)


class Conversation:
    """One legacy session, or all modern requests: what is said about a request goes to its stream, all else outside."""

    def __init__(self, flags: Namespace) -> None:
        self.server = Server(flags, self.write)
        self.outside: Queue[str] = Queue()
        self.streams: dict[Any, Queue[str]] = {}

    def write(self, text: str, about: Any = None) -> None:
        """Take one message of the server."""
        if text:
            self.streams.get(about, self.outside).put(text)


class Endpoint(ThreadingHTTPServer):
    """All conversations of the server."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, flags: Namespace) -> None:
        super().__init__(("127.0.0.1", flags.http if flags.sse is None else flags.sse), Handler)
        self.flags = flags
        self.modern = Conversation(flags)
        self.sessions: dict[str, Conversation] = {}


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def endpoint(self) -> Endpoint:
        """All that the connections share."""
        assert isinstance(self.server, Endpoint)
        return self.server

    def do_POST(self) -> None:
        """A message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message: JSON = json.loads(body)
        session = parse_qs(urlsplit(self.path).query).get("session", [""])[0]
        if self.endpoint.flags.sse is not None:
            self._old(self.endpoint.sessions.get(session), body)
        elif self._modern():
            self._answer(self.endpoint.modern, message, body, modern=True)
        elif message.get("method") == "initialize":
            self._open(message, body)
        elif (found := self._session()) is not None:
            self._answer(found, message, body)

    def do_GET(self) -> None:
        """A stream of what is said outside requests; of everything in the old transport."""
        if self.endpoint.flags.sse is not None:
            session = self._new()
            self._begin()
            self._event(f"/messages?session={session}", "endpoint")
            self._follow(self.endpoint.sessions[session].outside)
        elif (found := self._session()) is not None:
            self._begin()
            self._follow(found.outside)

    def do_DELETE(self) -> None:
        """The end of a session."""
        self.endpoint.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        self._whole(200)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr is for what tools complain of."""

    def _modern(self) -> bool:
        version = self.headers.get("MCP-Protocol-Version")
        known_legacy = version is None or version in LEGACY_VERSIONS
        return self.endpoint.flags.era == "modern" or (not known_legacy and self.endpoint.flags.era != "legacy")

    def _session(self) -> Conversation | None:
        found = self.endpoint.sessions.get(self.headers.get("Mcp-Session-Id", ""))
        if found is None:
            self._whole(404 if "Mcp-Session-Id" in self.headers else 400, '{"error":"no session"}')
        return found

    def _new(self) -> str:
        session = secrets.token_hex(8)
        self.endpoint.sessions[session] = Conversation(self.endpoint.flags)
        return session

    def _old(self, session: Conversation | None, body: bytes) -> None:
        if session is None:
            self._whole(404)
            return
        self._whole(202)
        session.server.receive(body)

    def _open(self, message: JSON, body: bytes) -> None:
        session = self._new()
        self._answer(self.endpoint.sessions[session], message, body, f"Mcp-Session-Id: {session}")

    def _answer(
        self, conversation: Conversation, message: JSON, body: bytes, header: str = "", modern: bool = False
    ) -> None:
        """The answer to a request, as a stream when something is said before it."""
        if "id" not in message or "method" not in message:
            conversation.server.receive(body)
            self._whole(202)
            return
        queue = conversation.streams[message["id"]] = Queue()
        conversation.server.receive(body)
        streaming = False
        while (text := self._next(queue)) is not None:
            answer: JSON = json.loads(text)
            if "method" not in answer and not streaming:
                self._whole(_status(answer) if modern else 200, text, header)
                break
            if not streaming:
                streaming = True
                self._begin()
            self._event(text)
            if "method" not in answer:
                self._chunk(b"")
                break
        else:
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": message["id"]}}
            if modern:
                conversation.server.receive(json.dumps(cancelled).encode())
        conversation.streams.pop(message["id"], None)

    def _follow(self, queue: Queue[str]) -> None:
        while (text := self._next(queue)) is not None:
            self._event(text)

    def _next(self, queue: Queue[str]) -> str | None:
        """The next message; None when the client is gone."""
        while not self._left():
            with suppress(Empty):
                return queue.get(timeout=LOOK)
        self.close_connection = True
        return None

    def _left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _begin(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def _event(self, text: str, kind: str = "message") -> None:
        self._chunk(f"event: {kind}\ndata: {text}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        with suppress(OSError):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, status: int, text: str = "", header: str = "") -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        with suppress(OSError):
            self.wfile.write(f"{head}{header}{header and chr(13) + chr(10)}\r\n".encode() + data)


def _status(answer: JSON) -> int:
    code = answer.get("error", {}).get("code")
    return 404 if code == METHOD_NOT_FOUND else 400 if code in _BAD else 200


def serve(flags: Namespace) -> None:
    """Serve until the process is ended."""
    endpoint = Endpoint(flags)
    path = "mcp" if flags.sse is None else "sse"
    print(f"http://127.0.0.1:{endpoint.server_address[1]}/{path}", flush=True)
    with suppress(KeyboardInterrupt):
        endpoint.serve_forever()
