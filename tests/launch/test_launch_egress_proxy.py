"""The egress proxy: what is in the list is reached, and nothing else. Real sockets; the last tests in a real network
namespace, where the proxy is all there is."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mooring.config.peers import parse_peer
from mooring.launch import egress_proxy
from mooring.launch.egress_proxy import EgressProxy, egress, proxy_environment, proxy_port, serving
from mooring.launch.netns import network_of
from mooring.tasks import Tasks


class Target:
    """A web server that says what it was sent."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.port = 0
        self.connections: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length or 0))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nhello %s" % (6 + len(body), body))
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(target: Target, host: str = "127.0.0.1") -> AsyncIterator[Target]:
    server = await asyncio.start_server(target.serve, host, 0)
    target.port = server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        for connection in target.connections:
            connection.transport.abort()


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    async with listening(Target()) as target:
        yield target


class Proxy:
    """A proxy on a port of the loopback interface: what it does does not depend on where it listens."""

    def __init__(self, port: int, denied: list[tuple[str, str]]) -> None:
        self.port = port
        self.denied = denied

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes, end: bool = True) -> bytes:
        """All that comes back."""
        async with asyncio.timeout(20):
            reader, writer = await self.open()
            try:
                writer.write(data)
                if end:
                    writer.write_eof()
                return await reader.read()
            finally:
                writer.transport.abort()


@asynccontextmanager
async def proxying(*allowed: str) -> AsyncIterator[Proxy]:
    denied: list[tuple[str, str]] = []
    with socket.create_server(("127.0.0.1", 0)) as sock:
        proxy = EgressProxy(frozenset(map(parse_peer, allowed)), lambda *what: denied.append(what))
        async with Tasks() as tasks, serving(sock, proxy, tasks):
            yield Proxy(sock.getsockname()[1], denied)


async def test_a_tunnel_to_a_peer_of_the_list_carries_bytes_both_ways(target: Target) -> None:
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        reader, writer = await proxy.open()
        writer.write(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        assert (await reader.readuntil(b"abc")).endswith(b"hello abc")
        writer.close()
    assert target.heads == [b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n"]
    assert proxy.denied == []


async def test_a_plain_request_to_a_peer_of_the_list_is_answered(target: Target) -> None:
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        answer = await proxy.ask(
            f"POST http://127.0.0.1:{target.port}/a HTTP/1.1\r\nHost: lie\r\nContent-Length: 3\r\n\r\nabc".encode()
        )
    assert answer.endswith(b"hello abc")
    assert target.heads[0].startswith(f"POST /a HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n".encode())


async def test_ipv6_addresses_are_peers_like_any(target: Target) -> None:
    try:
        server = listening(Target(), "::1")
        async with server as target, proxying(f"[::1]:{target.port}") as proxy:
            assert b"hello" in await proxy.ask(f"GET http://[::1]:{target.port}/ HTTP/1.1\r\n\r\n".encode())
            assert b" 403 " in await proxy.ask(f"GET http://127.0.0.1:{target.port}/ HTTP/1.1\r\n\r\n".encode())
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


async def test_all_other_peers_get_403_and_are_told_once(target: Target) -> None:
    """Also another port of an allowed host, another spelling of an allowed address, and the daemon's own address."""
    others = [f"127.0.0.1:{target.port - 1}", f"127.1:{target.port}", f"[::ffff:127.0.0.1]:{target.port}"]
    others += [f"localhost:{target.port}", f"0.0.0.0:{target.port}", f"2130706433:{target.port}", "github.com:443"]
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        for other in [*others, *others]:
            answer = await proxy.ask(f"CONNECT {other} HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
            assert b'is refused: it is not in "network" of this server; add "' in answer
            answer = await proxy.ask(f"GET http://{other}/ HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert target.heads == []
    assert len(proxy.denied) == len(others)
    assert proxy.denied[-1][0] == "github.com:443"


async def test_a_refused_upload_still_reads_the_reason(target: Target) -> None:
    async with proxying() as proxy:
        body = b"x" * 1_000_000
        answer = await proxy.ask(b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + body)
    assert b"a.example:80 is refused" in answer


async def test_a_name_is_resolved_here(target: Target) -> None:
    async with proxying(f"localhost:{target.port}") as proxy:
        assert b"hello" in await proxy.ask(f"GET http://LOCALHOST.:{target.port}/ HTTP/1.1\r\n\r\n".encode())


async def test_a_name_that_leads_to_this_machine_does_not_lead_there(target: Target, monkeypatch) -> None:
    """Whoever owns an allowed name must not be able to point it at the daemon or at the cloud's metadata."""
    loop = asyncio.get_running_loop()
    led: dict[str, list[str]] = {"home.example": ["127.0.0.1", "::1"], "cloud.example": ["169.254.169.254"]}

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in led[host]]

    monkeypatch.setattr(Loop(loop), "getaddrinfo", getaddrinfo, raising=False)
    monkeypatch.setattr(egress_proxy.asyncio, "get_running_loop", lambda: Loop(loop, getaddrinfo))
    async with proxying(f"home.example:{target.port}", "cloud.example:80") as proxy:
        answer = await proxy.ask(f"CONNECT home.example:{target.port} HTTP/1.1\r\n\r\n".encode())
        assert b" 403 " in answer
        assert f'if that is meant, write "127.0.0.1:{target.port}"'.encode() in answer
        assert b" 403 " in await proxy.ask(b"CONNECT cloud.example:80 HTTP/1.1\r\n\r\n")
    assert [peer for peer, _ in proxy.denied] == [f"home.example:{target.port}", "cloud.example:80"]


class Loop:
    """The loop with another resolver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, getaddrinfo: object = None) -> None:
        self._loop = loop
        self.getaddrinfo = getaddrinfo

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


async def test_a_peer_that_does_not_answer_is_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with proxying(f"127.0.0.1:{port}", "nowhere.invalid:80") as proxy:
        answer = await proxy.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert b"cannot be reached" in answer
        assert b" 502 " in await proxy.ask(b"GET http://nowhere.invalid/ HTTP/1.1\r\n\r\n")
    assert proxy.denied == []


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 hello\r\n\r\n", b"400"),
        (b"CONNECT a.example:80 HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n", b"431"),
        (b"x" * 100_000, b"431"),
        (b"CONNECT a.exa", b""),
        (b"", b""),
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_one_served(
    target: Target, data: bytes, status: bytes
) -> None:
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        assert (await proxy.ask(data))[9:12] == status
        assert b"hello" in await proxy.ask(f"GET http://127.0.0.1:{target.port}/ HTTP/1.1\r\n\r\n".encode())


async def test_a_client_that_sends_its_head_drop_by_drop_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr(egress_proxy, "HEAD_TIME", 0.2)
    async with proxying() as proxy:
        reader, writer = await proxy.open()
        async with asyncio.timeout(20):
            while not reader.at_eof() and not (answer := await _soon(reader)):
                writer.write(b"G")
        assert b" 408 " in answer
        writer.transport.abort()


async def _soon(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(0.02):
            return await reader.read(4096)
    except TimeoutError:
        return b""


async def test_silence_ends_a_tunnel(target: Target, monkeypatch) -> None:
    monkeypatch.setattr(egress_proxy, "IDLE", 0.2)
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        answer = await proxy.ask(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n\r\n".encode(), end=False)
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_a_server_that_stays_open_ends_with_its_client(target: Target, monkeypatch) -> None:
    monkeypatch.setattr(egress_proxy, "LAST_WORDS", 0.2)
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        answer = await proxy.ask(f"GET http://127.0.0.1:{target.port}/ HTTP/1.1\r\n\r\n".encode(), end=True)
    assert answer.endswith(b"hello ")


async def test_connections_are_bounded(target: Target, monkeypatch) -> None:
    monkeypatch.setattr(egress_proxy, "CONNECTIONS", 3)
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        held = []
        for _ in range(3):
            reader, writer = await proxy.open()
            writer.write(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            held.append(writer)
        request = f"GET http://127.0.0.1:{target.port}/ HTTP/1.1\r\n\r\n".encode()
        reader, writer = await proxy.open()
        assert b" 503 " in await reader.read()
        writer.close()
        freed = held.pop()
        freed.transport.abort()
        async with asyncio.timeout(20):
            while b"hello" not in await _answer(proxy, request):
                await asyncio.sleep(0.01)
        for writer in held:
            writer.transport.abort()


async def _answer(proxy: Proxy, request: bytes) -> bytes:
    try:
        return await proxy.ask(request)
    except OSError:  # refused before the request was read
        return b""


async def test_the_end_of_the_block_ends_every_connection(target: Target, open_descriptors) -> None:
    before = open_descriptors()
    async with proxying(f"127.0.0.1:{target.port}") as proxy:
        reader, writer = await proxy.open()
        writer.write(f"CONNECT 127.0.0.1:{target.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        waiting, other = await proxy.open()
    async with asyncio.timeout(20):
        for stream in (reader, waiting):
            try:
                assert await stream.read() == b""
            except OSError:  # reset
                continue
        for mine in (writer, other):
            mine.transport.abort()
        with pytest.raises(OSError, match=r"refused|Connect"):
            await proxy.open()
        while len(open_descriptors()) > len(before):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ticks", [0, 1, 2, 3, 4])
def test_one_that_is_cancelled_while_it_opens_hears_nothing_any_more(ticks: int) -> None:
    """On the loop of a program that Mooring is a library of, which takes a turn to begin to listen: whoever got the
    number of the listener after it was deaf."""

    async def cancelled() -> int:
        with socket.create_server(("127.0.0.1", 0)) as sock:

            async def served() -> None:
                async with Tasks() as tasks, serving(sock, EgressProxy(frozenset(), lambda *_: None), tasks):
                    await asyncio.sleep(1000)

            number = sock.fileno()
            opening = asyncio.create_task(served())
            for _ in range(ticks):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait((opening,))
        return number

    async def heard() -> bytes:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        number = await cancelled()
        reader, writer = os.pipe()
        os.dup2(reader, number)
        loop.add_reader(number, heard.set)
        os.write(writer, b"next")
        try:
            await asyncio.wait_for(heard.wait(), 5)
            return os.read(number, 100)
        finally:
            loop.remove_reader(number)
            for descriptor in {reader, writer, number}:
                os.close(descriptor)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        assert runner.run(heard()) == b"next"


async def test_refusals_that_are_told_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(egress_proxy, "TOLD", 2)
    async with proxying() as proxy:
        for port in (1, 2, 3, 4):
            assert b" 403 " in await proxy.ask(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert [peer for peer, _ in proxy.denied] == ["a.example:1", "a.example:2"]


def test_programs_inside_find_the_proxy_by_their_environment() -> None:
    environment = proxy_environment(["a.example:1", "127.0.0.1:80"], 3129)
    assert {environment[name] for name in ("http_proxy", "HTTPS_PROXY")} == {"http://127.0.0.1:3129"}
    assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost,::1"
    assert (proxy_port(None), proxy_port(3128), proxy_port(80)) == (3128, 3129, 3128)


TRIES = """
import http.client, socket, sys
allowed, other = sys.argv[1:]
def get(peer):
    proxy = http.client.HTTPConnection("127.0.0.1", 3128, timeout=10)
    proxy.request("GET", f"http://{peer}/"); return proxy.getresponse().status
def tunnel(peer):
    proxy = http.client.HTTPConnection("127.0.0.1", 3128, timeout=10)
    host, port = peer.split(":"); proxy.set_tunnel(host, int(port))
    try: proxy.request("GET", "/")
    except OSError as error: return str(error).split()[3]
    return proxy.getresponse().status
def direct(peer):
    host, port = peer.split(":")
    try: socket.create_connection((host, int(port)), 5); return "open"
    except OSError as error: return type(error).__name__
print(get(allowed), get(other), tunnel(allowed), tunnel(other))
print(direct(allowed), direct("1.1.1.1:53"), direct("localhost.example:1"))
"""


async def test_inside_a_namespace_the_list_is_all_there_is(namespace, target: Target) -> None:
    """The peer of the list by request and by tunnel; no other port, no host, no route, no names."""
    denied: list[tuple[str, str]] = []
    home = os.readlink("/proc/self/ns/net")
    async with listening(Target()) as other:
        allowed = f"127.0.0.1:{target.port}"
        with network_of(namespace.pid) as network:
            async with egress(network, [allowed], lambda *what: denied.append(what)):
                found = await namespace.run(TRIES, allowed, f"127.0.0.1:{other.port}")
                assert {os.readlink(f"/proc/self/task/{task}/ns/net") for task in os.listdir("/proc/self/task")} == {
                    home
                }
            closed = await namespace.run("import socket; socket.create_connection(('127.0.0.1', 3128), 5)")
    assert found == "200 403 200 403\nConnectionRefusedError OSError gaierror"
    assert [peer for peer, _ in denied] == [f"127.0.0.1:{other.port}"]
    assert other.heads == []
    assert closed.endswith("ConnectionRefusedError: [Errno 111] Connection refused")


async def test_two_servers_have_a_proxy_each_on_the_same_port(namespace, target: Target) -> None:
    holder = await asyncio.create_subprocess_exec("unshare", "--net", "sh", "-c", "echo; exec sleep 600", stdout=-1)
    await holder.stdout.readline()
    try:
        with network_of(namespace.pid) as one, network_of(holder.pid) as two:
            async with egress(one, [], lambda *_: None), egress(two, [], lambda *_: None):
                for network in (one, two):
                    made = await network.connect(3128)
                    made.close()
    finally:
        holder.kill()
        await holder.wait()
