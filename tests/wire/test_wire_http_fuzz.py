"""Hostile bytes: every input gets well-formed answers or a clean close, and the server serves on."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_wire_http_kit import LIMIT, MODERN, Wire, message, serving

from mooring.wire.http import Limits

LIMITS = Limits(header_bytes=8 << 10, body_bytes=64 << 10, header_timeout=0.3, body_timeout=0.3, idle_timeout=5.0)


class Background:
    """One served front on a loop of its own, so that hypothesis may call it from plain functions."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.problems = []
        self.loop.set_exception_handler(lambda loop, context: self.problems.append(context))

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT * 2)

    def __enter__(self):
        self.thread.start()
        self.serving = serving(LIMITS)
        self.served = self.run(self.serving.__aenter__())
        self.valid = self.run(self.examples())
        return self

    def __exit__(self, *_):
        self.run(self.serving.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT)
        self.loop.close()
        assert self.problems == []

    async def examples(self) -> list[bytes]:
        async with Wire(self.served.port) as wire:
            await wire.initialize()
            return [
                wire.legacy("tools/call", {"name": "echo"}),
                wire.legacy("tools/call", {"name": "progress"}),
                wire.modern("tools/call", {"name": "echo"}),
                wire.modern("tools/call", {"name": "progress"}),
                wire.legacy("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}),
                wire.request("GET", "/healthz"),
                wire.request(Content_Length=None, Transfer_Encoding="chunked") + b'4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n',
            ]

    async def exchange(self, data: bytes) -> None:
        """Send, close our side, read all that comes; then a healthy request on a new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.served.port)
        try:
            writer.write(data)
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        block = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.05)
                    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
                        break
                    await well_formed(block, reader)
        finally:
            writer.close()
        async with Wire(self.served.port) as wire:
            assert (await wire.ask("GET", "/healthz")).status == 200


async def well_formed(block: bytes, reader) -> None:
    status, *lines = block.decode("ascii").split("\r\n")[:-2]
    assert status.startswith("HTTP/1.1 ")
    code = int(status.split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert code < 500, block
    if code == 100:
        return
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        assert await reader.readexactly(2) == b"\r\n"
        return
    if "content-length" not in headers:
        assert headers["connection"] == "close"
        return
    body = await reader.readexactly(int(headers["content-length"]))
    if body:
        json.loads(body)


@pytest.fixture(scope="module")
def background():
    with Background() as running:
        yield running


FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def mutations(draw):
    """Edits of a request: (which example, [(where 0..1, how, bytes)])."""
    how = st.sampled_from(["insert", "replace", "delete", "duplicate", "truncate"])
    junk = st.one_of(
        st.binary(max_size=8),
        st.sampled_from(
            [b"\r\n", b"\r\n\r\n", b"\n", b"\0", b":", b" ", b"\xff\xfe", b"Transfer-Encoding: chunked\r\n"]
        ),
        st.sampled_from(
            [b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n", b"Upgrade: x\r\nConnection: upgrade\r\n"]
        ),
        st.sampled_from([b"Host: evil\r\n", b"Mcp-Session-Id: x\r\n", b"{", b"[", b'"', b"\\ud800", b"1e999", b"null"]),
    )
    edit = st.tuples(st.floats(0, 1), how, junk)
    return draw(st.integers(0, 6)), draw(st.lists(edit, max_size=4))


def mutate(data: bytes, edits) -> bytes:
    for where, how, junk in edits:
        at = int(where * len(data))
        match how:
            case "insert":
                data = data[:at] + junk + data[at:]
            case "replace":
                data = data[:at] + junk + data[at + len(junk) :]
            case "delete":
                data = data[:at] + data[at + 1 + len(junk) :]
            case "duplicate":
                data = data[:at] + data[at : at + 40] * 2 + data[at + 40 :]
            case "truncate":
                data = data[:at]
    return data


@FUZZ
@given(st.lists(mutations(), min_size=1, max_size=3))
def test_mutated_requests_never_hurt_the_server(background, pipeline):
    data = b"".join(mutate(background.valid[which], edits) for which, edits in pipeline)
    background.run(background.exchange(data))


@FUZZ
@given(st.binary(max_size=200))
def test_random_bytes_never_hurt_the_server(background, data):
    background.run(background.exchange(data))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
    st.sampled_from(["2.0", "tools/call", "initialize", "notifications/cancelled", "subscriptions/listen"])
    | json_values,
)


@FUZZ
@given(members | json_values, st.sampled_from([None, "2025-11-25", "2025-03-26", MODERN, "x"]), st.booleans())
def test_any_json_gets_an_answer_below_500(background, value, version, with_session):
    async def send() -> None:
        async with Wire(background.served.port) as wire:
            if with_session:
                await wire.initialize("2025-03-26")
            headers = {"MCP_Protocol_Version": version, "Mcp_Method": "tools/call"}
            answer = await wire.ask(body=json.dumps(value).encode(), **headers)
            assert answer.status < 500
            if answer.body:
                json.loads(answer.body)

    background.run(send())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        b'{"jsonrpc":"2.0","id":' + b"9" * 60_000 + b',"method":"ping"}',
        message("ping")[:-1] + b',"params":{"_meta":{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}}}",
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b"x" * 200_000,
    ],
)
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_giant_and_deep_bodies_are_refused_not_suffered(background, body, version):
    async def send() -> None:
        async with Wire(background.served.port) as wire:
            await wire.initialize()
            data = wire.request(body=body, MCP_Protocol_Version=version, Mcp_Method="ping")
            await background.exchange(data)

    background.run(send())
