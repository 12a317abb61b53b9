"""Whatever arrives on any door of one live daemon, it goes on serving, keeps its size, and logs no traceback."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mooring.config.home import Home
from mooring.testing import StdioClient, wait_for
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.speech import NEWEST, Era, modern

QUIET = 0.3
"""Seconds that one malformed peer is waited for; what it asked may never be answered."""
AT_ONCE = 20
"""Malformed peers at the same time."""
GROWTH = 64 << 20
"""Bytes by which the daemon may have grown after all of it."""
DEEP = b"[" * 100_000
METHODS = (
    *("initialize", "ping", "tools/list", "tools/call", "resources/read", "resources/subscribe", "prompts/get"),
    *("completion/complete", "logging/setLevel", "server/discover", "notifications/cancelled"),
    *("notifications/initialized", "notifications/progress", "notifications/roots/list_changed"),
)
VERBS = ("status", "ps", "tools", "call", "logs", "reload", "restart", "key_create", "key_list", "key_rotate", "x")
"""The verbs of the control socket, but for ``stop``."""

fuzzed = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

words = st.sampled_from(
    [
        *("name", "arguments", "uri", "_meta", "progressToken", "cursor", "level", "ref", "type", "protocolVersion"),
        *("capabilities", "clientInfo", "requestId", "echo_echo", "echo_sleep", "test://static-text", "workspace", "w"),
        *("io.modelcontextprotocol/protocolVersion", "2026-07-28", "2025-11-25", "notifications", "server", "echo"),
    ]
)
texts = words | st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
objects = st.dictionaries(texts, values, max_size=5)
ids = st.integers(0, 9) | texts | scalars
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | scalars,
        "id": ids,
        "method": st.sampled_from(METHODS) | texts,
        "params": objects | values,
        "result": values,
        "error": objects,
    },
)


def _modern(method: str, params: dict[str, Any], id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": modern(params, NEWEST["modern"], {})}


plain = st.dictionaries(words.filter(lambda word: word != "_meta"), values, max_size=4)
modern_messages = st.builds(_modern, st.sampled_from(METHODS), plain, st.integers(0, 9))
batches = st.lists(messages, max_size=3)
documents = (messages | modern_messages | batches | values).map(lambda value: json.dumps(value).encode())


@st.composite
def broken(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A valid message of which a piece was cut out and replaced by anything."""
    data = draw(whole)
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.binary(max_size=12)) + data[at + draw(st.integers(0, 12)) :]


bodies = st.one_of(documents, broken(documents), st.binary(max_size=200))
lines = bodies.map(lambda data: data.replace(b"\n", b" "))


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


class Victim:
    """The daemon under fire, and what it looked like before."""

    def __init__(self, running: Daemon, token: str) -> None:
        self.running = running
        self.token = token
        self.memory = psutil.Process(running.process.pid)
        self.before = 0
        self.session = ""
        parts = urlsplit(running.endpoint)
        self.place = (str(parts.hostname), parts.port or 80)
        self.socket = Home.below(running.home).socket

    async def works(self) -> None:
        """Every door still serves who behaves."""
        eras: tuple[Era, ...] = ("legacy", "modern")
        for era in eras:
            async with await self.running.client("w", era) as client:
                await client.open()
                assert (await client.call("echo_echo", {"a": 1}))["structuredContent"] == {"a": 1}
            shim = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
            async with StdioClient(shim, era=era, env=self.running.env) as client:
                await client.open()
                assert (await client.call("echo_echo", {"a": 1}))["structuredContent"] == {"a": 1}
        assert (await self.running.mooring.status()).endpoint == self.running.endpoint
        assert "Traceback" not in self.running.output

    async def http(self, data: bytes) -> bytes:
        """Send bytes to the data endpoint; what came back until it closed, or within ``QUIET``."""
        return await _exchange(*await asyncio.open_connection(*self.place), data)

    async def control(self, data: bytes) -> bytes:
        """The same with the control socket."""
        return await _exchange(*await asyncio.open_unix_connection(self.socket), data)

    def head(self, era: Era, length: int, *more: str) -> bytes:
        """The head of a POST by someone with a key."""
        fields = [
            "POST /mcp HTTP/1.1",
            f"Host: {self.place[0]}:{self.place[1]}",
            f"Authorization: Bearer {self.token}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {length}",
            f"MCP-Protocol-Version: {NEWEST[era]}",
            "Connection: close",
            *([f"Mcp-Session-Id: {self.session}"] if era == "legacy" else []),
            *more,
        ]
        return "\r\n".join((*fields, "", "")).encode("latin-1", "replace")


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(QUIET):
            writer.write(data)
            await writer.drain()
            while piece := await reader.read(1 << 16):
                received += piece
    except (TimeoutError, OSError):
        pass
    finally:
        writer.close()
    return bytes(received)


@pytest.fixture(scope="module")
async def victim(anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Victim]:
    """One daemon for all; at the end it must serve, be as small as before, and have logged no traceback."""
    async with daemon(tmp_path_factory.mktemp("victim"), {"echo": server()}) as running:
        it = Victim(running, await running.key("w"))
        await it.works()
        async with await running.client("w") as client:
            await client.open()
            it.session = client.session or ""
            it.before = it.memory.memory_info().rss
            yield it
        await it.works()
        assert it.memory.memory_info().rss - it.before < GROWTH


def many(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(one, min_size=AT_ONCE, max_size=AT_ONCE)


@settings(fuzzed, max_examples=6)
@given(many(st.binary(max_size=400)))
@example([b"GET /mcp HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000])
@example([b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n"])
@example([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n" * 5000])
async def test_bytes_on_the_endpoint_that_are_no_http(victim: Victim, peers: list[bytes]) -> None:
    """R27, A15: refused or ignored."""
    for answer in await asyncio.gather(*map(victim.http, peers)):
        assert answer[:5] in (b"", b"HTTP/")


@settings(fuzzed, max_examples=6)
@given(data=st.data(), era=st.sampled_from(["legacy", "modern"]))
async def test_http_requests_with_a_piece_replaced(victim: Victim, data: st.DataObject, era: Era) -> None:
    """R27, A15: a real request, damaged anywhere; never a 500."""
    params: dict[str, Any] = {"name": "echo_echo", "arguments": {}}
    params = params if era == "legacy" else modern(params, NEWEST["modern"], {})
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    whole = victim.head(era, len(body), "Mcp-Method: tools/call", "Mcp-Name: echo_echo") + body
    assert b'"structuredContent":{}' in await victim.http(whole)
    for answer in await asyncio.gather(*map(victim.http, data.draw(many(broken(st.just(whole)))))):
        assert not answer.startswith(b"HTTP/1.1 5"), answer


@settings(fuzzed, max_examples=8)
@given(peers=many(bodies), era=st.sampled_from(["legacy", "modern"]))
@example([DEEP], "legacy")
@example([DEEP], "modern")
@example([b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 50_000 + b"}" * 50_001], "legacy")
@example([b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}'], "legacy")
@example([b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping","params":{}}'], "legacy")
async def test_bodies_that_are_no_message(victim: Victim, peers: list[bytes], era: Era) -> None:
    """R27, A15: any JSON, any damage; never a 500, never an internal error."""
    sent = [victim.head(era, len(body), *_mirror(body)) + body for body in peers]
    for answer in await asyncio.gather(*map(victim.http, sent)):
        assert not answer.startswith(b"HTTP/1.1 5"), answer
        assert b"see the log" not in answer


def _mirror(body: bytes) -> list[str]:
    """The header that says again which method a body names, so that the front looks further."""
    try:
        method = json.loads(body)["method"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [f"Mcp-Method: {method}"] if isinstance(method, str) and method.isprintable() and method.isascii() else []


verbs = st.builds(
    lambda id, method, params: json.dumps({"id": id, "method": method, "params": params}).encode(),
    st.integers() | texts,
    st.sampled_from(VERBS),
    st.dictionaries(st.sampled_from(["workspace", "tool", "server", "lines", "follow", "name", "key_id"]), scalars),
)


@settings(fuzzed, max_examples=5)
@given(many(st.one_of(verbs, broken(verbs), lines)))
@example([DEEP, b'{"attach":"stdio","workspace":7}', b'{"attach":{}}'])
@example([b'{"attach":"stdio","workspace":"w"' + b" " * 100_000 + b"}"])
async def test_lines_on_the_control_socket(victim: Victim, peers: list[bytes]) -> None:
    """R27, A15: answered with an error, in JSON."""
    for answer in await asyncio.gather(*(victim.control(line + b"\n") for line in peers)):
        for line in answer.splitlines():
            assert isinstance(json.loads(line), dict)


async def test_lines_on_stdio(victim: Victim) -> None:
    """R27, A15: one conversation takes all of it, and then serves a request."""
    shim = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
    async with StdioClient(shim, era="legacy", env=victim.running.env) as client:
        await client.open()

        @fuzzed
        @given(lines)
        @example(DEEP)
        @example(b"\xff\xfe")
        @example(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":' + b'{"a":' * 50_000 + b"}" * 50_001)
        def send(line: bytes) -> None:
            client.send(line)

        send()
        client.send({"jsonrpc": "2.0", "id": "the end", "method": "initialize", "params": {}})
        await wait_for(lambda: any(b'"id":"the end"' in line for line in client.received), 20)
        assert all(isinstance(json.loads(line), dict) for line in client.received)
        # An id of its own: a fuzzed request with the client's next id may be under way, such as a listen stream.
        call = {"name": "echo_echo", "arguments": {"a": 1}}
        client.send({"jsonrpc": "2.0", "id": "the call", "method": "tools/call", "params": call})
        answer = await wait_for(lambda: next((x for x in client.received if b'"id":"the call"' in x), None), 20)
        assert json.loads(answer)["result"]["structuredContent"] == {"a": 1}
