"""A door into a namespace: HTTP gets through, nobody else does, and it closes with its block."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress

import pytest

from loops import cancelled_after, run
from mooring.errors import StartFailed
from mooring.launch.door import door
from mooring.launch.netns import network_of

SERVES = """
import socket
s = socket.create_server(("127.0.0.1", 8000))
print("listens", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(c.recv(100) + b"x" * 3_000_000)
    c.close()
"""


async def asked(path: str, what: bytes = b"ping") -> bytes:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(what)
            return await reader.read(-1)
        finally:
            writer.transport.abort()


async def test_a_door_leads_to_a_port_inside(namespace) -> None:
    """What was sent last arrives whole, also when the server closes right behind it."""
    with network_of(namespace.pid) as network:
        (await network.listen(1)).close()
        async with namespace.running(SERVES) as inside, door(network, 8000) as path:
            assert await inside.line() == "listens"
            for _ in range(3):
                assert await asked(path) == b"ping" + b"x" * 3_000_000


async def test_behind_a_door_with_nobody_the_connection_is_closed(namespace) -> None:
    """As a refused one is: whoever waits for the server tries again."""
    with network_of(namespace.pid) as network:
        async with door(network, 8000) as path:
            with suppress(ConnectionError):
                assert await asked(path) == b""


async def test_a_door_is_for_this_user_and_gone_afterwards(namespace, open_descriptors) -> None:
    with network_of(namespace.pid) as network:
        before = open_descriptors()
        async with door(network, 8000) as path:
            folder = os.path.dirname(path)
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            reader, writer = await asyncio.open_unix_connection(path)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
        assert not os.path.exists(folder)
        with pytest.raises(OSError, match=r"No such file|connect"):
            await asyncio.open_unix_connection(path)
        async with asyncio.timeout(20):
            while len(open_descriptors()) > len(before):
                await asyncio.sleep(0.01)


class Inside:
    """A network in which nobody listens, and which must not be asked once it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.late = 0

    async def socket(self) -> socket.socket:
        return socket.socket()

    async def connect(self, port: int) -> socket.socket:
        self.late += self.closed
        raise StartFailed("nobody")


@pytest.mark.parametrize("ticks", [0, 1, 2, 3])
async def test_who_comes_while_the_door_closes_is_led_nowhere(ticks: int) -> None:
    """The network that the door was for is let go of behind it."""
    inside = Inside()
    with socket.socket(socket.AF_UNIX) as client:
        async with door(inside, 8000) as path:  # type: ignore[arg-type]
            client.connect(path)
            for _ in range(ticks):
                await asyncio.sleep(0)
        inside.closed = True
        for _ in range(5):
            await asyncio.sleep(0)
    assert not inside.late


@pytest.mark.parametrize("ticks", [0, 1, 2, 3, 4])
def test_a_door_that_is_cancelled_while_it_opens_leaves_nothing_open(
    ticks: int, open_descriptors: Callable[[], set[str]]
) -> None:
    """On the loop of a program that Mooring is a library of, which takes a turn to begin to listen."""

    async def cancelled() -> None:
        async def opened() -> None:
            async with door(Inside(), 8000):  # type: ignore[arg-type]
                await asyncio.sleep(1000)

        before = open_descriptors()
        await cancelled_after(ticks, opened())
        assert open_descriptors() == before

    run(cancelled(), asyncio.new_event_loop)
