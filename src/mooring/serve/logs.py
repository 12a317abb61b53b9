"""What servers wrote to stderr, by server: the memory behind ``mooring logs``. Fed by the pool's instances."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

KEPT = 1000
"""Lines kept of each server, over all its instances."""


class Logs:
    """The last lines of each server. ``redact`` takes secret values out before anything is kept."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._lines: dict[str, deque[str]] = {}
        self._followers: dict[str, list[Callable[[str], None]]] = {}

    def add(self, server: str, line: str) -> None:
        """A server wrote a line."""
        line = self._redact(line)
        self._lines.setdefault(server, deque(maxlen=KEPT)).append(line)
        for follower in tuple(self._followers.get(server, ())):
            follower(line)

    def forget_others(self, servers: Collection[str]) -> None:
        """Keep the lines of these servers: nobody can ask for those of others."""
        self._lines = {server: lines for server, lines in self._lines.items() if server in servers}
        self._followers = {server: followers for server, followers in self._followers.items() if followers}

    def last(self, server: str, lines: int) -> list[str]:
        """The last lines of a server, oldest first."""
        kept = self._lines.get(server, ())
        return list(kept)[-lines:] if lines > 0 else []

    @contextmanager
    def following(self, server: str, follower: Callable[[str], None]) -> Generator[None, None, None]:
        """``follower`` gets every new line while the block lasts."""
        followers = self._followers.setdefault(server, [])
        followers.append(follower)
        try:
            yield
        finally:
            followers.remove(follower)
