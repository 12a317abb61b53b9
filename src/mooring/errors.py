"""Every failure Mooring can name, as one tree. Pure.

    MooringError
      ConfigError         what a person wrote is wrong: file, line, key path (exit 2)
      Refused             not allowed, or not there: one text for both (403)
        InsufficientScope   a token that is good for too little (403)
      Unconfirmed         a person has to agree, and the client cannot ask one (403)
      Declined            a person was asked and did not agree (403)
      Unauthenticated     no key, or not a valid one (401)
      Unavailable         a server cannot serve now (503)
        StartFailed  PullFailed  Crashed  BackingOff  Busy  NoLauncher
      TimedOut            a step or a call took longer than its limit (504)
      UpstreamProtocol    a server broke the protocol (502)
      LaunchMissing       a program that launching needs is not installed (exit 4)
      StoreError          what must survive a restart could not be read or written
      DaemonAbsent        a verb needs the daemon and there is none (exit 3)
      AlreadyRunning      another daemon owns this home

The docstring of a class is its default message. Each edge (HTTP, control socket, CLI, ``tools/call``) translates
errors to its own form in one function. ``catalog.errors`` has what only the registry adds.
"""

from __future__ import annotations

from typing import Any, ClassVar


class MooringError(Exception):
    """Something went wrong."""

    kind: ClassVar[str] = "error"
    """Stable name in ``_meta["mooring/error"].kind`` and in ``--json`` output."""
    status: ClassVar[int] = 500
    """HTTP status, where a request is refused before its MCP message is accepted."""
    exit_code: ClassVar[int] = 1
    """Exit code of a CLI verb that ends with this error."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or type(self).__doc__ or "")
        self.details: dict[str, Any] = {key: value for key, value in details.items() if value is not None}

    @property
    def message(self) -> str:
        """The text for people; never holds a secret value."""
        return str(self)

    def facts(self) -> dict[str, Any]:
        """The machine-readable half: ``kind`` and whatever the raiser attached (JSON values only)."""
        return {"kind": self.kind, **self.details}

    def shown(self) -> dict[str, Any]:
        """Those of its facts that an MCP client may have."""
        facts = self.facts()
        return {key: facts[key] for key in ("kind", "cause", "server", "phase", "retry_at") if key in facts}


class ConfigError(MooringError):
    """The configuration is not valid."""

    kind = "config"
    status = 400
    exit_code = 2

    def __init__(self, message: str = "", *, file: str | None = None, line: int | None = None, path: str | None = None):
        super().__init__(message, file=file, line=line, path=path)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.details.get("file"), self.details.get("line")) if part)
        parts = (place, self.details.get("path"), super().__str__())
        return ": ".join(part for part in parts if part)


class Refused(MooringError):
    """Not available to this key."""

    kind = "refused"
    status = 403


class InsufficientScope(Refused):
    """The token is good for too little."""

    kind = "insufficient_scope"

    def __init__(self, scopes: tuple[str, ...]) -> None:
        """``scopes``: what a token needs."""
        super().__init__(scopes=scopes)
        self.scopes = scopes


class Unconfirmed(MooringError):
    """The call needs a person's agreement, and nobody can be asked."""

    kind = "unconfirmed"
    status = 403


class Declined(MooringError):
    """The user did not agree to the call; it was not made."""

    kind = "declined"
    status = 403


class Unauthenticated(MooringError):
    """A valid key is needed: send it as "Authorization: Bearer <key>"."""

    kind = "unauthenticated"
    status = 401


class Unavailable(MooringError):
    """The server cannot serve now."""

    kind = "unavailable"
    status = 503

    def __init__(
        self,
        message: str = "",
        *,
        server: str | None = None,
        phase: str | None = None,
        stderr: str | None = None,
        retry_at: float | None = None,
        **details: Any,
    ) -> None:
        """``phase`` is the step that failed (look-up, pull, build, start, initialize, discover, call, close);
        ``stderr`` the last lines the server wrote there; ``retry_at`` the epoch second of the next allowed start."""
        super().__init__(message, server=server, phase=phase, stderr=stderr, retry_at=retry_at, **details)


class StartFailed(Unavailable):
    """The server did not start."""

    kind = "start_failed"


class PullFailed(StartFailed):
    """The image or package of the server could not be had."""

    kind = "pull_failed"


class Crashed(Unavailable):
    """The server ended while it was needed."""

    kind = "crashed"


class BackingOff(Unavailable):
    """The server failed before and waits for its next try."""

    # ``cause`` in its facts is the kind of that failure.

    kind = "backing_off"


class Busy(Unavailable):
    """The server takes no more work now."""

    kind = "busy"


class NoLauncher(Unavailable):
    """Nothing here can start this kind of server."""

    kind = "no_launcher"


class TimedOut(MooringError):
    """It took longer than its limit."""

    kind = "timed_out"
    status = 504


class UpstreamProtocol(MooringError):
    """The server broke the protocol."""

    kind = "upstream_protocol"
    status = 502


class LaunchMissing(MooringError):
    """A program that is needed to start the server is not installed."""

    kind = "launch_missing"
    status = 503
    exit_code = 4


class StoreError(MooringError):
    """The store could not be read or written."""

    kind = "store"


class DaemonAbsent(MooringError):
    """The Mooring daemon is not running; start it with "mooring up"."""

    kind = "daemon_absent"
    exit_code = 3


class AlreadyRunning(MooringError):
    """Another Mooring daemon already uses this home."""

    kind = "already_running"
