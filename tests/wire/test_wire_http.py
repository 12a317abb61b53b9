"""The HTTP/1.1 server over real sockets: framing, limits, order, streams, endings."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager

import pytest
from test_wire_http_kit import LIMIT, Wire

from loops import LOOPS, cancelled_after, run
from mooring.testing import wait_for
from mooring.wire.http import HttpServer, Limits, Reply, problem


class Echo:
    """Answers with what it got; /slow waits, /stream streams, /flood never stops, /fail fails."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.finished = asyncio.Event()
        self.cut = asyncio.Event()
        self.seen = []

    async def __call__(self, request):
        self.seen.append(request)
        if request.path == "/fail":
            raise RuntimeError("a bug")
        if request.path in ("/slow", "/surviving"):
            request.survives = request.path == "/surviving"
            self.started.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            self.finished.set()
        if request.path == "/stream":
            stream = request.begin(b"Content-Type: text/event-stream\r\n", b": quiet\n\n")
            stream.send(b"one")
            await self.release.wait()
            stream.send(b"x" * 100_000)
            return stream
        if request.path == "/broken-stream":
            request.begin(b"", b"").send(b"one")
            raise RuntimeError("a bug")
        if request.path == "/flood":
            stream = request.begin(b"", b": quiet\n\n")
            while stream.send(b"x" * 65_536):
                await asyncio.sleep(0)
            self.cut.set()
            return stream
        return Reply(200, b"%b %b %b" % (request.method, request.path.encode(), request.body))


@asynccontextmanager
async def echoing(limits=Limits(), **options):
    echo = Echo()
    async with HttpServer(echo, limits=limits, **options) as server:
        _, echo.port = await server.listen("127.0.0.1", 0)
        echo.server = server
        yield echo


async def test_requests_on_one_connection_are_answered_one_after_the_other():
    async with echoing() as echo, Wire(echo.port) as wire:
        for body in (b"first", b"second"):
            answer = await wire.ask(body=body)
            assert (answer.status, answer.body) == (200, b"POST /mcp " + body)
            assert answer.headers["content-type"] == "application/json"


async def test_pipelined_requests_are_answered_in_order():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/slow", body=b"0") + b"".join(wire.request(body=b"%d" % n) for n in range(1, 50)))
        await asyncio.wait_for(echo.started.wait(), LIMIT)
        echo.release.set()
        bodies = [(await wire.answer()).body.split()[-1] for _ in range(50)]
        assert bodies == [b"%d" % n for n in range(50)]


async def test_a_request_cut_at_every_byte_is_read_whole():
    async with echoing() as echo, Wire(echo.port) as wire:
        for byte in wire.request(path="/a?q=1", body=b"hello"):
            wire.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await wire.answer()).body == b"POST /a hello"
        assert echo.seen[0].query == b"q=1"
        assert echo.seen[0].peer == "127.0.0.1"


async def test_chunked_bodies_are_joined_and_trailers_are_no_headers():
    async with echoing() as echo, Wire(echo.port) as wire:
        head = wire.request(Content_Length=None, Transfer_Encoding="chunked", Authorization=None)
        wire.send(head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert (await wire.answer()).body == b"POST /mcp abcde"
        assert b"authorization" not in echo.seen[0].headers
        assert (await wire.ask(body=b"next")).status == 200


async def test_a_client_that_expects_100_is_told_to_continue():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(body=b"abc", Expect="100-continue")[:-3])
        assert (await wire.answer()).status == 100
        wire.send(b"abc")
        assert (await wire.answer()).body == b"POST /mcp abc"
        assert (await wire.ask(Expect="miracles")).status == 417


async def test_a_client_is_told_to_continue_also_when_its_request_had_to_wait():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(body=b"one") + wire.request(body=b"two", Expect="100-continue")[:-3])
        assert (await wire.answer()).body == b"POST /mcp one"
        assert (await wire.answer()).status == 100
        wire.send(b"two")
        assert (await wire.answer()).body == b"POST /mcp two"


async def test_a_head_that_is_not_admitted_is_refused_before_its_body_arrives():
    async with echoing(admit=lambda request: problem(401, "no")) as echo, Wire(echo.port) as wire:
        wire.send(wire.request(Content_Length="1000000", Expect="100-continue"))
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert await wire.closed()
        assert echo.seen == []


async def test_a_body_is_left_unread_until_it_is_known_who_sends_it():
    verdict = asyncio.get_running_loop().create_future()
    answers = [verdict, None]
    body = b"x" * (8 << 20)
    async with echoing(admit=lambda request: answers.pop(0)) as echo, Wire(echo.port) as wire:
        wire.send(wire.request(body=body))
        sent = asyncio.create_task(wire.writer.drain())
        done, _ = await asyncio.wait((sent,), timeout=0.5)
        assert not done, "the rest waits in the client"
        assert echo.seen == []
        verdict.set_result(None)
        answer = await wire.answer()
        assert (answer.status, len(answer.body)) == (200, len(b"POST /mcp ") + len(body))
        await sent


@pytest.mark.parametrize("gone", [False, True])
async def test_who_turns_out_to_be_nobody_is_refused_with_the_body_unread(gone):
    verdict = asyncio.get_running_loop().create_future()
    answers = [verdict, problem(401, "no")]
    async with echoing(admit=lambda request: answers.pop(0)) as echo:
        async with Wire(echo.port) as wire:
            wire.send(wire.request(Content_Length="1000000", Expect="100-continue"))
            await wait_for(lambda: len(answers) == 1, LIMIT)
            if not gone:
                verdict.set_result(None)
                assert (await wire.answer()).status == 401
        if gone:
            verdict.set_result(None)
        await wait_for(lambda: not echo.server.connections, LIMIT)
        assert echo.seen == []


async def test_head_gets_the_headers_of_get_and_no_body():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request("HEAD"))
        answer = await wire.answer(bodyless=True)
        assert (answer.status, answer.headers["content-length"]) == (200, str(len(b"HEAD /mcp ")))
        assert (await wire.ask("GET")).body == b"GET /mcp "


async def test_an_offer_of_http2_is_declined_and_the_body_is_read():
    async with echoing() as echo, Wire(echo.port) as wire:
        offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
        data = wire.request(body=b"abc", **offer)
        wire.send(data[:-2])
        await asyncio.sleep(0)
        wire.send(data[-2:])
        assert (await wire.answer()).body == b"POST /mcp abc"
        assert (await wire.ask(body=b"next")).body == b"POST /mcp next"


async def test_connection_close_is_honoured():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(Connection="close") + b"GET / HTTP/1.1\r\n\r\n")
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await wire.closed()
        assert len(echo.seen) == 1


async def test_http_1_0_gets_no_chunks_and_a_close():
    async with echoing() as echo, Wire(echo.port) as wire:
        echo.release.set()
        wire.send(b"GET /stream HTTP/1.0\r\nHost: a\r\n\r\n")
        answer = await wire.answer()
        assert answer.body == b"one" + b"x" * 100_000
        assert "transfer-encoding" not in answer.headers


async def test_a_whole_url_as_target_replaces_the_host():
    async with echoing() as echo, Wire(echo.port) as wire:
        assert (await wire.ask(path="http://evil.example/mcp?a")).body == b"POST /mcp "
        assert echo.seen[0].headers[b"host"] == b"evil.example"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nMcp-Name: a\r\nmcp-name: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(20_000)), 431),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ],
)
async def test_malformed_input_gets_an_answer_and_a_close(data, status):
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(data)
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.json["error"]
        assert await wire.closed()
        async with Wire(echo.port) as another:
            assert (await another.ask()).status == 200


async def test_a_chunked_body_over_the_limit_is_refused_while_it_arrives():
    async with echoing(Limits(header_bytes=1000, body_bytes=5000)) as echo, Wire(echo.port) as wire:
        wire.send(
            wire.request(Content_Length=None, Transfer_Encoding="chunked") + b"1;%b\r\nx\r\n" % (b"e" * 100) * 100
        )
        assert (await wire.answer()).status == 413
        assert echo.seen == []


async def test_malformed_input_behind_a_running_request_is_answered_after_it():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/slow") + b"nonsense\r\n\r\n")
        await asyncio.wait_for(echo.started.wait(), LIMIT)
        echo.release.set()
        assert [(await wire.answer()).status for _ in range(2)] == [200, 400]
        assert await wire.closed()


@pytest.mark.parametrize("data", [b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"])
async def test_a_request_that_does_not_arrive_in_time_is_answered_408(data):
    async with echoing(Limits(header_timeout=0.1, body_timeout=0.1)) as echo, Wire(echo.port) as wire:
        wire.send(data)
        assert (await wire.answer()).status == 408
        assert await wire.closed()


async def test_a_head_that_trickles_in_is_not_waited_for():
    async with echoing(Limits(header_timeout=0.2)) as echo, Wire(echo.port) as wire:
        for byte in b"GET / HTTP/1.1\r\nX: " + b"y" * 1000:
            wire.send(bytes((byte,)))
            if wire.reader.at_eof() or wire.reader._buffer:
                break
            await asyncio.sleep(0.01)
        assert (await wire.answer()).status == 408


async def test_silent_connections_are_closed():
    limits = Limits(header_timeout=0.1, idle_timeout=0.1)
    async with echoing(limits) as echo, Wire(echo.port) as fresh, Wire(echo.port) as used:
        assert (await used.ask()).status == 200
        assert await fresh.closed()
        assert await used.closed()


async def test_connections_over_the_limit_of_a_peer_are_refused():
    async with echoing(Limits(connections_per_peer=1)) as echo, Wire(echo.port) as wire:
        assert (await wire.ask()).status == 200
        async with Wire(echo.port) as second:
            assert (await second.answer()).status == 503
            assert await second.closed()
        assert (await wire.ask()).status == 200
    async with echoing(Limits(connections=1)) as echo:
        async with Wire(echo.port) as wire:
            assert (await wire.ask()).status == 200
        async with asyncio.timeout(LIMIT):
            while echo.server.connections:
                await asyncio.sleep(0.01)
        async with Wire(echo.port) as wire:
            assert (await wire.ask()).status == 200


async def test_a_lost_client_cancels_its_request():
    async with echoing() as echo:
        async with Wire(echo.port) as wire:
            wire.send(wire.request(path="/slow"))
            await asyncio.wait_for(echo.started.wait(), LIMIT)
        await asyncio.wait_for(echo.cancelled.wait(), LIMIT)


async def test_a_surviving_request_goes_on_without_its_client():
    async with echoing() as echo:
        async with Wire(echo.port) as wire:
            wire.send(wire.request(path="/surviving"))
            await asyncio.wait_for(echo.started.wait(), LIMIT)
        async with asyncio.timeout(LIMIT):
            while echo.server.connections:
                await asyncio.sleep(0.01)
        echo.release.set()
        await asyncio.wait_for(echo.finished.wait(), LIMIT)


async def test_a_stream_is_sent_as_it_grows_and_the_connection_is_kept():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/stream"))
        status, headers = await wire.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert await wire.chunk() == b"one"
        echo.release.set()
        assert await wire.chunk() == b"x" * 100_000
        assert await wire.chunk() == b""
        assert (await wire.ask()).status == 200


async def test_a_silent_stream_sends_its_keep_alive(monkeypatch):
    monkeypatch.setattr("mooring.wire.http_connection.KEEP_ALIVE", 0.05)
    async with echoing(Limits(idle_timeout=0.1)) as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/stream"))
        await wire.head()
        assert [await wire.chunk() for _ in range(3)] == [b"one", b": quiet\n\n", b": quiet\n\n"]


async def test_a_stream_that_fails_is_cut_not_ended():
    async with echoing() as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/broken-stream"))
        await wire.head()
        assert await wire.chunk() == b"one"
        assert await wire.closed()


async def test_a_stream_nobody_reads_is_cut_before_it_fills_the_memory():
    async with echoing(Limits(unsent_bytes=1 << 20)) as echo, Wire(echo.port) as wire:
        wire.send(wire.request(path="/flood"))
        await wire.head()
        wire.writer.transport.pause_reading()
        await asyncio.wait_for(echo.cut.wait(), LIMIT)


async def test_a_large_piece_that_is_being_read_does_not_cut_what_follows_it():
    """Such as a log message of many megabytes, and the answer right after it."""

    async def handler(request):
        stream = request.begin(b"", b": quiet\n\n")
        for piece in (b"x" * (24 << 20), b"the answer"):
            stream.send(piece)
        return stream

    async with HttpServer(handler) as server:
        _, port = await server.listen("127.0.0.1", 0)
        async with Wire(port) as wire:
            assert (await wire.ask()).body.endswith(b"the answer")


async def test_answers_nobody_reads_hold_back_the_next_requests():
    class Large(Echo):
        async def __call__(self, request):
            self.seen.append(request)
            return Reply(200, b"x" * (8 << 20))

    large = Large()
    async with HttpServer(large, limits=Limits(write_timeout=0.3)) as server:
        _, port = await server.listen("127.0.0.1", 0)
        async with Wire(port) as wire:
            wire.writer.transport.pause_reading()
            wire.send(wire.request() * 100)
            async with asyncio.timeout(LIMIT):
                while not large.seen or server.connections:
                    await asyncio.sleep(0.01)
            assert len(large.seen) < 3


async def test_a_handler_that_fails_is_a_500_and_the_connection_is_kept(caplog):
    async with echoing() as echo, Wire(echo.port) as wire:
        assert (await wire.ask(path="/fail")).status == 500
        assert (await wire.ask()).status == 200
        assert "a bug" in caplog.text


async def test_closing_lets_running_requests_finish():
    echo = Echo()
    async with HttpServer(echo, grace=LIMIT) as server:
        _, port = await server.listen("127.0.0.1", 0)
        async with Wire(port) as busy, Wire(port) as idle:
            assert (await idle.ask()).status == 200
            busy.send(busy.request(path="/slow"))
            await asyncio.wait_for(echo.started.wait(), LIMIT)
            closing = asyncio.create_task(server.close())
            assert await idle.closed()
            echo.release.set()
            answer = await busy.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            await asyncio.wait_for(closing, LIMIT)
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_closing_is_bounded_by_the_grace():
    echo = Echo()
    async with HttpServer(echo, grace=0.05) as server:
        _, port = await server.listen("127.0.0.1", 0)
        async with Wire(port) as slow, Wire(port) as surviving:
            for wire, path in ((slow, "/slow"), (surviving, "/surviving")):
                wire.send(wire.request(path=path))
            async with asyncio.timeout(LIMIT):
                while len(echo.seen) < 2:
                    await asyncio.sleep(0.01)
            await asyncio.wait_for(server.close(), LIMIT)
            assert await slow.closed()
            assert await surviving.closed()
    assert not server.surviving


@LOOPS
@pytest.mark.parametrize("ticks", [0, 1, 3, 4, 5])  # after two, asyncio itself leaves it to the garbage collector
def test_who_comes_at_the_last_moment_is_cut_off(loops, ticks):
    """Where a library listens for the programs of agents, the process goes on; so would the connection."""

    async def met(client):
        echo = Echo()
        async with HttpServer(echo) as server:
            client.connect(await server.listen("127.0.0.1", 0))
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in range(ticks):
                await asyncio.sleep(0)
        seen = len(echo.seen)
        await wait_for(lambda: ended(client), 5)
        assert len(echo.seen) == seen

    def ended(client):
        try:
            return not client.recv(1000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    with socket.socket() as client:
        run(met(client), loops)


@LOOPS
@pytest.mark.parametrize("ticks", range(4))
def test_one_that_is_cancelled_while_it_begins_to_listen_is_closed(loops, ticks):
    async def cancelled():
        async def listens():
            async with HttpServer(Echo()) as server:
                await server.listen("127.0.0.1", port)
                await asyncio.sleep(1000)

        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        await cancelled_after(ticks, listens())
        with pytest.raises(ConnectionRefusedError), socket.socket() as client:
            client.connect(("127.0.0.1", port))

    run(cancelled(), loops)


class Late:
    """An event loop in which somebody else listens between our bind and our listen."""

    def __init__(self, other):
        self.other = other

    async def create_server(self, *args, **options):
        listener = await asyncio.get_running_loop().create_server(*args, **options)
        self.other.listen()
        return listener


@LOOPS
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_that_is_taken_after_it_was_bound_is_the_usual_error(loops, host):
    """Of two daemons that start at once both may bind, and one of them may listen."""

    async def late(other):
        async with HttpServer(Echo()) as server:
            server.loop = Late(other)
            with pytest.raises(OSError, match="Address already in use") as error:
                await server.listen(host, other.getsockname()[1])
            assert error.value.errno == errno.EADDRINUSE

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        run(late(other), loops)
