"""The daemon's side of the keeper: start processes in it, hear of their ends, end them, replace it when it dies.

``serve.app`` opens one ``Keeper``; launchers call ``spawn``. All of it runs on the event loop and blocks nowhere. It
never uses the loop's own child watching: servers are not this process's children, and the keeper's end is seen on its
socket. If the keeper dies, this process inherits the servers (it is a subreaper), kills them and resolves every
``exited``; the next ``spawn`` starts a new keeper.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from mooring.launch.family import MARKS, become_subreaper, descendants, kill, members, nested, process_table
from mooring.launch.keeper import DYING, pack, unpack
from mooring.launch.start import Started, start_keeper
from mooring.tasks import finish

log = logging.getLogger(__name__)

SPAWN_LIMIT = 10.0
"""Seconds for one spawn; it takes milliseconds unless the program is on a file system that hangs."""
LAST_WORD = DYING + 5.0
"""Seconds beyond its own limits that the keeper gets to answer, before it is not believed in any more."""
TICK = 0.005
"""Seconds between two looks at processes that were killed."""


class Kept:
    """One process in the keeper's hands. The three descriptors (non-blocking) are the receiver's, who closes them."""

    def __init__(self, channel: Channel, mark: int) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self._mark = mark
        self.pid = 0
        self.stdin_fd = self.stdout_fd = self.stderr_fd = -1
        self.exited: asyncio.Future[int | None] = loop.create_future()
        """The exit code, negative for a signal; None: it is ended because its keeper died."""
        self.spawned: asyncio.Future[tuple[int, int, str] | None] = loop.create_future()
        """The keeper's answer: pid, errno, step. None: the keeper died."""
        self.ended: asyncio.Future[int] = loop.create_future()
        """How many of its processes could not be killed; resolves once nothing else is left."""
        self._ending = False

    def signal(self, number: int) -> None:
        """Send a signal to the process group; nothing happens once the process has ended."""
        if not self.exited.done():
            self._channel.send(("signal", self._mark, int(number)))

    async def end(self, grace: float, ask: bool = True) -> None:
        """End it and all its descendants: SIGTERM (unless not to ``ask``), ``grace`` seconds, SIGKILL. Bounded; may be
        called again."""
        if not self._ending:
            self._ending = True
            self._channel.send(("end", self._mark, grace, ask))
        await asyncio.wait((self.ended,), timeout=grace + LAST_WORD)
        if not self.ended.done():
            self._channel.lose("does not answer")
            await asyncio.wait((self.ended,), timeout=LAST_WORD)


class Channel:
    """One keeper process and the conversation with it."""

    def __init__(self, started: Started) -> None:
        self.pid, fd = started
        self.lost = False
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Resolves when the keeper and everything it kept is gone."""
        self._kept: dict[int, Kept] = {}
        self._incoming = bytearray()
        self._outgoing: list[tuple[bytes, Sequence[int]]] = []
        self._clearing: asyncio.Task[None] | None = None
        self._finishing = False
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    async def spawn(
        self, argv: Sequence[bytes], env: Mapping[bytes, bytes], cwd: bytes, more: Sequence[int]
    ) -> Kept | None:
        """One process, or None when the keeper died meanwhile; whatever was begun is undone then."""
        ours, theirs = _pipes(more)
        mark = int.from_bytes(os.urandom(7), "big") | 1
        kept = self._kept[mark] = Kept(self, mark)
        self.send(("spawn", mark, tuple(argv), dict(env), cwd, len(theirs)), theirs)
        try:
            try:
                async with asyncio.timeout(SPAWN_LIMIT):
                    answer = await kept.spawned
            except TimeoutError:
                what = f"it was not running within {SPAWN_LIMIT:g} s; look at the disk it is on"
                raise TimeoutError(what) from None
            if answer is not None and answer[1]:
                raise OSError(answer[1], os.strerror(answer[1]), os.fsdecode(cwd if answer[2] == "cwd" else argv[0]))
        except BaseException:
            self.send(("end", mark, 0.0, False))
            _close(ours)
            raise
        if answer is None:
            _close(ours)
            return None
        kept.pid = answer[0]
        kept.stdin_fd, kept.stdout_fd, kept.stderr_fd = ours
        return kept

    def send(self, message: tuple[object, ...], fds: Sequence[int] = ()) -> None:
        """Queue one frame; ``fds`` go with it and are closed here. Nothing is sent when the keeper is gone."""
        self._outgoing.append((pack(message), fds))
        self._write()

    def _write(self) -> None:
        while self._outgoing:
            data, fds = self._outgoing[0]
            try:
                sent = socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._write)
                return
            except OSError:
                self.lose("is gone")
                self._drop()
                return
            _close(fds)
            self._outgoing[:1] = [(data[sent:], ())] if sent < len(data) else []
        self._loop.remove_writer(self._socket)

    def _drop(self) -> None:
        for _, fds in self._outgoing:
            _close(fds)
        self._outgoing.clear()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._incoming += data
        for message in unpack(self._incoming):
            self._heard(*message)
        if not data:
            self.lose("ended")

    def _heard(self, verb: str, mark: int, *rest: Any) -> None:
        kept = self._kept[mark]
        if verb == "spawned":
            _resolve(kept.spawned, rest)
        elif verb == "exited":
            _resolve(kept.exited, rest[0])
        else:
            del self._kept[mark]
            if rest[0]:
                log.error("%d processes of the server with pid %d could not be killed", rest[0], kept.pid)
            _resolve(kept.exited, -signal.SIGKILL)  # told already, unless it could not be killed
            _resolve(kept.ended, rest[0])

    def containing(self) -> set[int]:
        """See ``Keeper.containing``."""
        found, table = members({mark: kept.pid for mark, kept in self._kept.items()}), process_table()
        return {
            self._kept[mark].pid
            for mark, pids in found.items()
            if any(nested(member) for pid in pids for member in (pid, *descendants(pid, table)))
        }

    def finish(self) -> None:
        """Have the keeper end everything and itself; ``over`` follows."""
        self._finishing = True
        if not self.lost:
            self._socket.shutdown(socket.SHUT_WR)

    def lose(self, why: str) -> None:
        """The conversation is over: let go of the socket and clear up. Does nothing the second time."""
        if self.lost:
            return
        self.lost = True
        if not self._finishing:
            log.error("the keeper (pid %d) %s; what it kept is ended, the next start brings a new one", self.pid, why)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._drop()
        for kept in self._kept.values():  # told before they are dead: why they are counts, not which signal did it
            _resolve(kept.spawned, None)
            _resolve(kept.exited, None)
        self._clearing = self._loop.create_task(self._clear())

    async def _clear(self) -> None:
        """End the keeper and, as its heir, every process it kept."""
        reaped: set[int] = set()
        try:
            await self._kill(lambda: [self.pid] if self.pid not in reaped else [], reaped)
            leaders = {mark: kept.pid for mark, kept in self._kept.items()}  # also those not known to run yet
            heirs = _families(leaders)
            await self._kill(lambda: [*heirs - reaped, *_marked(leaders) - heirs], reaped)
        finally:
            for kept in self._kept.values():
                _resolve(kept.ended, 0)
            self._kept.clear()
            self.over.set_result(None)

    async def _kill(self, alive: Callable[[], list[int]], reaped: set[int]) -> None:
        """Kill and reap until nothing is ``alive``; bounded by ``DYING``."""
        give_up_at = self._loop.time() + DYING
        while (pids := alive()) and self._loop.time() < give_up_at:
            kill(pids)
            _reap(pids, reaped)
            await asyncio.sleep(TICK)


class Keeper:
    """Where processes live: an async context manager; leaving it leaves none of them alive.

    ``started``: what ``start_keeper`` gave; without it one is started on entering.
    """

    def __init__(self, started: Started | None = None) -> None:
        self._started = started
        self._channel: Channel
        self._heir = False
        self._left = False
        self._farewells: dict[int, tuple[object, ...]] = {}

    async def __aenter__(self) -> Self:
        self._channel = Channel(self._started or start_keeper())
        return self

    async def __aexit__(self, *_: object) -> None:
        await finish(self._close())

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._channel.pid

    def farewell(self, key: int, listing: Sequence[str], removal: Sequence[str], env: Mapping[str, str]) -> None:
        """From now until ``forget(key)``: should this process die, what ``listing`` prints is given to ``removal``."""
        variables = {_encode(name): _encode(value) for name, value in env.items()}
        self._farewells[key] = (tuple(map(_encode, listing)), tuple(map(_encode, removal)), variables)
        self._channel.send(("farewell", key, self._farewells[key]))

    def containing(self) -> set[int]:
        """The pids of those that have something alive in a container below them: in a PID namespace of its own. Linux,
        where it takes milliseconds."""
        return self._channel.containing()

    def forget(self, key: int) -> None:
        """Nothing is to be removed any more."""
        if self._farewells.pop(key, None):
            self._channel.send(("farewell", key, None))

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, more: Sequence[int] = ()) -> Kept:
        """Start ``argv[0]`` (an absolute path) with exactly ``env`` in ``cwd``, leader of its own session and group.
        ``more``: descriptors it gets as 3 and on; they stay the caller's.

        Waits for a new keeper if the old one died. Raises OSError (with the path it is about, or because the block is
        left), TimeoutError, and ValueError for text that no process can be given.
        """
        line = [_encode(part) for part in argv]
        variables = {_encode(name): _encode(value) for name, value in env.items()}
        if any(not name or b"=" in name for name in variables):
            raise ValueError("an environment variable has an empty name or one with a '='")
        if not self._heir:
            # The next ancestor in line, should the keeper die. Before the first server and not at boot: it loads
            # ctypes, which takes a tenth of the boot. Linux carries it over to the keeper, which runs already.
            become_subreaper()
            self._heir = True
        for _ in range(2):
            await self._recovered()
            kept = await self._channel.spawn(line, variables, _encode(cwd), more)
            if kept is not None:
                return kept
        raise ConnectionResetError("the keeper died twice during one start")

    async def _recovered(self) -> None:
        lost = self._channel
        if lost.lost:
            await asyncio.wait((lost.over,))
            if self._left:  # nobody would end another one
                raise ConnectionResetError("nothing is started any more")
            if self._channel is lost:
                self._channel = Channel(start_keeper())
                for key, commands in self._farewells.items():
                    self._channel.send(("farewell", key, commands))

    async def _close(self) -> None:
        self._left = True
        self._channel.finish()
        await asyncio.wait((self._channel.over,), timeout=LAST_WORD)
        self._channel.lose("does not end")
        await asyncio.wait((self._channel.over,), timeout=2 * LAST_WORD)


def _marked(leaders: Mapping[int, int]) -> set[int]:
    return {pid for found in members(leaders).values() for pid in found}


def _families(leaders: Mapping[int, int]) -> set[int]:
    """Every process of the servers, and what descends from one: a mark of another user's process cannot be read without
    privileges, and the first process of a container may be one. Those that this process does not inherit at the end are
    gone with their parents."""
    found = _marked(leaders) if MARKS else set[int]()
    table = process_table() if found else {}
    return found.union(*(descendants(pid, table) for pid in found))


def _encode(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a command, its environment and its folder cannot hold a NUL character")
    return os.fsencode(text)


def _pipes(more: Iterable[int]) -> tuple[list[int], list[int]]:
    """Three pipes: our ends (writing stdin, reading stdout and stderr; non-blocking) and the child's, with copies of
    ``more``. Raises OSError."""
    made: list[int] = []
    try:
        for _ in range(3):
            made += os.pipe()
        for fd in more:
            made.append(os.dup(fd))
    except OSError:
        _close(made)
        raise
    stdin, feed, output, stdout, errors, stderr, *copies = made
    for fd in (feed, output, errors):
        os.set_blocking(fd, False)
    return [feed, output, errors], [stdin, stdout, stderr, *copies]


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _reap(pids: Iterable[int], reaped: set[int]) -> None:
    """Collect those that have ended and are this process's children, and note those that are nobody any more."""
    for pid in pids:
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            if MARKS and not os.path.exists(f"/proc/{pid}"):
                reaped.add(pid)
            continue
        if ended:
            reaped.add(pid)
