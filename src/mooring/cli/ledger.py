"""What the shim must remember of a conversation to carry it over a restart of the daemon. Pure; standard library only.

It is shown every line that passes and keeps the client's handshake and the ids of requests without an answer. Lines of
ordinary size are decoded; of large ones only both ends are looked at, because ``id`` and ``method`` stand before or
after ``params`` and ``result``, never in them.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGE = 1 << 16
"""Bytes from which a line is not decoded as a whole."""
EDGE = 1 << 12
"""Bytes that are looked at on either end of a large line."""

_FLAT = rb'"(?:[^"\\]|\\.)*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.0-9eE]+|true|false|null)\s*'
_HEAD = re.compile(rb"\s*\{\s*((?:" + _FLAT + rb",\s*)*)(\"(?:params|result|error)\")?")
_TAIL = re.compile(rb",\s*(" + _FLAT + rb"(?:,\s*" + _FLAT + rb")*)\}\s*$")
_LOST = "The Mooring daemon went away while it worked on this request; whether it was carried out is not known."


class Ledger:
    """One conversation as seen from the client's side."""

    def __init__(self) -> None:
        self._initialize: bytes | None = None
        self._initialized: bytes | None = None
        self._initialize_id = ""
        self._open: dict[str, None] = {}
        self._replayed = ""

    def sent(self, line: bytes) -> None:
        """The client said ``line``."""
        message = envelope(line)
        method = message.get("method")
        if "id" in message and method is not None:
            identity = json.dumps(message["id"])
            self._open[identity] = None
            if method == "initialize":
                self._initialize, self._initialize_id = line, identity
        elif method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            params = message.get("params")
            if isinstance(params, dict):
                self._open.pop(json.dumps(params.get("requestId")), None)  # pyright: ignore[reportUnknownMemberType]

    def received(self, line: bytes) -> bool:
        """The daemon said ``line``. False when the client must not see it: it answers a replayed handshake."""
        message = envelope(line)
        if "id" not in message or "method" in message:
            return True
        identity = json.dumps(message["id"])
        self._open.pop(identity, None)
        if identity != self._replayed:
            return True
        self._replayed = ""
        return False

    def lost(self) -> list[bytes]:
        """The daemon is gone: an error for every request that it still owed an answer, except the handshake, which is
        replayed and answered then."""
        waiting = self._initialize_id in self._open
        identities = [identity for identity in self._open if identity != self._initialize_id]
        self._open = {self._initialize_id: None} if waiting else {}
        error = json.dumps({"code": -32603, "message": _LOST, "data": {"kind": "daemon_absent"}})
        return [f'{{"jsonrpc":"2.0","id":{identity},"error":{error}}}'.encode() for identity in identities]

    def replay(self) -> list[bytes]:
        """The lines to send to the next daemon before anything else."""
        if self._initialize is not None and self._initialize_id not in self._open:
            self._replayed = self._initialize_id
        return [line for line in (self._initialize, self._initialized) if line is not None]


def envelope(line: bytes) -> dict[str, Any]:
    """The members of a message that matter here; of a large one perhaps only ``id`` and ``method``; ``{}`` when it is
    no message."""
    if len(line) > LARGE:
        members = _edges(line)
        if members is not None:
            return members
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _edges(line: bytes) -> dict[str, Any] | None:
    """``id`` and ``method`` from the ends of a large message; None when they do not tell. A message with ``params`` is
    a request if it has an ``id`` too, one with ``result`` or ``error`` is an answer."""
    head = _HEAD.match(line, 0, EDGE)
    tail = _TAIL.search(line, max(len(line) - EDGE, 0))
    flat = (head[1] if head else b"") + (tail[1] if tail else b"")
    try:
        members: dict[str, Any] = json.loads(b"{" + flat.rstrip().rstrip(b",") + b"}")
    except ValueError:
        return None
    answers = head is not None and head[2] in (b'"result"', b'"error"')
    return members if "id" in members and ("method" in members or answers) else None
