"""One login at a remote server: what is kept of it, and what follows from it. Pure.

Made by ``wire.oauth``, used and renewed by ``wire.bearer``. All of it is secret: it is kept as bytes in a place that
``config.logins`` knows and shown nowhere but for the parts that ``mooring auth status`` names.

Source: OAuth 2.1 "Refreshing an Access Token", "Client Authentication"; MCP 2026-07-28 "Authorization".
"""

from __future__ import annotations

import base64
from urllib.parse import quote, urlsplit

import msgspec

MARGIN = 30.0
"""Seconds before its end that a token counts as expired: the request has to get there, and clocks differ."""
INSUFFICIENT = "insufficient_scope"
LONGEST_CHALLENGE = 4096
"""Characters of a ``WWW-Authenticate`` header that are kept."""


class Client(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who Mooring is for one authorization server. ``secret``: "" for one that the configuration has."""

    id: str
    secret: str = ""
    method: str = ""
    """How it proves itself: ``none``, ``client_secret_basic``, ``client_secret_post``."""
    redirect_uri: str = ""
    expires_at: float | None = None
    """Epoch seconds until which the secret is valid."""


class Challenge(msgspec.Struct, frozen=True):
    """How the server refused: the HTTP status, and its ``WWW-Authenticate`` header."""

    status: int
    header: str = ""


class Login(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about the login at ``url``; without ``access_token`` there is none."""

    url: str
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float | None = None
    """Epoch seconds; None where the server does not say."""
    scope: str = ""
    """Granted scopes, separated by blanks."""
    issuer: str = ""
    """The authorization server that all of this belongs to, and is never shown to another."""
    resource: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    client: Client | None = None
    challenge: Challenge | None = None
    """The last refusal that only a new login can end."""

    @property
    def port(self) -> int:
        """Where the client that was registered expects to be answered; 0 when there is none."""
        return urlsplit(self.client.redirect_uri).port or 0 if self.client else 0


def decoded(raw: bytes | None, url: str) -> Login:
    """What was kept about ``url``; nothing when that is about another URL, or damaged."""
    try:
        found = msgspec.json.decode(raw or b"", type=Login)
    except msgspec.DecodeError:
        return Login(url)
    return found if found.url == url else Login(url)


encoded = msgspec.json.encode


def stale(login: Login, now: float) -> bool:
    """Whether the access token is not to be used any more."""
    return login.expires_at is not None and now > login.expires_at - MARGIN


def challenge(status: int, header: str) -> Challenge | None:
    """The refusal in a response, if a login may end it: no valid token, or one that is not good enough."""
    if status == 401 or (status == 403 and INSUFFICIENT in header):
        return Challenge(status, header[:LONGEST_CHALLENGE])
    return None


def credentials(client: Client, secret: str) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and form members with which ``client`` proves itself. ``secret``: that of the configuration, or ""."""
    secret = secret or client.secret
    form = {"client_id": client.id}
    if not secret or client.method == "none":
        return {}, form
    if client.method == "client_secret_post":
        return {}, {**form, "client_secret": secret}
    pair = f"{quote(client.id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, form


class _Granted(msgspec.Struct):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - not a token
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None


def renewed(login: Login, body: bytes, now: float) -> Login:
    """``login`` after the token endpoint's answer to a refresh; what that does not say stays. Raises ValueError."""
    granted = msgspec.json.decode(body, type=_Granted, strict=False)
    if granted.token_type.lower() != "bearer" or not granted.access_token:
        raise ValueError("it is no bearer token")
    return msgspec.structs.replace(
        login,
        access_token=granted.access_token,
        refresh_token=granted.refresh_token or login.refresh_token,
        expires_at=None if granted.expires_in is None else now + granted.expires_in,
        scope=login.scope if granted.scope is None else granted.scope,
    )


_NO = (
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
)
"""What a token endpoint says (RFC 6749, 5.2)."""


class _Refusal(msgspec.Struct):
    error: str


def refused(status: int, body: bytes) -> bool:
    """Whether the token endpoint itself says no to a refresh, so that the tokens are worth nothing any more. What only
    stands before it (403, 404, a page for people) may be another one a little later."""
    if status in (400, 401):
        return True
    try:
        return status < 500 and msgspec.json.decode(body, type=_Refusal).error in _NO
    except msgspec.DecodeError:
        return False


def ended(login: Login) -> Login:
    """``login`` without its tokens: they are not valid any more. Who the client is, and where, stays true."""
    return msgspec.structs.replace(login, access_token="", refresh_token="", expires_at=None)
