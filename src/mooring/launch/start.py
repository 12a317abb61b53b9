"""Start the keeper. Imports next to nothing, so that the daemon can call it before its own imports and both cores work.

Called by ``cli.up`` first of all, and by ``launch.kept`` when there is no keeper. It never talks to the keeper.
"""

from __future__ import annotations

import _socket  # ``socket`` itself takes 10 ms to import
import os
import sys

from mooring.launch import keeper

Started = tuple[int, int]
"""A running keeper: its pid and the descriptor of the daemon's end of the socket."""

ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What an interpreter may need to find its own libraries; the keeper gets nothing else."""


def start_keeper() -> Started:
    """Start one, in about a millisecond.

    Hand the result to ``launch.kept.Keeper``. Raises OSError when it cannot be started.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    actions = [
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), keeper.CHANNEL),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    argv = (sys.executable, "-I", "-S", keeper.__file__)
    try:
        pid = os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return pid, ours.detach()
