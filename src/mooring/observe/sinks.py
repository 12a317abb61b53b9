"""The sinks that are always there: the log, and the metrics behind ``/metrics``.

``serve.app`` makes one of each and gives them to ``Events``. They read the one event vocabulary and nothing else; they
never block longer than a write to a log file, and never raise.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec

from mooring.nouns import InstanceRow, State
from mooring.observe.events import Event

LOG_LIMIT = 10 * 1024 * 1024
"""Bytes; a longer log file is put aside as ``<file>.1`` when the daemon starts."""

_LEVELS = {
    "call.finished": logging.DEBUG,
    "egress.denied": logging.WARNING,
    "instance.crashed": logging.WARNING,
    "instance.backoff": logging.WARNING,
    "config.rejected": logging.ERROR,
    "identity.failed": logging.WARNING,
    "key.refused": logging.WARNING,
    "limits.ignored": logging.WARNING,
    "pin.changed": logging.WARNING,
    "policy.denied": logging.WARNING,
}
"""All others are INFO."""
_log = logging.getLogger("mooring")


def open_log(path: str | os.PathLike[str] | None, redact: Callable[[str], str], level: int = logging.INFO) -> None:
    """Send the program's log to a file (mode 0600), or to stderr without one; a second call replaces the first. Every
    line of it passes ``redact``, those of libraries and tracebacks too. Raises OSError."""
    handler = logging.StreamHandler() if path is None else _file_handler(os.fspath(path))
    handler.setFormatter(_Line(redact))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, _Line):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    _log.setLevel(level)


def log_sink(event: Event) -> None:
    """Write an event as one line, such as ``instance.ready server=time instance=time seconds=0.21``."""
    level = _LEVELS.get(event.name, logging.INFO)
    if _log.isEnabledFor(level):
        _log.log(level, "%s", describe(event))


def describe(event: Event) -> str:
    """The event's name and whatever it carries, on one line whatever the values hold."""
    instance = event.instance if event.instance != event.server else ""
    common = (("workspace", event.workspace), ("server", event.server), ("instance", instance), ("trace", event.trace))
    data = ((name, value) for name, value in event.data.items() if name != "variant")  # for programs, not for people
    members = (*common, *(_relative(event.ts, name, value) for name, value in data))
    return " ".join((event.name, *(f"{name}={_plain(value)}" for name, value in members if value not in ("", None))))


def _relative(now: float, name: str, value: Any) -> tuple[str, Any]:
    """A time of a next try as the seconds until then, which is what its reader wants to know."""
    if name == "retry_at" and isinstance(value, float):
        return "retry_in", f"{max(0.0, value - now):.1f}s"
    return name, value


def _plain(value: Any) -> str:
    """A value that stays one word on one line; what does not comes quoted."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and not any(mark in text for mark in ' "=') else repr(text)


def _file_handler(path: str) -> logging.FileHandler:
    """Make room, and take care that nobody else may read the file."""
    try:
        if os.stat(path).st_size > LOG_LIMIT:
            os.replace(path, path + ".1")
    except FileNotFoundError:
        pass
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
    os.chmod(path, 0o600)
    return logging.FileHandler(path, "a", "utf-8", errors="backslashreplace")


class _Line(logging.Formatter):
    """``2026-11-21 08:07:00,123 INFO mooring: text``, redacted."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("ok", "error", "failed", "cancelled")
"""``data["outcome"]`` of ``call.finished``: answered; answered with an error; a failure of the server or of Mooring;
the caller gave up."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the call duration histogram, in seconds."""
MAX_SERIES = 4096
"""Label sets of one metric; further ones are counted together as "other"."""
MAX_TOOLS = 200
"""Tools of one server with a series of their own; further ones are counted together as "other"."""
METHODS = frozenset(
    (
        "prompts/get",
        "completion/complete",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "tasks/get",
        "tasks/result",
        "tasks/update",
        "tasks/cancel",
    )
)
"""Requests, besides ``tools/call``, with series of their own; whatever else a client asks is "other"."""
_DENYING = frozenset(("declined", "unconfirmed", "refused", "busy"))
"""Kinds of failures that are decisions of Mooring; ``refused`` is a definition that changed before the first call."""

QUEUE = "queue"
"""The reason of an instance that is to start once others have."""
Labels = tuple[str, ...]
Durations = dict[str, list[float]]
"""By server: a count for each bucket and one above, then the sum of seconds."""


class Now(msgspec.Struct, frozen=True):
    """What is looked up when somebody scrapes."""

    instances: tuple[InstanceRow, ...] = ()
    waiting: int = 0
    """Requests that wait for a start."""
    parked: int = 0
    """Calls that wait for their user's answer."""
    audit_lost: int = 0
    audit_waiting: int = 0


class _Calls:
    """Finished calls of one workspace, server, tool and outcome."""

    __slots__ = ("durations", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = 0
        """Bytes."""
        self.durations = _nothing()


class Metrics:
    """A sink that counts, and ``render`` for the scraper. A call costs about a microsecond. Labels are names from the
    configuration, fixed words and, up to a bound, names of tools; never a session, a key or a URI."""

    def __init__(self) -> None:
        self._mounts: set[tuple[str, str]] = set()
        """Workspaces and their servers."""
        self._calls: dict[Labels, _Calls] = {}
        """By workspace, server, tool and outcome; whatever is told of calls is summed up from these."""
        self._named: dict[str, set[str]] = {}
        """By server: the tools that have series of their own."""
        self._requests: dict[Labels, int] = {}
        self._starting: Durations = {}
        self._starts: dict[Labels, int] = {}
        self._crashes: dict[Labels, int] = {}
        self._denied: dict[Labels, int] = {}
        self._asked: dict[Labels, int] = {}
        self._pins: dict[Labels, int] = {}
        self._sessions = 0
        self._handlers: dict[str, Callable[[Event], None]] = {
            "call.finished": self._call_finished,
            "instance.starting": lambda event: _count(self._starts, (event.server,)),
            "instance.ready": lambda event: _observe(self._starting, event.server, event.data.get("seconds", 0.0)),
            "instance.crashed": lambda event: _count(self._crashes, (event.server,)),
            "session.opened": lambda event: self._session(1),
            "session.closed": lambda event: self._session(-1),
            "policy.denied": lambda event: _count(self._denied, (event.workspace, event.data.get("ground", "rule"))),
            "dialogue.answered": self._answered,
            "dialogue.expired": lambda event: _count(self._asked, (event.workspace, "expired")),
            "pin.changed": lambda event: _count(self._pins, (event.server,)),
        }

    def __call__(self, event: Event) -> None:
        """Count the event, if it is one that counts."""
        handler = self._handlers.get(event.name)
        if handler:
            handler(event)

    def declare(self, mounts: Iterable[tuple[str, str]]) -> None:
        """Show these (workspace, server) pairs as zero from the start, not as nothing until their first call."""
        self._mounts = set(mounts)
        for _, server in self._mounts:
            _count(self._starts, (server,), 0)
            _count(self._crashes, (server,), 0)

    def render(self, now: Now) -> str:
        """All metrics in the Prometheus text format 0.0.4."""
        states = dict.fromkeys(((state,) for state in get_args(State)), 0)
        for row in now.instances:
            states[(row.state,)] += 1
        queued = sum(row.state == "starting" and row.reason == QUEUE for row in now.instances)
        leases = sum(row.leases for row in now.instances)
        calls, tools, sizes, durations = self._summed()
        lines = [
            *_family("calls_total", "counter", "Calls answered.", ("workspace", "server", "outcome"), calls),
            *_family("tool_calls_total", "counter", "Calls by tool.", ("server", "tool", "outcome"), tools),
            *_family("requests_total", "counter", "Other requests.", ("server", "method", "outcome"), self._requests),
            *_histogram("call_duration_seconds", "How long calls took, from lease to answer.", durations),
            *_histogram("instance_start_seconds", "From the start of a server until it is ready.", self._starting),
            *_family("leases", "gauge", "What pins instances: calls under way, watched resources.", (), {(): leases}),
            *_family("calls_waiting", "gauge", "Requests that wait for a start.", (), {(): now.waiting}),
            *_family("calls_parked", "gauge", "Calls that wait for their user's answer.", (), {(): now.parked}),
            *_family("starts_queued", "gauge", "Starts that wait for others, or for room.", (), {(): queued}),
            *_family("instances", "gauge", "Instances by state.", ("state",), states),
            *_family("instance_starts_total", "counter", "Starts begun.", ("server",), self._starts),
            *_family("instance_crashes_total", "counter", "Instances that ended unasked.", ("server",), self._crashes),
            *_family("denied_total", "counter", "Requests refused.", ("workspace", "reason"), self._denied),
            *_family("call_bytes_total", "counter", "Bytes of calls.", ("server", "direction"), sizes),
            *_family("confirmations_total", "counter", "What people answered.", ("workspace", "answer"), self._asked),
            *_family("pin_changes_total", "counter", "Tools that changed.", ("server",), self._pins),
            *_family("audit_lost_total", "counter", "Records that could not be kept.", (), {(): now.audit_lost}),
            *_family("audit_waiting", "gauge", "Records not on disk yet.", (), {(): now.audit_waiting}),
            *_family("sessions", "gauge", "Open client sessions.", (), {(): self._sessions}),
        ]
        return "\n".join(lines) + "\n"

    def _call_finished(self, event: Event) -> None:
        data, server = event.data, event.server
        outcome, method = data.get("outcome", "ok"), data.get("method", "tools/call")
        if data.get("error") in _DENYING:
            _count(self._denied, (event.workspace, data["error"]))
        if method != "tools/call":
            _count(self._requests, (server, method if method in METHODS else "other", outcome))
            return
        place = (event.workspace, server, data.get("tool", ""), outcome)
        calls = self._calls.get(place) or self._series(*place)
        seconds = data.get("seconds", 0.0)
        calls.sent += data.get("sent", 0)
        calls.received += data.get("received", 0)
        calls.durations[bisect_left(BUCKETS, seconds)] += 1
        calls.durations[-1] += seconds

    def _series(self, workspace: str, server: str, tool: str, outcome: str) -> _Calls:
        """Where calls of a tool are counted: new, or together with others when there are too many."""
        named = self._named.setdefault(server, set())
        if tool not in named and (len(named) >= MAX_TOOLS or len(self._calls) >= MAX_SERIES // 2):
            tool = "other"
        named.add(tool)
        place = (workspace, server, tool, outcome)
        if place not in self._calls and len(self._calls) >= MAX_SERIES:
            place = ("other", "other", "other", outcome)
        return self._calls.setdefault(place, _Calls())

    def _summed(self) -> tuple[dict[Labels, int], dict[Labels, int], dict[Labels, int], Durations]:
        """The calls by workspace, server and outcome; by server, tool and outcome; their bytes by server and
        direction; how long they took."""
        totals = {(*mount, outcome): 0 for mount in self._mounts for outcome in OUTCOMES}
        tools: dict[Labels, int] = {}
        sizes: dict[Labels, int] = {}
        durations: Durations = {}
        for (workspace, server, tool, outcome), calls in self._calls.items():
            count = int(sum(calls.durations[:-1]))
            _add(totals, (workspace, server, outcome), count)
            _add(tools, (server, tool, outcome), count)
            _add(sizes, (server, "sent"), calls.sent)
            _add(sizes, (server, "received"), calls.received)
            former = durations.get(server, _nothing())
            durations[server] = [one + other for one, other in zip(former, calls.durations, strict=True)]
        return totals, tools, sizes, durations

    def _answered(self, event: Event) -> None:
        action = event.data.get("action")
        answer = action if action in ("accept", "decline", "cancel") else "other"
        _count(self._asked, (event.workspace, answer))

    def _session(self, change: int) -> None:
        self._sessions += change


def _nothing() -> list[float]:
    return [0.0] * (len(BUCKETS) + 2)


def _add(series: dict[Labels, int], labels: Labels, count: int) -> None:
    series[labels] = series.get(labels, 0) + count


def _observe(durations: Durations, server: str, seconds: float) -> None:
    """Add to the histogram of one server."""
    found = durations.get(server)
    if found is None:
        server = server if len(durations) < MAX_SERIES else "other"
        found = durations.setdefault(server, _nothing())
    found[bisect_left(BUCKETS, seconds)] += 1
    found[-1] += seconds


def _histogram(name: str, meaning: str, servers: Durations) -> Iterable[str]:
    """One histogram with a series for each server."""
    yield f"# HELP mooring_{name} {meaning}"
    yield f"# TYPE mooring_{name} histogram"
    for server, durations in sorted(servers.items()):
        label, total = f'server="{_escaped(server)}"', 0
        for bound, count in zip((*BUCKETS, "+Inf"), durations, strict=False):
            total += int(count)
            yield f'mooring_{name}_bucket{{{label},le="{bound}"}} {total}'
        yield f"mooring_{name}_sum{{{label}}} {durations[-1]:.6f}"
        yield f"mooring_{name}_count{{{label}}} {total}"


def _count(series: dict[Labels, int], labels: Labels, by: int = 1) -> None:
    """Add to one series of a metric, or to "other" when there are too many."""
    if labels not in series and len(series) >= MAX_SERIES:
        labels = ("other",) * len(labels)
    series[labels] = series.get(labels, 0) + by


def _family(name: str, kind: str, meaning: str, labels: Labels, series: dict[Labels, int]) -> Iterable[str]:
    """One metric with its series, sorted."""
    yield f"# HELP mooring_{name} {meaning}"
    yield f"# TYPE mooring_{name} {kind}"
    for values, count in sorted(series.items()):
        pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
        yield f"mooring_{name}{{{pairs}}} {count}" if pairs else f"mooring_{name} {count}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
