"""Who wants to hear that a list changed: open sessions, and modern ``subscriptions/listen`` streams.

Called by the parts of the relay and by ``serve`` when a listing or the plan changed. Neither a session nor a stream
pins an instance. Source: MCP 2025-11-25 "List changed notification"; 2026-07-28 "Subscriptions".
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Protocol

from mooring.relay.listings import Kind
from mooring.wire import eras, jsonrpc
from mooring.wire.session import Request, Session

DEBOUNCE = 0.2
"""Seconds between the first change and its notification, so that a burst is told once."""


class Target(Protocol):
    """Someone who can be told something; hashable by identity."""

    @property
    def workspace(self) -> str: ...

    def tell(self, method: str, params: bytes | None) -> None: ...


class Listen:
    """A modern listen stream: hears the list kinds it asked for, each message tagged with the id of its request."""

    def __init__(self, request: Request, kinds: frozenset[Kind]) -> None:
        self.kinds = kinds
        self.workspace = request.session.principal.workspace
        self._request = request
        self._early: dict[tuple[str, bytes | None], None] | None = {}
        """What happened before the acknowledgement; None after it."""

    def acknowledge(self, params: bytes) -> None:
        """The first message of the stream; what happened while it was prepared follows."""
        early, self._early = self._early or (), None
        self.tell("notifications/subscriptions/acknowledged", params)
        for method, told in early:
            self.tell(method, told)

    def tell(self, method: str, params: bytes | None) -> None:
        if self._early is None:
            self._request.heard(method, tagged(params or jsonrpc.EMPTY, self._request.raw_id))
        else:
            self._early[method, params] = None


class SessionTarget:
    """A legacy session: hears everything, as it is."""

    def __init__(self, session: Session) -> None:
        self.workspace = session.principal.workspace
        self._session = session

    def tell(self, method: str, params: bytes | None) -> None:
        self._session.send(method, params)


def tagged(params: bytes, raw_id: bytes) -> bytes:
    """``params`` with the subscription id in its ``_meta``. Pure."""
    parts = jsonrpc.members(params)
    meta = jsonrpc.members(parts.get("_meta", jsonrpc.EMPTY))
    return jsonrpc.build({**parts, "_meta": jsonrpc.build({**meta, eras.SUBSCRIPTION_ID_KEY: raw_id})})


class Subscriptions:
    """Everyone who is told about changed lists, by workspace."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[Session, SessionTarget]] = {}
        self._listens: dict[str, set[Listen]] = {}
        self._pending: dict[str, set[Kind]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, session: Session) -> SessionTarget:
        """A session hears list changes of its workspace from now until it ends."""
        workspace = session.principal.workspace
        target = self._sessions.setdefault(workspace, {})[session] = SessionTarget(session)

        def closed() -> None:
            room = self._sessions.get(workspace, {})
            room.pop(session, None)
            if not room:
                self._sessions.pop(workspace, None)

        session.on_close.append(closed)
        return target

    def target(self, session: Session) -> SessionTarget | None:
        """The one target of a session; None when it has ended."""
        return self._sessions.get(session.principal.workspace, {}).get(session)

    @contextmanager
    def listening(self, listen: Listen) -> Generator[None, None, None]:
        """A listen stream lasts as long as the block."""
        room = self._listens.setdefault(listen.workspace, set())
        room.add(listen)
        try:
            yield
        finally:
            room.discard(listen)
            if not room and self._listens.get(listen.workspace) is room:
                del self._listens[listen.workspace]

    def changed(self, workspaces: Iterable[str], kinds: Iterable[Kind]) -> None:
        """Lists of these workspaces changed; everyone hears it once, ``DEBOUNCE`` seconds later."""
        kinds = frozenset(kinds)
        for workspace in workspaces if kinds else ():
            self._pending.setdefault(workspace, set()).update(kinds)
        if self._pending and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DEBOUNCE, self._flush)

    def close(self) -> None:
        """Nothing is told any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        for workspace, kinds in pending.items():
            for kind in sorted(kinds):
                self._tell(workspace, kind)

    def _tell(self, workspace: str, kind: Kind) -> None:
        method = f"notifications/{kind}/list_changed"
        for target in tuple(self._sessions.get(workspace, {}).values()):
            target.tell(method, None)
        for listen in tuple(self._listens.get(workspace, ())):
            if kind in listen.kinds:
                listen.tell(method, None)
