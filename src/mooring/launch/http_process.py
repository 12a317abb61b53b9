"""Commands that speak HTTP: the port they are told, and what there is of such a process once it runs.

Used by ``launch.process``, which starts and ends it. It never looks whether anybody listens: the server is ready when
MCP answers, and that is for whoever speaks it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from mooring.config.plan_servers import Process
from mooring.launch.base import Url
from mooring.launch.kept import Kept
from mooring.launch.stderr import StderrTail

HOST = "localhost"
"""Not an address: some servers listen on 127.0.0.1, some on ::1."""
PLACEHOLDER = "{port}"


def free_port() -> int:
    """A TCP port of the loopback interface that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def with_port(launch: Process, port: int) -> Process:
    """``launch`` with the port wherever it says ``{port}``, and in ``PORT`` unless it sets that itself. Pure."""

    def fill(text: str) -> str:
        return text.replace(PLACEHOLDER, str(port))

    return msgspec.structs.replace(
        launch,
        argv=tuple(map(fill, launch.argv)),
        env={"PORT": str(port), **{name: fill(value) for name, value in launch.env.items()}},
        cwd=None if launch.cwd is None else fill(launch.cwd),
    )


def endpoint(launch: Process, port: int, socket: str | None) -> Url:
    """Where it is reached; ``socket``: the unix socket that leads there, if it is not on this machine's network."""
    return Url(f"http://{HOST}:{port}{launch.path}", transport=launch.transport, socket=socket)


class Output:
    """Stdout and stderr of a server that speaks on neither; both are taken over. Fulfils ``launch.base.Tail``."""

    def __init__(self, stdout: int, stderr: int) -> None:
        self._stdout = StderrTail(stdout)
        self._stderr = StderrTail(stderr)

    def text(self, lines: int = 20) -> str:
        """The last lines of stderr, where errors are; of stdout when there are none."""
        return self._stderr.text(lines) or self._stdout.text(lines)

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Call ``follower`` with each further line of both, until the returned function is called."""
        ends = (self._stdout.follow(follower), self._stderr.follow(follower))

        def end() -> None:
            for one in ends:
                one()

        return end

    def close(self) -> None:
        """Take what is still there and let go of both."""
        self._stdout.close()
        self._stderr.close()


class ListeningProcess:
    """A running process that speaks HTTP, or soon will. Fulfils ``launch.base.Launched``."""

    container: str | None = None

    def __init__(self, kept: Kept, output: Output, endpoint: Url) -> None:
        self.endpoint = endpoint
        self.pid: int | None = kept.pid
        self.stderr = output
        self.exited: asyncio.Future[int | None] = kept.exited
        self.signal = kept.signal
