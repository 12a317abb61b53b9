"""What the HTTP tests share: a stub relay, a served front, and a client that writes bytes on a socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress

from mooring.errors import Refused, Unauthenticated, Unavailable
from mooring.nouns import Principal
from mooring.wire.headers import Hosts
from mooring.wire.http import HttpServer, Limits, Reply
from mooring.wire.http_front import McpFront
from mooring.wire.jsonrpc import METHOD_NOT_FOUND, Answer, failure, members, string, text

LIMIT = 20.0
"""Seconds that any wait of a test may take."""
MODERN = "2026-07-28"
BOTH = "application/json, text/event-stream"


def result(value) -> Answer:
    return Answer(result=text(value))


class StubRelay:
    """A handler whose tools do what transports have to cope with."""

    def __init__(self) -> None:
        self.requests = []
        self.notifications = []
        self.sessions = []
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.finished = asyncio.Event()
        self.changes = asyncio.Queue()

    def opened(self, session) -> None:
        self.sessions.append(session)

    def notified(self, session, method, params) -> None:
        self.notifications.append((method, params))

    async def handle(self, request) -> Answer:
        self.requests.append(request)
        modern = {"resultType": "complete"} if request.era == "modern" else {}
        match request.method:
            case "initialize":
                info = {"name": "stub", "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                return result({"protocolVersion": request.version, "capabilities": capabilities, "serverInfo": info})
            case "server/discover":
                offer = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}}
                return result({**offer, **modern, "ttlMs": 0, "cacheScope": "private"})
            case "ping":
                return result({})
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "progress")]
                caching = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
                return result({"tools": tools, **modern, **caching})
            case "tools/call":
                name = string(members(request.params)["name"])
                return await self.call(request, name, modern)
            case "subscriptions/listen":
                request.heard("notifications/subscriptions/acknowledged", b'{"notifications":{}}')
                while True:
                    request.heard(await self.changes.get(), b"{}")
        return failure(METHOD_NOT_FOUND, "no such method")

    async def call(self, request, name, modern) -> Answer:
        match name:
            case "progress":
                token = json.loads(request.params).get("_meta", {}).get("progressToken", "t")
                for step in (1, 2):
                    request.heard("notifications/progress", text({"progressToken": token, "progress": step}))
            case "ask":
                answer = await request.ask("elicitation/create", b'{"message":"sure?"}')
                said = (answer.result or answer.error).decode()
                return result({"content": [{"type": "text", "text": said}], **modern})
            case "hold":
                self.started.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
                self.finished.set()
            case "flood":
                self.started.set()
                while True:
                    request.heard("notifications/message", b'{"data":"' + b"x" * 100_000 + b'"}')
                    await asyncio.sleep(0)
            case "large" | "large-stream":
                if name == "large-stream":
                    request.heard("notifications/progress", b"{}")
                return result({"content": [{"type": "text", "text": "x" * 3_000_000}], **modern})
            case "refused":
                raise Refused("not for you")
            case "unavailable":
                raise Unavailable("down", server="s01", phase="start", retry_at=7.0)
            case "broken":
                raise RuntimeError("a bug")
        return result({"content": [{"type": "text", "text": name}], **modern})


def login(authorization, workspace, variant, peer) -> Principal:
    """Keys "Bearer <workspace>-<n>"; "Bearer alice-1" and "Bearer alice-2" are two keys of one workspace."""
    if authorization is None or not authorization.startswith("Bearer ") or "-" not in authorization:
        raise Unauthenticated
    key = authorization[7:]
    mine = key.partition("-")[0]
    if workspace not in (None, mine):
        raise Refused
    return Principal(key_id=key, workspace=mine)


class Served:
    def __init__(self, relay, front, server, port) -> None:
        self.relay, self.front, self.server, self.port = relay, front, server, port


async def healthz(request) -> Reply:
    return Reply(200, b'{"ok":true}')


@asynccontextmanager
async def serving(limits=Limits(), **options):
    """The whole front on a real socket."""
    relay = StubRelay()
    front = McpFront(relay, options.pop("login", login), hosts=Hosts(()), pages={"/healthz": healthz}, **options)
    async with HttpServer(front, admit=front.admit, limits=limits, grace=0.2) as server, front:
        host, port = await server.listen("127.0.0.1", 0)
        front.hosts = Hosts([(host, port)])
        yield Served(relay, front, server, port)


class Answered:
    def __init__(self, status, headers, body) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        lines = self.body.decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


class Wire:
    """One connection; writes exactly the bytes it is told to."""

    def __init__(self, port, key="alice-1") -> None:
        self.port, self.key, self.session = port, key, None
        self.unread = b""

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with suppress(OSError):
            await asyncio.wait_for(self.writer.wait_closed(), LIMIT)

    def request(self, method="POST", path="/mcp", body=b"", **headers) -> bytes:
        fields = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.key}"}
        if method == "POST":
            fields |= {"Accept": BOTH, "Content-Type": "application/json", "Content-Length": str(len(body))}
        if self.session:
            fields["Mcp-Session-Id"] = self.session
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items() if value is not None),
        ]
        return "\r\n".join((*lines, "", "")).encode() + body

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self):
        """Status and headers of the next answer."""
        async with asyncio.timeout(LIMIT):
            block = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = block.decode("latin-1").split("\r\n")[:-2]
        version, code, _ = status.split(" ", 2)
        assert version == "HTTP/1.1"
        return int(code), {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its end."""
        async with asyncio.timeout(LIMIT):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self):
        """The next message of an event stream; None at its end."""
        while data := await self.raw_event():
            if b"event: message\n" in data:
                return json.loads(data.partition(b"data: ")[2])
        return None

    async def raw_event(self) -> bytes:
        """The next event as it was sent; empty at the end of the stream. A chunk may hold several."""
        while b"\n\n" not in self.unread and (more := await self.chunk()):
            self.unread += more
        event, _, self.unread = self.unread.partition(b"\n\n")
        return event

    async def answer(self, bodyless=False) -> Answered:
        status, headers = await self.head()
        if bodyless or status == 100:
            return Answered(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while part := await self.chunk():
                body += part
            return Answered(status, headers, body)
        async with asyncio.timeout(LIMIT):
            if "content-length" in headers:
                return Answered(status, headers, await self.reader.readexactly(int(headers["content-length"])))
            return Answered(status, headers, await self.reader.read())

    async def closed(self) -> bool:
        """Wait until the server has closed the connection."""
        async with asyncio.timeout(LIMIT):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def ask(self, *args, **kwargs) -> Answered:
        self.send(self.request(*args, **kwargs))
        return await self.answer()

    def legacy(self, method, params=None, id=1, **headers) -> bytes:
        return self.request(body=message(method, params, id), **headers)

    async def call(self, method, params=None, id=1, **headers) -> Answered:
        """A legacy message and its answer."""
        self.send(self.legacy(method, params, id, **headers))
        return await self.answer()

    async def tool(self, name, id=1) -> Answered:
        return await self.call("tools/call", {"name": name, "arguments": {}}, id)

    async def initialize(self, version="2025-11-25", capabilities=None) -> Answered:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        answer = await self.call("initialize", params, id=0)
        self.session = answer.headers.get("mcp-session-id")
        return answer

    def modern(self, method, params=None, id=1, meta=None, **headers) -> bytes:
        meta = modern_meta() if meta is None else meta
        fields = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method}
        named = (params or {}).get("name") or (params or {}).get("uri")
        if named:
            fields["Mcp_Name"] = named
        return self.request(body=message(method, {**(params or {}), "_meta": meta}, id), **(fields | headers))

    async def call_modern(self, method, params=None, id=1, meta=None, **headers) -> Answered:
        self.send(self.modern(method, params, id, meta, **headers))
        return await self.answer()


def modern_meta(version=MODERN, **more):
    prefix = "io.modelcontextprotocol/"
    return {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {}, **more}


def message(method, params=None, id=1) -> bytes:
    parts = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        parts["id"] = id
    if params is not None:
        parts["params"] = params
    return json.dumps(parts).encode()
