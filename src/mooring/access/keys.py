"""Access keys: made, changed and looked up.

``facade`` makes, lists, rotates and revokes them; ``access.login`` asks whose a token is, on every request. The store
is written first, then memory; a look-up reads memory only. A token is shown once, by whoever made it, and exists
afterwards only as its SHA-256 (256 random bits need no salt and no slow hash). Never knows which workspaces exist.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import msgspec

from mooring.errors import ConfigError, Unauthenticated
from mooring.nouns import KeyRow, NewKey, Principal, Scope
from mooring.observe.events import Event, Events
from mooring.store.base import Store

PREFIX = "mrg_"
"""How every token begins, so that people and secret scanners know one when they see it."""
SHOWN_AFTER = 90 * 86400.0
"""Seconds for which ``rows`` still lists a revoked key."""
ALL_SCOPES: tuple[Scope, ...] = ("call", "list")


class _Known(msgspec.Struct, frozen=True):
    """A living key in memory."""

    hash: bytes
    row: KeyRow
    principal: Principal


class Keys:
    """All keys of this home. Load once, before the first look-up."""

    def __init__(self, store: Store, events: Events, clock: Callable[[], float] = time.time) -> None:
        self.on_revoked: list[Callable[[str], None]] = []
        """Called with the key id when its token stops being valid (revoked, rotated, replaced, expired): end its
        sessions."""
        self.changed = asyncio.Event()
        """Set whenever a key may have come that ends by itself; ``access.expiry`` clears it."""
        self.events = events
        self._store = store
        self._clock = clock
        self._rows: dict[str, KeyRow] = {}
        self._revoked_at: dict[str, float] = {}
        self._ended: set[str] = set()
        """Expired keys whose sessions were ended."""
        self._known: dict[bytes, _Known] = {}
        """By the first bytes of the hash; the rest is compared in constant time."""
        # Changes wait for each other: each decides on what the one before has left in memory.
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Read all keys; blocks, for boot. Raises StoreError."""
        for row in self._store.rows("keys", revoked_since=self._clock() - SHOWN_AFTER):
            key_id, hashed, workspace, name, created_at, expires_at, scopes, variant, tools, revoked_at = row
            self._remember(
                hashed,
                KeyRow(
                    id=key_id,
                    workspace=workspace,
                    name=name,
                    created_at=created_at,
                    expires_at=expires_at,
                    scopes=msgspec.json.decode(scopes, type=tuple[Scope, ...]),
                    variant=variant,
                    tools=msgspec.json.decode(tools, type=tuple[str, ...]),
                    revoked=revoked_at is not None,
                ),
            )
            if revoked_at is not None:
                self._revoked_at[key_id] = revoked_at

    def principal(self, token: str) -> Principal:
        """Who holds this token. Raises Unauthenticated; only the holder of a real key learns that it has expired."""
        hashed, same = _hash(token), _hashing()[1]
        known = self._known.get(hashed[:8])
        if known is None or not same(known.hash, hashed):
            raise Unauthenticated
        if self._expired(known.row):
            raise Unauthenticated(f"The key {known.row.id} has expired; make a new one with: mooring key create.")
        return known.principal

    def holder(self, key_id: str) -> Principal:
        """Who holds the key of this id. Raises ConfigError when there is none or it has ended."""
        row = self._find(key_id)
        if row.revoked or self._expired(row):
            raise ConfigError(f"The key {key_id} has ended; it opens nothing.")
        return _principal(row)

    def rows(self, workspace: str | None = None, workspaces: Collection[str] | None = None) -> list[KeyRow]:
        """The keys of one workspace or of all, oldest first. Given the ``workspaces`` that exist, keys of others are
        marked inert."""
        for key_id in [id for id, at in self._revoked_at.items() if at <= self._clock() - SHOWN_AFTER]:
            del self._revoked_at[key_id], self._rows[key_id]
            self._ended.discard(key_id)
        return [
            msgspec.structs.replace(row, inert=self._inert(row, workspaces))
            for row in sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))
            if workspace is None or row.workspace == workspace
        ]

    async def create(
        self,
        workspace: str,
        name: str = "",
        expires_at: float | None = None,
        scopes: Collection[Scope] = ALL_SCOPES,
        variant: str | None = None,
        tools: Collection[str] = (),
        *,
        replace: bool = False,
    ) -> NewKey:
        """Make a key. ``expires_at``: epoch seconds. With ``replace`` a living key of that name in the workspace ends
        in the same step. Raises ConfigError when the name is taken or the key could never be used, StoreError."""
        async with self._changing:
            now = self._clock()
            holder = self._holder(workspace, name)
            if holder and not replace and not self._expired(holder):
                raise ConfigError(
                    f'The workspace "{workspace}" has a key named "{name}" already ({holder.id}): choose another name, '
                    f"or run: mooring key rotate {holder.id}"
                )
            if expires_at is not None and expires_at <= now:
                raise ConfigError("The key would have expired already; choose a later time.")
            if not scopes or not set(scopes) <= set(ALL_SCOPES):
                raise ConfigError('The scopes of a key are "call", "list" or both.')
            token = _new_token()
            row = KeyRow(
                id=_new_id(),
                workspace=workspace,
                name=name,
                created_at=now,
                expires_at=expires_at,
                scopes=tuple(scopes),
                variant=variant,
                tools=tuple(tools),
            )

            def created() -> None:
                if holder:
                    self._end(holder)
                self._remember(_hash(token), row)
                self._emit("key.created", row, **_limits(row))

            await self._store.run(
                "create_key",
                created,
                replaces=holder.id if holder else "",
                id=row.id,
                hash=_hash(token),
                workspace=workspace,
                name=name,
                created_at=now,
                expires_at=expires_at,
                scopes=_json(row.scopes),
                variant=variant,
                tools=_json(row.tools),
            )
            return NewKey(key=token, id=row.id, workspace=workspace)

    def lend(self, workspace: str, name: str, *, ours: bool = False) -> NewKey:
        """Make a key that is held in memory only, for as long as something runs; ``take_back`` ends it. ``ours``: see
        ``Principal``."""
        token = _new_token()
        row = KeyRow(id=_new_id(), workspace=workspace, name=name, created_at=self._clock())
        self._remember(_hash(token), row, ours)
        self._emit("key.created", row)
        return NewKey(key=token, id=row.id, workspace=workspace)

    def take_back(self, key_id: str) -> None:
        """End a key that was lent; nothing remembers it."""
        row = self._rows.get(key_id)
        if row is not None:
            self._end(row)
            del self._rows[key_id], self._revoked_at[key_id]

    async def rotate(self, key_id: str) -> NewKey:
        """Give the key a new token; the old one stops at once, id and limits stay. Raises ConfigError when there is no
        such key or it has ended, StoreError."""
        async with self._changing:
            row = self._find(key_id)
            if row.revoked or self._expired(row):
                raise ConfigError(f"The key {key_id} has ended; make a new one with: mooring key create.")
            token = _new_token()

            def rotated() -> None:
                self._forget(key_id)
                self._remember(_hash(token), row)
                self._emit("key.rotated", row)

            await self._store.run("rotate_key", rotated, id=key_id, hash=_hash(token))
            return NewKey(key=token, id=key_id, workspace=row.workspace)

    async def revoke(self, key_id: str) -> None:
        """End the key at once; again is no error. Raises ConfigError when there is no such key, StoreError."""
        async with self._changing:
            row = self._find(key_id)
            if not row.revoked:
                await self._store.run("revoke_key", lambda: self._end(row), id=key_id, now=self._clock())

    def expire(self) -> float | None:
        """End what keys that have expired since the last time have opened; the seconds until the next one does, None
        when none will. Their rows stay, marked."""
        now = self._clock()
        ends = [(known.row.expires_at, known.row) for known in self._known.values() if known.row.expires_at is not None]
        for at, row in ends:
            if at <= now and row.id not in self._ended:
                self._ended.add(row.id)
                self._close(row.id)
                self._emit("key.expired", row)
        return min((at - now for at, _ in ends if at > now), default=None)

    def _remember(self, hashed: bytes, row: KeyRow, ours: bool = False) -> None:
        self._rows[row.id] = row
        self.changed.set()
        if not row.revoked:
            self._known[hashed[:8]] = _Known(hashed, row, _principal(row, ours))

    def _forget(self, key_id: str) -> None:
        """The key's token is worth nothing from here on."""
        self._known = {index: known for index, known in self._known.items() if known.row.id != key_id}
        self._close(key_id)

    def _close(self, key_id: str) -> None:
        for ended in self.on_revoked:
            ended(key_id)

    def _end(self, row: KeyRow) -> None:
        self._rows[row.id] = msgspec.structs.replace(row, revoked=True)
        self._revoked_at[row.id] = self._clock()
        self._forget(row.id)
        self._emit("key.revoked", row)

    def _find(self, key_id: str) -> KeyRow:
        row = self._rows.get(key_id)
        if key_id.startswith(PREFIX):
            raise ConfigError("That is a key itself; its id is wanted, which begins with k_: mooring key list")
        if row is None:
            raise ConfigError(f'There is no key "{key_id}"; see: mooring key list')
        return row

    def _holder(self, workspace: str, name: str) -> KeyRow | None:
        """The key that has this name now, expired or not."""
        held = (row for row in self._rows.values() if row.workspace == workspace and row.name == name)
        return next((row for row in held if name and not row.revoked), None)

    def _expired(self, row: KeyRow) -> bool:
        return row.expires_at is not None and self._clock() >= row.expires_at

    def _inert(self, row: KeyRow, workspaces: Collection[str] | None) -> str:
        """Why a key that was not revoked opens nothing now; "" when it does."""
        if row.revoked:
            return ""
        if self._expired(row):
            return "expired"
        if workspaces is not None and row.workspace not in workspaces:
            return "no such workspace"
        return ""

    def _emit(self, name: str, row: KeyRow, **more: object) -> None:
        self.events.emit(Event(name, self._clock(), row.workspace, data={"key": row.id, "name": row.name, **more}))


def _principal(row: KeyRow, ours: bool = False) -> Principal:
    return Principal(row.id, row.workspace, row.scopes, row.variant, row.tools, row.name, ours=ours)


def _limits(row: KeyRow) -> dict[str, object]:
    """What a key may do, as far as that is less than all."""
    limits = {"variant": row.variant, "tools": row.tools, "expires_at": row.expires_at}
    scopes = {} if set(row.scopes) == set(ALL_SCOPES) else {"scopes": row.scopes}
    return {**scopes, **{name: value for name, value in limits.items() if value}}


def _new_token() -> str:
    # os.urandom is what secrets.token_bytes calls; importing secrets would cost the daemon 2 ms at boot.
    return PREFIX + base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def _new_id() -> str:
    return "k_" + base64.b32encode(os.urandom(5)).decode().lower()


def _hash(token: str) -> bytes:
    sha256, _ = _hashing()
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


@cache
def _hashing() -> tuple[Callable[[bytes], Any], Callable[[bytes, bytes], bool]]:
    """SHA-256 and the comparison in constant time, loaded for the first key: a boot needs neither."""
    from hashlib import sha256
    from hmac import compare_digest

    return sha256, compare_digest


def _json(values: tuple[str, ...]) -> str:
    return msgspec.json.encode(values).decode()
