"""Sockets in another process's network namespace: to listen there for a server that has no other network, and to reach
a server there that publishes nothing. Linux only.

Used by launchers. A socket belongs for good to the namespace it was made in, so only the making happens inside, in a
thread that is thrown away or, without privileges, in a process of its own (``launch.netns_entry``); binding, connecting
and serving are done from here. The daemon's own threads never enter a foreign namespace.

Source: setns(2), network_namespaces(7), ioctl_ns(2), pidfd_open(2).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from mooring.errors import StartFailed
from mooring.launch import netns_entry

ENTRY_LIMIT = 10.0
"""Seconds for the helper process to make a socket; it takes some 30 ms."""
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
INTERFACE = struct.Struct("16sh22x")
"""``struct ifreq`` with flags."""


class Netns:
    """A network namespace, held by a descriptor: it stays what it is, whatever becomes of the process it was found by.
    Made by ``network_of``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def socket(self, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
        """A new TCP socket inside, non-blocking. Raises StartFailed when this user may not enter."""
        loop = asyncio.get_running_loop()
        made: asyncio.Future[socket.socket] = loop.create_future()

        def deliver(found: socket.socket | OSError) -> None:
            if isinstance(found, OSError):
                if not made.done():
                    made.set_exception(found)
            elif made.done():
                found.close()
            else:
                made.set_result(found)

        try:
            # Its own: whoever waits may give up, and ours be closed, before it has entered.
            fd = os.dup(self._fd)
            try:
                threading.Thread(target=_make, args=(fd, family, loop, deliver), daemon=True).start()
            except BaseException:
                os.close(fd)
                raise
            found = await made
        except OSError as error:
            raise StartFailed(f"The network of the server cannot be entered: {_reason(error)}", phase="start") from None
        found.setblocking(False)
        return found

    async def listen(self, port: int) -> socket.socket:
        """A listening socket on 127.0.0.1 inside. Raises StartFailed."""
        made = await self.socket()
        try:
            _loopback_up(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("127.0.0.1", port))
            made.listen()
        except OSError as error:
            made.close()
            what = f"Port {port} inside the server's network cannot be listened on: {error.strerror}"
            raise StartFailed(what, phase="start") from None
        return made

    async def connect(self, port: int) -> socket.socket:
        """A connection to ``port`` on the loopback interface inside, where some servers listen on 127.0.0.1 and some
        on ::1. Raises OSError when nobody listens, StartFailed when this user may not enter."""
        failure = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            made = await self.socket(family)
            try:
                await asyncio.get_running_loop().sock_connect(made, (address, port))
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                if family == socket.AF_INET:
                    failure = error
                continue
            return made
        raise failure

    def close(self) -> None:
        """Let go of it; nothing can be made inside any more."""
        fd, self._fd = self._fd, -1
        os.close(fd)


@contextmanager
def network_of(pid: int) -> Generator[Netns]:
    """The network namespace that process ``pid`` is in now. The caller looks afterwards whether its server still runs:
    if so, ``pid`` was the server's and not one that was given out again.

    Raises StartFailed when there is no such process, when this user may not look, and when it has no namespace of its
    own: nothing is ever opened in the network of this machine by mistake.
    """
    fd = _opened(pid)
    network = Netns(fd)
    try:
        if _is_ours(fd):
            raise StartFailed("The server has no network of its own, so that it cannot be guarded", phase="start")
        yield network
    finally:
        network.close()


def _opened(pid: int) -> int:
    try:
        process = os.pidfd_open(pid)
        try:
            fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                signal.pidfd_send_signal(process, 0)  # still that process: the number was not given out again
            except OSError:
                os.close(fd)
                raise
        finally:
            os.close(process)
    except OSError as error:
        what = f"The network of process {pid} cannot be opened: {_reason(error)}"
        raise StartFailed(what, phase="start") from None
    return fd


def _is_ours(fd: int) -> bool:
    found, own = os.fstat(fd), os.stat("/proc/self/ns/net")
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _reason(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "this user has no rights over it (they come with being root, or with having started it rootless)"
    return error.strerror or str(error)


def _make(
    fd: int,
    family: socket.AddressFamily,
    loop: asyncio.AbstractEventLoop,
    deliver: Callable[[socket.socket | OSError], None],
) -> None:
    """The whole life of a thread, which closes ``fd``: it may end in the other namespace, and nothing else ever runs in
    it."""
    made: socket.socket | OSError
    try:
        try:
            netns_entry.enter(fd, netns_entry.CLONE_NEWNET)
        except PermissionError:
            made = _made_outside(fd, family)
        else:
            made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        made = error
    finally:
        os.close(fd)
    try:
        loop.call_soon_threadsafe(deliver, made)
    except RuntimeError:  # the loop is closed: nobody waits
        if isinstance(made, socket.socket):
            made.close()


def _made_outside(fd: int, family: socket.AddressFamily) -> socket.socket:
    """By a process that enters the user namespace first, which a process with threads cannot. Raises OSError."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            actions = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            argv = (sys.executable, "-I", "-S", netns_entry.__file__, str(int(family)))
            pid = os.posix_spawn(sys.executable, argv, {}, file_actions=actions, setsid=True)
        try:
            ours.settimeout(ENTRY_LIMIT)
            socket.send_fds(ours, [b"."], [fd])
            answer, found, _, _ = socket.recv_fds(ours, 16, 1)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if not found:
        number = int(answer or errno.EIO)
        raise OSError(number, os.strerror(number))
    os.set_inheritable(found[0], False)  # as all others are
    return socket.socket(fileno=found[0])


def _loopback_up(made: socket.socket) -> None:
    """A new namespace has its loopback interface down. Raises OSError."""
    name, flags = INTERFACE.unpack(fcntl.ioctl(made, SIOCGIFFLAGS, INTERFACE.pack(b"lo", 0)))
    if not flags & IFF_UP:
        fcntl.ioctl(made, SIOCSIFFLAGS, INTERFACE.pack(name, flags | IFF_UP))
