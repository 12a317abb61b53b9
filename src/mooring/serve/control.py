"""The control socket: newline JSON-RPC for the owner of this home, apart from the data endpoint.

The first line of a connection decides: ``{"attach": "stdio", "workspace": W}`` (or ``"registry"``) turns it into an
MCP conversation (``wire.stdio_front``); anything else is a verb of ``serve.verbs``. The folder is 0700 and the peer's
uid is checked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mooring.errors import ConfigError, MooringError, Refused, StoreError
from mooring.nouns import Principal
from mooring.tasks import Tasks
from mooring.wire import jsonrpc
from mooring.wire.lines import Lines
from mooring.wire.session import Handler

if TYPE_CHECKING:
    from mooring.serve.verbs import Verbs

LINE_LIMIT = 64 << 20
"""Bytes of one line from a client."""

UNREAD_LIMIT = 16 << 20
"""Bytes that may wait for a client; beyond it, what a verb reports on its way is dropped, its result is not."""

_log = logging.getLogger(__name__)

Attach = Callable[[str, bool], Principal]
"""Whose conversation a shim for this workspace begins, which may demand that there is the registry. Raises MooringError
to refuse."""


class _Line(msgspec.Struct):
    """One line from a client: an attach line or a verb."""

    id: int | str | None = None
    method: str = ""
    params: dict[str, Any] = {}
    attach: str = ""
    workspace: str | None = None


class Connections(set["ControlConnection"]):
    """Those that are open and carry no conversation."""

    over = False
    """Nobody is admitted any more."""


class ControlConnection(asyncio.Protocol):
    """One connection. Its tasks end with it."""

    def __init__(
        self,
        verbs: Callable[[], Verbs],
        handler: Handler,
        attach: Attach,
        tasks: Tasks,
        connections: Connections,
    ) -> None:
        """``verbs`` are loaded for the first that is asked for; ``handler`` answers the requests of shims; ``tasks``
        owns the conversations and the verbs."""
        self._verbs = verbs
        self._handler = handler
        self._attach = attach
        self._tasks = tasks
        self._connections = connections
        self._lines = Lines(LINE_LIMIT)
        self._refused = 0
        """Lines that were too long, and were told so."""
        self._running: set[asyncio.Task[None]] = set()
        self._first: bytearray | None = bytearray()
        """What has come of the first line; None after it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio's
        if self._connections.over:  # accepted at the last moment
            self._transport.abort()
            return
        self._connections.add(self)
        if not same_user(transport.get_extra_info("socket")):
            self._send({"id": None, "error": failure(Refused("This control socket belongs to another user."))})
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._first is not None:
            self._first += data
            if b"\n" not in data and len(self._first) <= LINE_LIMIT:
                return
            data, self._first = bytes(self._first), None
            if self._attaching(data):
                return
        for line in self._lines.feed(data):
            self._received(line)
        while self._refused < self._lines.dropped:
            self._refused += 1
            too_long = {"code": -32600, "message": f"a line may have {LINE_LIMIT} bytes at most"}
            self._send({"id": None, "error": too_long})

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        for task in self._running:
            task.cancel()

    def close(self) -> None:
        """End the connection and whatever runs for it."""
        self._transport.close()

    def _attaching(self, data: bytes) -> bool:
        """Begin a conversation when the first line says so."""
        line, _, rest = data.partition(b"\n")
        try:
            asked = msgspec.convert(jsonrpc.value(line), _Line)
        except (ValueError, RecursionError):
            return False  # whatever it is, it is answered as a verb
        if not asked.attach:
            return False
        try:
            if asked.attach not in ("stdio", "registry"):
                raise ConfigError(f"nothing attaches as {asked.attach!r}")
            principal = self._attach(asked.workspace or "", asked.attach == "registry")
        except MooringError as error:
            self._send({"error": {"message": str(error), "exit_code": error.exit_code}})
            self._transport.close()
            return True
        self._connections.discard(self)
        self._transport.pause_reading()
        self._send({"attached": True})
        from mooring.wire import stdio_front  # a daemon that serves HTTP only never needs it

        transport = self._transport
        held = self._tasks.create_task(stdio_front.serve(transport, self._handler, principal, leftover=rest))
        held.add_done_callback(lambda _: transport.abort())  # it may end before it began
        return True

    def _received(self, line: bytes) -> None:
        try:
            asked = msgspec.convert(jsonrpc.value(line), _Line)
        except (ValueError, RecursionError) as error:
            self._send({"id": None, "error": {"code": -32700, "message": f"not a verb: {error}"}})
            return
        task = self._tasks.create_task(self._run(asked))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, asked: _Line) -> None:
        def heard(what: str, data: Any) -> None:
            if self._transport.get_write_buffer_size() < UNREAD_LIMIT:  # else the asker has stopped reading
                self._send({"method": "heard", "params": [asked.id, what, data]})

        try:
            result = await self._verbs().invoke(asked.method, asked.params, heard)
        except Exception as error:  # the error boundary of a verb: its asker gets it, the daemon goes on
            if not isinstance(error, MooringError):  # a bug, or params that no client of ours sends
                _log.debug("%s failed", asked.method, exc_info=True)
            self._send({"id": asked.id, "error": failure(error)})
        else:
            self._send({"id": asked.id, "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        if not self._transport.is_closing():
            self._transport.write(jsonrpc.text({"jsonrpc": "2.0", **message}) + b"\n")


def failure(error: Exception) -> dict[str, Any]:
    """An exception as the error member of a control answer."""
    if isinstance(error, MooringError):
        return {"code": -32000, "message": str(error), "data": {**error.facts(), "exit_code": error.exit_code}}
    return {"code": -32603, "message": f"{type(error).__name__}: {error}", "data": {"kind": "internal"}}


def same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end runs as this user. Elsewhere than on Linux the folder's mode decides."""
    if not sys.platform.startswith("linux"):
        return True
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


@asynccontextmanager
async def serving(
    path: str, verbs: Callable[[], Verbs], handler: Handler, attach: Attach
) -> AsyncGenerator[None, None]:
    """Serve the control socket at ``path`` as long as the block lasts; a stale socket of a dead daemon is replaced
    (the caller holds the lock of this home). Raises StoreError."""
    # Bound elsewhere and moved into place once it listens: whoever sees the socket can connect to it.
    unready = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(unready)
    connections = Connections()
    loop = asyncio.get_running_loop()
    async with Tasks() as tasks:
        try:
            server = await loop.create_unix_server(
                lambda: ControlConnection(verbs, handler, attach, tasks, connections), unready, start_serving=False
            )
        except OSError as error:  # the folder is ours by now: what is left is a path over some hundred bytes
            raise StoreError(
                f"The control socket {path} cannot be made: {error}. Set MOORING_HOME to a folder with a shorter path."
            ) from error
        try:
            await server.start_serving()  # within: who is cancelled in it must not leave it listening
            os.chmod(unready, 0o600)
            os.rename(unready, path)
            yield
        finally:
            server.close()
            connections.over = True
            for connection in tuple(connections):
                connection.close()
            with suppress(FileNotFoundError):
                os.unlink(path)
