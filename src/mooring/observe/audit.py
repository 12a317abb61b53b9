"""The audit file: one line of JSON for each request that goes to a server, each refusal, and each change of who may do
what.

A sink of ``observe.events``. ``__call__`` only appends to a queue with a bound; one thread redacts, writes, syncs and
rotates, about ten times a second at most, so that no call waits for a disk. What was taken before an orderly end is on
disk; ``kill -9`` may cost the last ``LINGER`` seconds.

A disk that is full stops nobody: records wait in memory up to ``WAITING``, writing is tried again every ``RETRY``
seconds, and what did not fit is counted and said in a line of its own (``audit.lost``) once there is room. The log says
when it begins and ends. A line is written whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

import msgspec

from mooring.config.plan import Audit
from mooring.nouns import AuditRow
from mooring.observe.events import Event
from mooring.wire import jsonrpc

LINGER = 0.1
"""Seconds in which records are gathered before they are written together."""
RETRY = 1.0
"""Seconds between two tries when the disk takes nothing."""
WAITING = 10_000
"""Records that may wait to be written."""
CLOSE_LIMIT = 5.0
"""Seconds that leaving the block waits for the thread."""
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Between JSON's tokens, where alone they can be, these mean the same."""
_IGNORED = ("instance.", "session.", "list.", "limits.")
_log = logging.getLogger("mooring")


def record(event: Event) -> AuditRow | None:
    """What the audit says of an event; None for what it does not keep. Pure."""
    if event.name.startswith(_IGNORED):
        return None
    data = event.data
    if event.name not in ("call.finished", "policy.denied"):
        return AuditRow(
            event.ts,
            event.name,
            workspace=event.workspace,
            server=event.server,
            instance=event.instance,
            trace=event.trace,
            data=data,
        )
    denied = event.name == "policy.denied"
    return AuditRow(
        event.ts,
        event.name,
        workspace=event.workspace,
        server=event.server,
        instance=event.instance,
        trace=event.trace,
        method=data.get("method", ""),
        key=data.get("key", ""),
        tool=data.get("tool", ""),
        target=data.get("target", ""),
        decision="denied" if denied else data.get("decision", "allowed"),
        reason=data.get("reason", ""),
        outcome="" if denied else data.get("outcome", ""),
        error=data.get("error", ""),
        seconds=data.get("seconds", 0.0),
        sent=data.get("sent", 0),
        received=data.get("received", 0),
        arguments=data.get("arguments"),
    )


class AuditLog:
    """An async context manager; within its block it is a sink."""

    def __init__(self, file: str, settings: Audit, redact: Callable[[str], str]) -> None:
        """``settings`` may be replaced at any time. ``redact`` is called in the thread."""
        self.settings = settings
        self.lost = 0
        """Records that nobody will ever read."""
        self._file = file
        self._redact = redact
        self._queue: deque[Event] = deque()
        self._awake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._descriptor = -1
        self._size = 0
        self._untold = 0
        self._failing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._awake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_LIMIT)

    @property
    def waiting(self) -> int:
        """Records that are not on disk yet."""
        return len(self._queue)

    def __call__(self, event: Event) -> None:
        """Take an event; never blocks."""
        if not self.settings.enabled or event.name.startswith(_IGNORED):
            return
        if len(self._queue) >= WAITING:
            self.lost += 1
            self._untold += 1
            return
        self._queue.append(event)
        if not self._awake.is_set():
            self._wake()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mooring-audit", daemon=True)
            self._thread.start()
        self._awake.set()

    def _work(self) -> None:
        while True:
            self._awake.wait()
            if not self._closing:
                time.sleep(LINGER)
            self._awake.clear()
            if self._closing:
                self._awake.set()
            written = self._write()
            if self._closing:
                break
            if not written:
                time.sleep(RETRY)
                self._awake.set()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _write(self) -> bool:
        """Write what waits; whether the disk took it."""
        count, untold = len(self._queue), self._untold
        if not count and not untold:
            return True
        events = [self._queue[number] for number in range(count)]
        lines = [line for event in events if (line := self._line(event))]
        if untold:
            lines.append(_encode(AuditRow(time.time(), "audit.lost", data={"records": untold})))
        try:
            self._append(b"".join(lines))
        except OSError as error:
            if not self._failing:
                _log.error("the audit file %s cannot be written: %s; records wait in memory", self._file, error)
            self._failing = True
            return False
        for _ in range(count):
            self._queue.popleft()
        self._untold -= untold
        if self._failing:
            _log.warning("the audit file is written again; records lost meanwhile: %d", untold)
        self._failing = False
        return True

    def _line(self, event: Event) -> bytes:
        row = record(event)
        if row is None:
            return b""
        line = _encode(row)
        if row.arguments is None and not row.data and not row.reason and not row.target:
            return line  # names and numbers only
        return self._redact(line.decode()).encode()

    def _append(self, data: bytes) -> None:
        """Raises OSError; the file is as before then."""
        if self._descriptor >= 0 and not os.fstat(self._descriptor).st_nlink:  # somebody removed the file
            os.close(self._descriptor)
            self._descriptor = -1
        if self._descriptor < 0:
            self._open()
        if self._size and self._size + len(data) > self.settings.max_bytes:
            self._rotate()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        """Raises OSError; nothing is open then."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the machine stopped in a line
                size += os.write(descriptor, b"\n")
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor, self._size = descriptor, size

    def _rotate(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        for number in range(self.settings.files - 1, 0, -1):
            older = self._file if number == 1 else f"{self._file}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._file}.{number}")
        if self.settings.files == 1:
            os.unlink(self._file)
        self._open()


def _encode(row: AuditRow) -> bytes:
    try:
        # Arguments stand as they were sent, with line ends between them perhaps, after which anything could stand.
        return msgspec.json.encode(row, enc_hook=str).translate(_ONE_LINE) + b"\n"
    except UnicodeEncodeError:  # half a character, such as in the name of a file that is not UTF-8
        import json

        plain = msgspec.to_builtins(row, enc_hook=_plain)
        return json.dumps(plain, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _plain(value: Any) -> Any:
    return jsonrpc.value(value) if isinstance(value, msgspec.Raw) else str(value)
