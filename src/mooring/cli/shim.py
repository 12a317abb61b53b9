"""``mooring stdio -w W``: MCP on stdin and stdout, carried to the daemon over its control socket. ``mooring registry``
is the same, for a workspace that offers the registry.

Started by MCP clients that only start commands, so it has to start fast: dispatched by ``mooring.__main__`` before any
CLI library is imported, and importing next to nothing itself (no asyncio, no msgspec, hence no ``config.home``). After
one line that attaches it, it copies lines both ways: a thread reads stdin, the main thread reads the daemon and is the
only one that writes stdout, which never carries anything but MCP. If the daemon goes away it answers what was lost,
attaches again and replays the handshake. It ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress

from mooring.wire.lines import Lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from mooring.cli.ledger import Ledger

ATTACH_TIMEOUT = 10.0
"""Seconds the daemon may take to answer the attach line, and a daemon started here to answer at all."""
RECONNECT = 30.0
"""Seconds in which a daemon that went away may come back."""
FLUSH = 35.0
"""Seconds after the end of stdin in which answers still come through; a little more than the daemon allows itself."""
PAUSE = 0.05
"""Seconds between two attempts to connect."""
GRACE = 2.0
"""Seconds of waiting left once a daemon started here has ended: another one may have been faster."""

_CHUNK = 1 << 18
_USAGE = "usage: mooring {} [-w WORKSPACE] [--no-spawn]"


class Stop(Exception):
    """The shim cannot go on: what to tell people, and the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def main(argv: list[str], verb: str = "stdio") -> int:
    """Run ``mooring stdio``, or another ``verb`` like it, with the arguments after it; returns the exit code."""
    try:
        workspace, spawn = _options(argv, verb)
        ledger = _ledger()  # before it attaches: from then on no file is opened
        place = Place(socket_path(os.environ), workspace, verb)
        link = place.attach() or _first_link(place, spawn)
        return Shim(place, link, ledger).run()
    except Stop as stop:
        print(stop, file=sys.stderr)  # noqa: T201
        return stop.exit_code
    except KeyboardInterrupt:
        return 130


def socket_path(environ: Mapping[str, str]) -> str:
    """The control socket: what ``Home.locate(environ).socket`` says, without its imports."""
    if own := environ.get("MOORING_HOME"):
        return os.path.join(os.getcwd(), os.path.expanduser(own), "run", "control.sock")
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "mooring", "control.sock")
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local/state")
    return os.path.join(state, "mooring", "run", "control.sock")


class Link:
    """One attached connection to the daemon."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = Lines(sys.maxsize)

    def send(self, *lines: bytes) -> None:
        """Send whole lines. Raises OSError."""
        for line in lines:
            self._connection.sendall(line + b"\n")

    def receive(self) -> list[bytes] | None:
        """The lines that came, perhaps none yet; None when the daemon is gone."""
        try:
            data = self._connection.recv(_CHUNK)
        except TimeoutError:
            raise
        except OSError:
            return None
        return self._lines.feed(data) if data else None

    def settle(self) -> None:
        """From now on reads wait without a limit."""
        self._connection.settimeout(None)

    def end_input(self) -> None:
        """Tell the daemon that nothing follows."""
        with suppress(OSError):  # the daemon is gone already, which the reader notices
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class Place:
    """Where to attach: the control socket at ``path``, to a workspace (None: the daemon's choice), for ``verb``."""

    def __init__(self, path: str, workspace: str | None, verb: str = "stdio") -> None:
        self.path = path
        self._line = b'{"attach":%s,"workspace":%s}' % (_json(verb), _json(workspace))

    def attach(self) -> Link | None:
        """Connect and attach. None when no daemon answers. Raises Stop when there is one and it refuses."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ATTACH_TIMEOUT)
        link = Link(connection)
        try:
            connection.connect(self.path)
            link.send(self._line)
            answer = _answer(link)
        except TimeoutError:
            raise Stop(f"The Mooring daemon at {self.path} does not answer.", 1) from None
        except OSError as error:
            if isinstance(error, PermissionError) or "too long" in str(error):
                raise Stop(f"The Mooring daemon cannot be reached at {self.path}: {error}", 1) from None
            answer = None
        if answer is None:
            link.close()
            return None
        if b'"error"' in answer:
            raise _refusal(answer)
        link.settle()
        return link


def _answer(link: Link) -> bytes | None:
    """The daemon's one line; it says nothing more before the client has spoken."""
    while (lines := link.receive()) is not None:
        if lines:
            return lines[0]
    return None


def _refusal(answer: bytes) -> Stop:
    import json

    error = json.loads(answer)["error"]
    return Stop(str(error.get("message", "The Mooring daemon refused.")), int(error.get("exit_code", 1)))


def _json(workspace: str | None) -> bytes:
    if workspace is None:
        return b"null"
    if workspace.isascii() and workspace.replace("/", "").replace("-", "").replace("_", "").isalnum():
        return b'"%s"' % workspace.encode()
    import json

    return json.dumps(workspace).encode()


class Shim:
    """The two directions, and the link between them that may be replaced."""

    def __init__(self, place: Place, link: Link, ledger: Ledger) -> None:
        self._place = place
        self._state = threading.Condition()
        """Guards all below."""
        self._link: Link | None = link
        self._ended = False
        self._ledger = ledger

    def run(self) -> int:
        """Copy until stdin has ended and the answers are through. Raises Stop when the daemon stays away."""
        threading.Thread(target=self._up, daemon=True).start()
        link = self._link
        with suppress(BrokenPipeError):  # the client is gone
            while link is not None:
                self._down(link)
                link = self._again(link)
        return 0

    def _up(self) -> None:
        """stdin to the daemon. While there is none, stdin waits."""
        lines = Lines(sys.maxsize)  # the daemon judges what is too long
        while data := _read():
            for line in lines.feed(data):
                self._forward(line)
        with self._state:
            self._ended = True
            if self._link is not None:
                self._link.end_input()
            self._state.notify_all()
        time.sleep(FLUSH)
        os._exit(0)

    def _forward(self, line: bytes) -> None:
        with self._state:
            while (link := self._link) is None:
                self._state.wait()
            self._ledger.sent(line)
        with suppress(OSError):  # the reader notices too, and answers what was lost
            link.send(line)

    def _down(self, link: Link) -> None:
        """The daemon to stdout, until the daemon is gone. Raises BrokenPipeError when the client is."""
        while (lines := link.receive()) is not None:
            with self._state:
                shown = [line for line in lines if self._ledger.received(line)]
            _write(shown)

    def _again(self, gone: Link) -> Link | None:
        """Another link after the last one broke; None when stdin has ended too, so that nobody needs one."""
        with self._state:
            self._link = None
            lost = self._ledger.lost()
        gone.close()
        _write(lost)
        deadline = time.monotonic() + RECONNECT
        while not self._ended:
            time.sleep(PAUSE)
            link = self._place.attach()
            if link is not None and self._resume(link):
                return link
            if time.monotonic() > deadline:
                raise Stop(f"The Mooring daemon went away and was not back after {RECONNECT:g} s.", 3)
        return None

    def _resume(self, link: Link) -> bool:
        """Say hello to a new daemon in the client's words, then let the client go on."""
        with self._state:
            try:
                link.send(*self._ledger.replay())
            except OSError:
                link.close()
                return False
            self._link = link
            if self._ended:
                link.end_input()
            self._state.notify_all()
        return True


def _ledger() -> Ledger:
    from mooring.cli.ledger import Ledger

    return Ledger()


def _read() -> bytes:
    try:
        return os.read(0, _CHUNK)
    except ConnectionError:  # stdin is a socket, and who had its other end left something unread
        return b""


def _write(lines: list[bytes]) -> None:
    left = memoryview(b"".join([line + b"\n" for line in lines]))
    while left:
        left = left[os.write(1, left) :]


def _first_link(place: Place, spawn: bool) -> Link:
    """Start a daemon and attach to it. Raises Stop when that is not wanted or does not work."""
    if not spawn:
        raise Stop(
            f'The Mooring daemon is not running (nobody answers at {place.path}); start it with "mooring up".', 3
        )
    from mooring.cli.spawn import Daemon

    daemon = Daemon()
    deadline = time.monotonic() + ATTACH_TIMEOUT
    while time.monotonic() < deadline:
        time.sleep(PAUSE)
        if link := place.attach():
            return link
        if daemon.ended():
            deadline = min(deadline, time.monotonic() + GRACE)
    raise Stop(daemon.complaint(), 3)


def _options(argv: list[str], verb: str) -> tuple[str | None, bool]:
    """Workspace, and whether a daemon may be started. Raises Stop for anything that is not an option."""
    workspace: str | None = None
    spawn = True
    rest = list(argv)
    while rest:
        option = rest.pop(0)
        name, equals, value = option.partition("=")
        if option == "--no-spawn":
            spawn = False
        elif option in ("-w", "--workspace") and rest:
            workspace = rest.pop(0)
        elif name == "--workspace" and equals:
            workspace = value
        else:
            raise Stop(_USAGE.format(verb), 0 if option in ("-h", "--help") else 2)
    return workspace, spawn
