"""The keeper: the daemon's one child and the ancestor of every server. Standard library and ``launch.family`` only.

Started by ``launch.start`` as ``python -I -S keeper.py`` with one end of a socket pair as descriptor 3; ``launch.kept``
holds the other end. It forks servers, reports their exits, signals them, ends them; when the socket ends (the daemon is
gone, however) it kills every descendant, has the container engines remove what they run for the daemon, and exits. It
never reads what servers say, keeps nothing on disk and decides nothing: when to start and to stop is the daemon's
business.

The conversation is frames (see ``pack``) of tuples. ``mark`` is the daemon's random number for one server:

    to the keeper     ("spawn", mark, argv, env, cwd, count) with ``count`` descriptors by SCM_RIGHTS, from stdin on
                      ("signal", mark, number)          to the process group
                      ("end", mark, grace, ask)         SIGTERM to all of it if ``ask``, SIGKILL after ``grace`` seconds
                      ("farewell", key, commands)       what to run when the daemon is gone (see ``Farewell``); or None
    to the daemon     ("spawned", mark, pid, errno, step), step is "cwd" or "exec"
                      ("exited", mark, code)            negative: by that signal
                      ("ended", mark, survivors)        nothing of it is alive, unless it could not be killed

``launch.family`` says who belongs to a server.
"""

import errno
import marshal
import os
import resource
import select
import sys
import time

if __name__ == "__main__":  # ``-I`` takes away the path to our own package
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
from mooring.launch.family import (
    MARKS,
    RLIMIT_LOCKS,
    become_subreaper,
    descendants,
    group_of,
    kill,
    members,
    process_table,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Iterable, Iterator
    from typing import Any
else:  # the C halves: the public modules cost 10 ms of imports at each start
    import _signal as signal
    import _socket as socket

CHANNEL = 3
"""The descriptor of the keeper's end of the socket pair."""
DYING = 2.0
"""Seconds that killed processes get to disappear; one that hangs in the kernel does not hold up the rest."""
GRACE_TICK = 0.05
KILL_TICK = 0.01
"""Seconds between two looks at servers that are ending; their own children's ends wake nobody here."""
FAREWELL = 30.0
"""Seconds that the engines get to remove the containers of a daemon that is gone."""
AGAIN = 0.1
LAST_LOOK = 1.0
"""Seconds until an engine is asked again: after it removed something or failed; and once more after it had nothing
left, because a start that was under way may still become a container."""


def pack(message: "tuple[Any, ...]") -> bytes:
    """One frame: the length in 4 bytes, then ``message`` by marshal (both ends run the same interpreter)."""
    body = marshal.dumps(message)
    return len(body).to_bytes(4, "big") + body


def unpack(buffer: bytearray) -> "Iterator[tuple[Any, ...]]":
    """Take the whole frames out of ``buffer``; the rest stays."""
    while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
        body = bytes(buffer[4:end])
        del buffer[:end]
        yield marshal.loads(body)  # noqa: S302 - from the daemon or the keeper, never from outside


class Server:
    """One server: its leader, and while it is being ended the monotonic times of the next steps."""

    __slots__ = ("give_up_at", "kill_at", "pid", "running")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.running = True
        self.kill_at = 0.0
        self.give_up_at = 0.0

    def signal_group(self, number: int) -> None:
        """Reach the whole group at once. Only while the leader is not reaped: later its number may be a stranger's."""
        if self.running:
            try:
                os.killpg(self.pid, number)
            except OSError:
                return

    def signal_all(self, found: "Iterable[int]", number: int) -> None:
        """Reach every process once: the group, then those that left it."""
        outside = [pid for pid in found if not (self.running and group_of(pid) == self.pid)]
        self.signal_group(number)
        kill(outside, number)


class Farewell:
    """How one engine removes what it runs for the daemon. ``listing`` prints one id a line, ``removal`` takes them."""

    def __init__(self, listing: tuple[bytes, ...], removal: tuple[bytes, ...], env: dict[bytes, bytes]) -> None:
        self._listing = listing
        self._removal = removal
        self._env = env
        self._empty = 0
        self.again_at = 0.0

    def done(self) -> bool:
        """Look once, and remove what is there; True when nothing is left for good."""
        listed = run_to_end(self._listing, self._env)
        found = [] if listed is None else listed.split()
        if found:
            run_to_end((*self._removal, *found), self._env)
        self._empty = 0 if found or listed is None else self._empty + 1
        self.again_at = time.monotonic() + (LAST_LOOK if self._empty else AGAIN)
        return self._empty > 1


def run_to_end(argv: "tuple[bytes, ...]", env: "dict[bytes, bytes]") -> "bytes | None":
    """What a program prints; None when it fails or is slow, in which case it is killed."""
    output, theirs = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, theirs, 1)]
    printed, give_up_at = bytearray(), time.monotonic() + FAREWELL
    try:
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    except OSError:
        os.close(output)
        return None
    finally:
        os.close(theirs)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while poll.poll(1000 * max(0.0, give_up_at - time.monotonic())) and (data := os.read(output, 65536)):
        printed += data
    os.close(output)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() >= give_up_at:
            kill([pid])
            ended = os.waitpid(pid, 0)
            break
        time.sleep(KILL_TICK)
    return bytes(printed) if ended[1] == 0 else None


class Keeper:
    """The keeper's state and its answers to the daemon."""

    def __init__(self, channel: "socket.socket") -> None:
        self.channel = channel
        self.servers: dict[int, Server] = {}
        self.ending: dict[int, Server] = {}
        self.farewells: dict[int, Farewell] = {}
        self._incoming = bytearray()
        self._received: list[int] = []  # descriptors whose frame is not complete yet
        self._limits = resource.getrlimit(RLIMIT_LOCKS) if MARKS else (0, 0)
        self._signals = [n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]

    def receive(self) -> bool:
        """Take what the daemon sent; False when the daemon is gone."""
        data, extra, _, _ = self.channel.recvmsg(65536, socket.CMSG_SPACE(4 * 16))
        for _, _, payload in extra:
            self._received += memoryview(payload).cast("i").tolist()
        for fd in self._received:
            os.set_inheritable(fd, False)
        self._incoming += data
        for verb, mark, *rest in unpack(self._incoming):
            if verb == "spawn":
                self._spawn(mark, *rest)
            elif verb == "end":
                self._end(mark, *rest)
            elif verb == "farewell":
                self.farewells.pop(mark, None)
                if rest[0] is not None:
                    self.farewells[mark] = Farewell(*rest[0])
            elif mark in self.servers:
                self.servers[mark].signal_group(*rest)
        return bool(data)

    def _spawn(self, mark: int, argv: tuple[bytes, ...], env: dict[bytes, bytes], cwd: bytes, count: int) -> None:
        stdio, self._received = self._received[:count], self._received[count:]
        pid, error, step = 0, 0, "cwd"
        try:
            os.chdir(cwd)
            step = "exec"
            pid = self._fork(mark, argv, env, stdio)
        except OSError as failure:
            error = failure.errno or errno.EIO
        finally:
            os.chdir("/")
            for fd in stdio:
                os.close(fd)
        if pid:
            self.servers[mark] = Server(pid)
        self._send("spawned", mark, pid, error, step)

    def _fork(self, mark: int, argv: tuple[bytes, ...], env: dict[bytes, bytes], stdio: list[int]) -> int:
        """fork, setsid, execve, with default signals and no descriptor but ``stdio`` (all others close on exec)."""
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
        if MARKS:
            resource.setrlimit(RLIMIT_LOCKS, (mark, self._limits[1]))
        try:
            return os.posix_spawn(
                argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=self._signals
            )
        finally:
            if MARKS:
                resource.setrlimit(RLIMIT_LOCKS, self._limits)

    def _end(self, mark: int, grace: float, ask: bool) -> None:
        server = self.servers.get(mark)
        if server is None:
            self._send("ended", mark, 0)
            return
        server.kill_at = time.monotonic() + grace
        server.give_up_at = server.kill_at + DYING
        if grace and ask:
            server.signal_all(members({mark: server.pid})[mark], signal.SIGTERM)
        self.ending[mark] = server

    def advance(self) -> None:
        """Take every server that is ending one step further."""
        if not self.ending:
            return
        now = time.monotonic()
        found = members({mark: server.pid for mark, server in self.ending.items()})
        for mark, server in list(self.ending.items()):
            if not (server.running or found[mark]) or now >= server.give_up_at:
                del self.ending[mark], self.servers[mark]
                self._send("ended", mark, len(found[mark]))
            elif now >= server.kill_at:
                server.signal_all(found[mark], signal.SIGKILL)

    def pause(self) -> "float | None":
        """Milliseconds until the next step of an ending server; None when none is."""
        if not self.ending:
            return None
        left = min(server.kill_at for server in self.ending.values()) - time.monotonic()
        return 1000 * min(GRACE_TICK, max(KILL_TICK, left))

    def reap(self) -> bool:
        """Collect every child that has ended, orphans too, and report the servers. False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            for mark, server in self.servers.items():
                if server.pid == pid and server.running:
                    server.running = False
                    self._send("exited", mark, os.waitstatus_to_exitcode(status))

    def _send(self, *message: "Any") -> None:
        try:
            self.channel.sendall(pack(message))
        except OSError:  # the daemon is gone: the next receive says so
            return

    def end_everything(self) -> None:
        """Kill every descendant, again and again until none is left; bounded by ``DYING``."""
        give_up_at = time.monotonic() + DYING
        while (self.reap() or sys.platform != "linux") and time.monotonic() < give_up_at:
            victims = set(descendants(os.getpid(), process_table()))
            victims.update(*members({mark: server.pid for mark, server in self.servers.items()}).values())
            if not victims:
                return
            kill(victims)
            time.sleep(KILL_TICK / 2)

    def say_farewell(self) -> None:
        """Have the engines remove what they run for the daemon; bounded by ``FAREWELL``."""
        give_up_at = time.monotonic() + FAREWELL
        left = list(self.farewells.values())
        while left and time.monotonic() < give_up_at:
            left = [one for one in left if time.monotonic() < one.again_at or not one.done()]
            time.sleep(KILL_TICK)


def _nothing(number: int, frame: object) -> None:
    pass


def run(channel: "socket.socket") -> None:
    """Serve the daemon until it is gone, then leave nothing behind."""
    keeper = Keeper(channel)
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)  # a handler is what makes the signal wake the pipe
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(woken, select.POLLIN)
    try:
        while True:
            ready = [fd for fd, _ in poll.poll(keeper.pause())]
            if woken in ready:
                os.read(woken, 65536)
            keeper.reap()
            if channel.fileno() in ready and not keeper.receive():
                return
            keeper.advance()
    except ConnectionResetError:
        return
    finally:
        keeper.end_everything()
        keeper.say_farewell()


def main() -> None:
    """The whole life of the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the daemon does, whoever is told to end first
    for name in os.listdir("/dev/fd"):
        if int(name) > CHANNEL:  # what the daemon itself was given
            try:
                os.close(int(name))
            except OSError:
                continue
    os.set_inheritable(CHANNEL, False)
    os.chdir("/")
    become_subreaper()
    run(socket.socket(fileno=CHANNEL))


if __name__ == "__main__":
    main()
