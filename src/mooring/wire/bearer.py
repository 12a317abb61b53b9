"""The bearer token of one remote server: sent with every request, renewed before it ends, looked up again when it is
refused.

Used by ``wire.http_client``, one for each conversation. Making a new login takes a person: that is ``wire.oauth``, in
``mooring auth login``. Renewing is one small request, made without the SDK, which would cost the daemon more memory
than all the rest of it.

Source: OAuth 2.1 "Refreshing an Access Token"; MCP 2026-07-28 "Authorization".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

import msgspec

from mooring.errors import Busy, ConfigError, MooringError, Unavailable
from mooring.wire.login import Challenge, Login, challenge, decoded, encoded, ended, refused, renewed, stale
from mooring.wire.token_endpoint import refresh

ENDING = 2.0
"""Seconds for a renewal that is under way when the conversation ends: the server may have changed the token already."""
_log = logging.getLogger(__name__)


class Place(Protocol):
    """Where the login is kept (``config.logins``). Both may take long and raise ConfigError; ``to`` is called in a
    thread."""

    async def read(self) -> bytes | None: ...

    async def change(self, to: Callable[[bytes | None], bytes | None]) -> None: ...


class Bearer:
    """An async context manager. ``secret``: that of a client which the configuration names, or "". ``learned`` is told
    every token before it is used (the redactor). ``turn``: held while the login in ``place`` is renewed, by all who use
    it; an authorization server takes a refresh token that comes twice for stolen, and ends the login."""

    def __init__(
        self,
        server: str,
        url: str,
        place: Place,
        secret: str = "",
        learned: Callable[[str], object] = lambda _: None,
        turn: asyncio.Lock | None = None,
    ) -> None:
        self._server = server
        self._url = url
        self._place = place
        self._secret = secret
        self._learned = learned
        self._turn = turn or asyncio.Lock()
        self._login: Login | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait((self._renewal,), timeout=ENDING)
            self._renewal.cancel()
            await asyncio.wait((self._renewal,), timeout=ENDING)

    async def token(self) -> str:
        """The token to send; "" when there is none. Raises Unavailable when it ended and cannot be renewed now."""
        login = self._login
        if login is not None and not stale(login, time.time()):
            return login.access_token
        login = await self._read()
        if stale(login, time.time()) and login.refresh_token:
            await self._renew(login.access_token)
        return (self._login or login).access_token

    async def another(self, refused: str, status: int, header: str, *, last: bool) -> bool:
        """After a response with ``status`` and ``WWW-Authenticate``: whether there is another token than ``refused`` to
        try; ``last``: it would be one too many. Raises Unavailable when only a person can go on, by logging in."""
        reason = challenge(status, header)
        if reason is None:
            return False
        login = await self._read()
        if not last and login.access_token == refused and reason.status == 401 and login.refresh_token:
            await self._renew(refused)
            login = self._login or login
        if not last and login.access_token not in ("", refused):
            return True
        await self._note(reason)
        raise needed(self._server, reason, login)

    async def _read(self) -> Login:
        """What is kept now: another process may have logged in."""
        found = decoded(await self._place.read(), self._url)
        self._use(found)
        return found

    def _use(self, login: Login) -> None:
        for secret in (login.access_token, login.refresh_token, login.client.secret if login.client else ""):
            if secret:
                self._learned(secret)
        self._login = login

    async def _note(self, reason: Challenge) -> None:
        """Keep the refusal for the login that follows: it says which scopes are wanted."""

        def noted(raw: bytes | None) -> bytes:
            return encoded(msgspec.structs.replace(decoded(raw, self._url), challenge=reason))

        with suppress(ConfigError, OSError):
            await self._place.change(noted)

    async def _renew(self, token: str) -> None:
        """One renewal of ``token`` for all who wait for it; a caller that gives up does not end it."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._in_turn(token))
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._renewal)

    async def _in_turn(self, token: str) -> None:
        async with self._turn:
            old = await self._read()
            if old.access_token == token:  # else another conversation was first
                await self._renewed(old)

    async def _renewed(self, old: Login) -> None:
        if old.client is None or not old.refresh_token or not old.token_endpoint:
            return
        response = await refresh(self._server, old, old.client, self._secret)
        granted = response.status_code == 200
        if not (granted or refused(response.status_code, response.content)):
            what = f"{self._server}: its login cannot be renewed now (HTTP {response.status_code} from {old.issuer})"
            raise Busy(what, server=self._server, phase="call")
        try:
            new = renewed(old, response.content, time.time()) if granted else ended(old)
        except ValueError:
            new = ended(old)
        if not new.access_token:
            _log.info("%s: the login has ended (HTTP %d from %s)", self._server, response.status_code, old.issuer)
        self._use(new)
        await self._place.change(lambda raw: self._exchanged(raw, old, new))
        await self._read()

    def _exchanged(self, raw: bytes | None, old: Login, new: Login) -> bytes | None:
        """``new`` in the place of ``old``, unless somebody logged in or out meanwhile."""
        return encoded(new) if decoded(raw, self._url).refresh_token == old.refresh_token else raw


def needed(server: str, reason: Challenge, login: Login) -> MooringError:
    """The error for a request that only a new login helps."""
    why = "it has ended" if login.client else "there is none"
    if reason.status == 403:
        why = "it does not go far enough"
    message = f"{server} needs login ({why}): mooring auth login {server}"
    return Unavailable(message, server=server, phase="call", http=reason.status)
