"""The control socket, over a real one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from loops import LOOPS, cancelled_after, run
from mooring.config.home import Home
from mooring.errors import ConfigError, DaemonAbsent, MooringError
from mooring.facade import Mooring
from mooring.nouns import Principal
from mooring.serve import control, library
from mooring.serve.control_client import connected
from mooring.serve.verbs import Verbs
from mooring.testing import wait_for

BOUND = 5.0
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ATTACH = b'{"attach": "stdio", "workspace": "default"}\n'


class Socket:
    """A control socket, and raw connections to it."""

    def __init__(self, home: Home, verbs: Verbs, stack: AsyncExitStack) -> None:
        self.home = home
        self.verbs = verbs
        self._stack = stack

    async def open(self) -> Line:
        reader, writer = await asyncio.open_unix_connection(str(self.home.socket))
        self._stack.callback(writer.close)
        return Line(reader, writer)


class Line:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> Any:
        async with asyncio.timeout(BOUND):
            line = await self.reader.readline()
        return json.loads(line) if line else None

    async def ask(self, verb: str, **parameters: Any) -> Any:
        self.write(json.dumps({"id": 7, "method": verb, "params": parameters}).encode() + b"\n")
        return await self.read()


def attach(workspace: str, registry: bool = False) -> Principal:
    if workspace != "default":
        raise ConfigError(f"no workspace {workspace}")
    return Principal("local:default", "default")


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Socket]:
    home = Home(str(folder), str(folder / "s"), str(folder / "r"))
    home.prepare()
    async with library.opened({}) as verbs, AsyncExitStack() as stack:
        await stack.enter_async_context(control.serving(home.socket, lambda: verbs, verbs._app.relay, attach))
        yield Socket(home, verbs, stack)


@pytest.fixture
async def sock(tmp_path: Path) -> AsyncGenerator[Socket]:
    async with serving(tmp_path) as opened:
        yield opened


async def test_an_attach_line_in_pieces_begins_a_conversation(sock: Socket) -> None:
    line = await sock.open()
    for byte in ATTACH:
        line.write(bytes([byte]))
        await line.writer.drain()
        await asyncio.sleep(0)
    assert (await line.read())["attached"] is True
    line.write(json.dumps(HELLO).encode() + b"\n")
    assert (await line.read())["result"]["serverInfo"]["name"] == "mooring"


async def test_what_follows_the_attach_line_at_once_belongs_to_the_conversation(sock: Socket) -> None:
    line = await sock.open()
    line.write(ATTACH.replace(b'{"attach"', b' {  "attach"') + json.dumps(HELLO).encode() + b"\n")
    assert (await line.read())["attached"] is True
    assert (await line.read())["id"] == 1


@pytest.mark.parametrize("asked", [b'{"attach":"stdio","workspace":"nobody"}\n', b'{"attach":"telnet"}\n'])
async def test_who_cannot_attach_is_told_why_and_let_go(sock: Socket, asked: bytes) -> None:
    line = await sock.open()
    line.write(asked)
    error = (await line.read())["error"]
    assert error["exit_code"] == 2
    assert "no workspace nobody" in error["message"] or "telnet" in error["message"]
    assert await line.read() is None


async def test_verbs_come_in_pieces_and_in_bunches(sock: Socket) -> None:
    line = await sock.open()
    one = b'{"id":1,"method":"status","params":{}}\n'
    for piece in (one[:9], one[9:] + one + one[:3], one[3:]):
        line.write(piece)
        await line.writer.drain()
        await asyncio.sleep(0.01)
    for _ in range(3):
        assert (await line.read())["result"]["workspaces"] == ["default"]


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (b"not json\n", -32700, "not a verb"),
        (b"[1]\n", -32700, "not a verb"),
        (b"\xff\xfe\n", -32700, "not a verb"),
        (b'{"attach":[]}\n', -32700, "not a verb"),
        (b"[" * 100_000 + b"\n", -32700, "not a verb"),
        (b'{"id":1,"method":"explode"}\n', -32000, "no verb 'explode'"),
        (b'{"id":1,"method":"status","params":{"x":1}}\n', -32000, "unexpected keyword"),
        (b'{"id":1,"method":"tools","params":{"workspace":"nobody"}}\n', -32000, "no workspace"),
        (b'{"id":1,"method":"logs","params":{"server":"nobody"}}\n', -32000, "no server"),
        (b'{"id":1,"method":"key_create","params":{"workspace":"default","scopes":["fly"]}}\n', -32000, "fly"),
        (b'{"id":1,"method":"logs","params":{"server":[]}}\n', -32603, "TypeError"),
    ],
)
async def test_a_bad_line_is_answered_and_harms_nothing(
    sock: Socket, asked: bytes, code: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger=control.__name__)
    line = await sock.open()
    line.write(asked)
    error = (await line.read())["error"]
    assert error["code"] == code
    assert text in error["message"]
    told = [record.message for record in caplog.records if record.name == control.__name__]
    assert told == (["logs failed"] if code == -32603 else [])
    assert (await line.ask("status"))["id"] == 7


async def test_a_giant_line_is_refused_and_the_next_one_served(sock: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LINE_LIMIT", 1000)
    line = await sock.open()
    for _ in range(2):
        line.write(b"x" * 5000 + b"\n")
        assert "1000 bytes at most" in (await line.read())["error"]["message"]
    assert (await line.ask("status"))["id"] == 7


async def test_another_user_is_turned_away_before_anything_is_read(
    sock: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "same_user", lambda _: False)
    line = await sock.open()
    assert "another user" in (await line.read())["error"]["message"]
    assert await line.read() is None
    line.write(b'{"id":1,"method":"stop"}\n')
    assert not sock.verbs._app.stopping.is_set()


async def test_this_user_is_known_and_the_socket_is_closed_to_others(sock: Socket) -> None:
    left, right = socket.socketpair()
    with left, right:
        assert control.same_user(left)
    assert stat.S_IMODE(os.stat(sock.home.socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(sock.home.run).st_mode) == 0o700


async def test_values_that_few_can_encode_come_through(sock: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A17: nothing is lost on the way to a person."""
    odd = {"text": "\ud800", "long": 2**100}

    async def said(workspace: str) -> Any:
        return odd

    monkeypatch.setitem(sock.verbs._verbs, "tools", said)
    async with connected(sock.home) as client:
        assert await client.invoke("tools", {"workspace": "\ud800"}) == odd


async def test_a_verb_ends_with_its_asker(sock: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def forever(heard: Any) -> None:
        try:
            heard("line", "one")
            await asyncio.get_running_loop().create_future()
        finally:
            over.set()

    monkeypatch.setitem(sock.verbs._verbs, "logs", forever)
    line = await sock.open()
    assert (await line.ask("logs"))["params"] == [7, "line", "one"]
    line.writer.close()
    async with asyncio.timeout(BOUND):
        await over.wait()


async def test_what_a_verb_reports_is_dropped_when_nobody_reads_and_its_result_is_not(
    sock: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "UNREAD_LIMIT", 1 << 16)

    async def noisy(heard: Any) -> str:
        for _ in range(1000):
            heard("line", "x" * 10_000)
        return "done"

    monkeypatch.setitem(sock.verbs._verbs, "logs", noisy)
    line = await sock.open()
    said, answer = 0, await line.ask("logs")
    while "result" not in answer:
        said, answer = said + 1, await line.read()
    assert said < 200


async def test_a_daemon_that_goes_away_fails_what_waits_and_what_comes_later(tmp_path: Path) -> None:
    async with AsyncExitStack() as clients:
        async with serving(tmp_path) as sock:
            client = await clients.enter_async_context(connected(sock.home))

            async def forever(heard: Any) -> None:
                heard("line", "")
                await asyncio.get_running_loop().create_future()

            sock.verbs._verbs["logs"] = forever
            begun = asyncio.Event()
            waiting = asyncio.ensure_future(client.invoke("logs", {}, lambda *_: begun.set()))
            async with asyncio.timeout(BOUND):
                await begun.wait()
        for late in (waiting, client.invoke("status", {})):
            with pytest.raises(DaemonAbsent):
                async with asyncio.timeout(BOUND):
                    await late
    with pytest.raises(DaemonAbsent):
        async with connected(sock.home):
            pass


async def test_a_listener_that_fails_fails_its_own_verb_only(sock: Socket) -> None:
    """Not even with the error that a lost daemon gives: the reader of what a command prints may have gone."""
    gone = BrokenPipeError("nobody reads on")

    def fails(*_: Any) -> None:
        raise gone

    async def saying(heard: Any) -> None:
        heard("line", "")
        await asyncio.get_running_loop().create_future()

    sock.verbs._verbs["logs"] = saying
    async with asyncio.timeout(BOUND), connected(sock.home) as client:
        with pytest.raises(BrokenPipeError) as caught:
            await client.invoke("logs", {}, fails)
        assert caught.value is gone
        assert (await Mooring(client).status()).workspaces == ("default",)


async def test_a_daemon_that_talks_nonsense_does_not_hang_its_client(tmp_path: Path) -> None:
    home = Home(str(tmp_path), str(tmp_path), str(tmp_path))

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"Hello!\n")
        writer.close()

    async with await asyncio.start_unix_server(nonsense, str(home.socket)), connected(home) as client:
        with pytest.raises(DaemonAbsent, match="do not understand each other"):
            async with asyncio.timeout(BOUND):
                await client.invoke("status", {})


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    home = Home(str(tmp_path), str(tmp_path / "s"), str(tmp_path / "r"))
    home.prepare()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    async with serving(tmp_path) as sock, connected(sock.home) as client:
        assert (await Mooring(client).status()).workspaces == ("default",)
    assert not os.path.exists(home.socket)


async def test_an_error_keeps_its_kind_and_exit_code_on_the_way(sock: Socket) -> None:
    async with connected(sock.home) as client:
        with pytest.raises(MooringError) as caught:
            await Mooring(client).tools("nobody")
        assert (caught.value.kind, caught.value.exit_code) == ("config", 2)
        with pytest.raises(ConfigError, match="only to a Mooring that was opened"):
            await Mooring(client).add_server("x", functions=[])


async def test_keys_are_made_listed_rotated_and_revoked(sock: Socket) -> None:
    async with connected(sock.home) as client:
        mooring = Mooring(client)
        made = await mooring.key_create("default", name="laptop", tools=["time_*"])
        assert made.key.startswith("mrg_")
        (row,) = await mooring.key_list()
        assert (row.id, row.name, row.tools, row.inert) == (made.id, "laptop", ("time_*",), "")
        assert made.key not in repr(row)
        again = await mooring.key_rotate(made.id)
        assert again.key != made.key
        await mooring.key_revoke(made.id)
        assert (await mooring.key_list("default"))[0].revoked
        with pytest.raises(MooringError, match="no workspace"):
            await mooring.key_create("nobody")


async def test_stop_is_answered_before_it_happens(sock: Socket) -> None:
    async with connected(sock.home) as client:
        await Mooring(client).stop()
    await wait_for(sock.verbs._app.stopping.is_set)


def bare(path: Path) -> AbstractAsyncContextManager[None]:
    """The socket without what is behind it."""
    return control.serving(str(path), MagicMock(), MagicMock(), attach)


@LOOPS
@pytest.mark.parametrize("ticks", [0, 1, 3, 4, 5])  # after two, asyncio itself leaves it to the garbage collector
def test_a_conversation_that_ends_before_it_began_is_closed(tmp_path: Path, loops: Any, ticks: int) -> None:
    """Where agents' programs attach to a library, the process goes on; so would the connection."""
    path = tmp_path / "s"

    async def attached(client: socket.socket) -> None:
        async with bare(path):
            client.connect(str(path))
            client.send(ATTACH)
            for _ in range(ticks):
                await asyncio.sleep(0)
        async with asyncio.timeout(BOUND):
            while not ended(client):
                await asyncio.sleep(0.001)

    def ended(client: socket.socket) -> bool:
        try:
            return not client.recv(1000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    with socket.socket(socket.AF_UNIX) as client:
        run(attached(client), loops)


def sockets() -> set[str]:
    """Those that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {link for link in found if link.startswith("socket:")}


@LOOPS
@pytest.mark.parametrize("ticks", range(4))
def test_a_socket_that_is_cancelled_while_it_is_made_is_closed(tmp_path: Path, loops: Any, ticks: int) -> None:
    async def cancelled() -> None:
        async def served() -> None:
            async with bare(tmp_path / "s"):
                await asyncio.sleep(1000)

        before = sockets()
        await cancelled_after(ticks, served())
        assert sockets() == before

    run(cancelled(), loops)
