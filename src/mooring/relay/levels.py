"""Log levels, told to legacy servers that belong to one caller.

A legacy server has one level for a whole conversation, so a shared one is told none: it says what it likes, and
``relay.exchange`` passes on what each caller asked for. A server that speaks with one caller alone is told the lowest
level which that caller asked for so far. Used by ``relay.forward``.

Source: MCP 2025-11-25 "Logging"; 2026-07-28 for the level of a single request.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from mooring.errors import MooringError
from mooring.instances.lease import Lease
from mooring.wire import eras, jsonrpc
from mooring.wire.connection import Connection
from mooring.wire.session import Request

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of log messages, the least severe first."""
PATIENCE = 5.0
"""Seconds that a server has to take note."""


def wanted(request: Request) -> str | None:
    """The level that a caller asks for: a legacy one for its session, a modern one for this request. Called for each
    request, hence the short way out."""
    if request.era == "legacy":
        return request.session.log_level
    if b"logLevel" not in request.params:
        return None
    meta = jsonrpc.fields(request.params).get("_meta")
    return jsonrpc.string(jsonrpc.fields(meta).get(eras.LOG_LEVEL_KEY))


def reached(wanted: str, params: bytes) -> bool:
    """Whether a log message with these ``params`` is as severe as was asked for. Pure."""
    level = jsonrpc.string(jsonrpc.fields(params).get("level"))
    return wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)


class Levels:
    """What each conversation was told."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    async def tell(self, level: str, lease: Lease) -> None:
        """Before a request goes out: let its server know, if that is new. Never raises for what the server says."""
        if level not in LEVELS or not lease.key.scope.startswith("s:"):
            return
        connection, index = lease.connection, LEVELS.index(level)
        facts = connection.facts
        if facts.era == "modern" or "logging" not in jsonrpc.fields(facts.capabilities):
            return
        if index >= self._told.get(connection, len(LEVELS)):
            return
        self._told[connection] = index
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.request("logging/setLevel", jsonrpc.text({"level": level}))
        except (MooringError, TimeoutError):
            self._told.pop(connection, None)
