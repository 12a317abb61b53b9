"""A launched server whose last words may be shown: secret values are taken out of its stderr, wherever it goes next."""

from __future__ import annotations

from collections.abc import Callable

from mooring.launch.base import Launched, Settling, Tail

Redact = Callable[[str], str]


class RedactedTail:
    """Implements ``launch.base.Tail`` over another one."""

    def __init__(self, tail: Tail, redact: Redact) -> None:
        self._tail = tail
        self._redact = redact

    def text(self, lines: int = 20) -> str:
        return self._redact(self._tail.text(lines))

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        return self._tail.follow(lambda line: follower(self._redact(line)))


class Redacted:
    """Implements ``launch.base.Launched`` and ``Settling`` over another one."""

    def __init__(self, launched: Launched, redact: Redact) -> None:
        self.endpoint = launched.endpoint
        self.pid = launched.pid
        self.container = launched.container
        self.stderr = RedactedTail(launched.stderr, redact)
        self.exited = launched.exited
        self.signal = launched.signal
        self._launched = launched

    def answered(self) -> None:
        """See ``launch.base.Settling``."""
        if isinstance(self._launched, Settling):
            self._launched.answered()
