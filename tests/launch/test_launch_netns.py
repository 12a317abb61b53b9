"""Sockets in foreign network namespaces, with real ones."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

import pytest

from mooring.errors import StartFailed
from mooring.launch import netns_entry
from mooring.launch.netns import network_of

OURS = "/proc/self/ns/net"


def where(thread: int) -> str:
    return os.readlink(f"/proc/self/task/{thread}/ns/net")


async def _all_at(home: str) -> None:
    """A thread that has ended takes a moment to disappear."""
    while True:
        with suppress(OSError):
            if {where(int(task)) for task in os.listdir("/proc/self/task")} == {home}:
                return
        await asyncio.sleep(0.005)


async def test_a_listener_inside_is_reached_from_inside_only(namespace) -> None:
    with network_of(namespace.pid) as network:
        listening = await network.listen(3128)
        with listening:
            server = await asyncio.start_server(lambda _, writer: writer.close(), sock=listening)
            with pytest.raises(OSError, match=r"refused|Connect"):
                await asyncio.open_connection("127.0.0.1", 3128)
            assert await namespace.run(CONNECTS.format(port=3128)) == "b''"
            server.close()


CONNECTS = "import socket; s = socket.create_connection(('127.0.0.1', {port}), 5); print(s.recv(9))"

LISTENS = """
import socket, sys
s = socket.create_server(({host!r}, {port}), family=socket.AF_INET6 if ':' in {host!r} else socket.AF_INET)
print("listens", flush=True)
c, _ = s.accept(); c.sendall(b"hello"); c.close()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_server_inside_that_publishes_nothing_is_reached_from_here(namespace, host: str) -> None:
    with network_of(namespace.pid) as network:
        (await network.listen(1)).close()  # brings the loopback interface up
        async with namespace.running(LISTENS.format(host=host, port=8000)) as server:
            assert await server.line() == "listens"
            made = await network.connect(8000)
            with made:
                assert await asyncio.get_running_loop().sock_recv(made, 9) == b"hello"


async def test_nobody_listening_inside_is_a_refused_connection(namespace) -> None:
    with network_of(namespace.pid) as network:
        (await network.listen(1)).close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(8000)


async def test_the_threads_of_the_daemon_stay_where_they_were(namespace) -> None:
    """Whoever enters is thrown away; nothing else runs in that thread."""
    home = os.readlink(OURS)
    with network_of(namespace.pid) as network:
        for _ in range(20):
            (await network.socket()).close()
        await asyncio.to_thread(lambda: None)
        await asyncio.wait_for(_all_at(home), 20)
        assert await asyncio.to_thread(os.readlink, OURS) == home
        assert threading.current_thread() is threading.main_thread()


async def test_the_network_of_this_machine_is_never_entered() -> None:
    """No listener is ever opened in the daemon's own network by mistake."""
    with pytest.raises(StartFailed, match="no network of its own"), network_of(os.getpid()):
        pass


async def test_a_process_that_is_gone_has_no_network(namespace) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    with pytest.raises(StartFailed, match="cannot be opened"), network_of(gone.pid):
        pass


async def test_a_namespace_outlives_its_process_only_as_long_as_it_is_held(namespace, open_descriptors) -> None:
    with network_of(namespace.pid) as network:
        await namespace.end()
        (await network.listen(3128)).close()
        assert any("net:[" in name for name in open_descriptors())
    assert not any("net:[" in name for name in open_descriptors())


async def test_a_caller_that_gives_up_leaves_no_socket_behind(namespace, open_descriptors) -> None:
    with network_of(namespace.pid) as network:
        before = open_descriptors()
        asked = asyncio.ensure_future(network.socket())
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait((asked,))
        async with asyncio.timeout(20):
            while open_descriptors() != before:
                await asyncio.sleep(0.01)


async def test_who_enters_late_enters_what_was_meant(namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited gave up, the block was left, and something else has the number of the namespace by then."""
    entering, go, entered = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    def enter(fd: int, _: int) -> None:
        entering.set()
        go.wait(20)
        seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        entered.set()
        raise OSError

    monkeypatch.setattr(netns_entry, "enter", enter)
    others: list[int] = []
    meant = os.readlink(f"/proc/{namespace.pid}/ns/net")
    try:
        with network_of(namespace.pid) as network:
            asked = asyncio.ensure_future(network.socket())
            assert await asyncio.to_thread(entering.wait, 20)
            asked.cancel()
            await asyncio.wait((asked,))
        others += [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    finally:
        go.set()
    assert await asyncio.to_thread(entered.wait, 20)
    for other in others:
        os.close(other)
    assert seen == [meant]


async def test_nothing_is_made_inside_once_it_is_let_go_of(namespace) -> None:
    """Its number may be that of another server's network by then."""
    with network_of(namespace.pid) as network:
        pass
    with network_of(namespace.pid), pytest.raises(StartFailed, match="cannot be entered"):
        await network.socket()


async def test_a_socket_that_another_process_made_is_inherited_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for a plain user, who can enter only by way of the user namespace."""
    program = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo there; exec sleep 600")
    holder = await asyncio.create_subprocess_exec(*program, stdout=-1, stderr=-3)
    try:
        if not await holder.stdout.readline():
            pytest.skip("needs user namespaces: sysctl kernel.unprivileged_userns_clone=1")

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(netns_entry, "enter", refuse)
        with network_of(holder.pid) as network, await network.socket() as made:
            assert not made.get_inheritable()
    finally:
        if holder.returncode is None:
            holder.kill()
        await holder.wait()
