"""A little OAuth 2.1 authorization server for tests: real HTTP on this machine, consent always given, and switches for
everything that one can get wrong.

    async with AuthorizationServer() as server:
        server.lifetime = 0.1
        ... server.issuer ... server.asked("/token") ...

Besides code and refresh grants it has metadata, registration and revocation. It keeps what it was asked.

    server.signer = Signer()                       # from now on access tokens are JWTs, and there are keys at /jwks
    server.claims = {"groups": ["docs"]}           # what those say besides
    token = server.jwt(aud="http://127.0.0.1:7420/mcp")
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import time
from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode

from mooring.testing.peer import JSON
from mooring.testing.signing import Signer

Reply = tuple[int, dict[str, str], JSON]
"""Status, headers, body."""


class Asked:
    """One request, read. ``form`` has the members of query or body."""

    def __init__(self, head: str, body: bytes) -> None:
        first, *lines = head.strip().split("\r\n")
        _, target, _ = first.split(" ")
        self.path, _, query = target.partition("?")
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        json_body = "json" in self.headers.get("content-type", "")
        self.form: dict[str, Any] = json.loads(body) if json_body else dict(parse_qsl(body.decode() or query))


class AuthorizationServer:
    """An async context manager. The attributes may be changed at any time."""

    def __init__(self) -> None:
        self.metadata: JSON = {}
        """Members of the metadata that are otherwise; None leaves one out."""
        self.iss: str | None = ""
        """What comes back with the code: "" the issuer, None nothing, else that."""
        self.error = ""
        """Refuse consent with this."""
        self.lifetime: float | None = 3600.0
        """Seconds that tokens are valid."""
        self.secret = ""
        """The clients that register are given this secret."""
        self.renews = True
        self.broken = 0
        """Answer refreshes with this HTTP status."""
        self.moved: dict[str, str] = {}
        """Path to the URL that it is redirected to."""
        self.requests: list[Asked] = []
        self.tokens: dict[str, tuple[str, float]] = {}
        """Valid access tokens: scopes, and when they end."""
        self.refresh_tokens: dict[str, str] = {}
        """Valid refresh tokens: scopes."""
        self.given: list[str] = []
        """Every token there ever was."""
        self.issuer = ""
        self.signer: Signer | None = None
        """Signs access tokens; without one they are opaque."""
        self.claims: JSON = {}
        """What signed tokens say besides issuer, subject "alice", audience (the resource asked for) and times."""
        self.place = "/.well-known/oauth-authorization-server"
        """Where its metadata is."""
        self._codes: dict[str, dict[str, str]] = {}
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.issuer = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()

    def asked(self, path: str) -> list[Asked]:
        """All requests to a path, in order."""
        return [each for each in self.requests if each.path == path]

    def jwt(self, headers: JSON | None = None, **claims: Any) -> str:
        """A signed token with these claims, for those who need no login; None leaves one out."""
        assert self.signer is not None
        now = int(time.time())
        usual: JSON = {"iss": self.issuer, "sub": "alice", "iat": now, "exp": now + int(self.lifetime or 3600)}
        said = {name: it for name, it in {**usual, **self.claims, **claims}.items() if it is not None}
        token = self.signer.signed(said, headers)
        self.given.append(token)
        return token

    def scopes(self, authorization: str) -> set[str] | None:
        """What the token of an ``Authorization`` header is good for; None when it is not valid."""
        scope, until = self.tokens.get(authorization.removeprefix("Bearer "), ("", 0.0))
        return set(scope.split()) if time.time() < until else None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"(?im)^content-length: *(\d+)", head)
            asked = Asked(head, await reader.readexactly(int(length[1]) if length else 0))
            self.requests.append(asked)
            status, headers, body = self._answer(asked)
            data = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {status} .\r\nConnection: close\r\n{lines}\r\n".encode() + data)
            await writer.drain()
        writer.close()

    def _answer(self, asked: Asked) -> Reply:
        if asked.path in self.moved:
            return _redirect(self.moved[asked.path])
        match asked.path:
            case self.place:
                return 200, {}, self._metadata()
            case "/jwks" if self.signer is not None:
                return 200, {}, {"keys": self.signer.published}
            case "/register":
                return 201, {}, self._register(asked.form)
            case "/authorize":
                return self._authorize(asked.form)
            case "/token":
                return self._token(asked)
            case "/revoke":
                for kept in (self.tokens, self.refresh_tokens):
                    kept.pop(asked.form["token"], None)
                return 200, {}, {}
            case _:
                return _problem(404, "nothing here")

    def _metadata(self) -> JSON:
        usual: JSON = {
            "issuer": self.issuer,
            **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in _ENDPOINTS.items()},
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
            "jwks_uri": f"{self.issuer}/jwks" if self.signer is not None else None,
            **self.metadata,
        }
        return {name: it for name, it in usual.items() if it is not None}

    def _register(self, wanted: JSON) -> JSON:
        method = "client_secret_basic" if self.secret else "none"
        more = {"client_secret": self.secret} if self.secret else {}
        return {**wanted, "client_id": f"client-{secrets.token_hex(4)}", "token_endpoint_auth_method": method, **more}

    def _authorize(self, wanted: dict[str, str]) -> Reply:
        answer = {"state": wanted["state"]}
        if self.iss is not None:
            answer["iss"] = self.iss or self.issuer
        if self.error:
            answer["error"] = self.error
        else:
            answer["code"] = secrets.token_urlsafe(8)
            self._codes[answer["code"]] = wanted
        return _redirect(f"{wanted['redirect_uri']}?{urlencode(answer)}")

    def _token(self, asked: Asked) -> Reply:
        form = asked.form
        if self.secret and not self._proven(asked):
            return _problem(401, "invalid_client")
        if form["grant_type"] == "refresh_token":
            if self.broken:
                return _problem(self.broken, "broken")
            scope = self.refresh_tokens.pop(form["refresh_token"], None)
            return _problem(400, "invalid_grant") if scope is None else self._grant(scope, form.get("resource"))
        wanted = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if wanted is None or base64.urlsafe_b64encode(digest).decode().rstrip("=") != wanted["code_challenge"]:
            return _problem(400, "invalid_grant")
        return self._grant(wanted.get("scope", ""), form.get("resource") or wanted.get("resource"))

    def _proven(self, asked: Asked) -> bool:
        pair = f"{quote(asked.form['client_id'], safe='')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
        basic = base64.b64encode(pair.encode()).decode()
        return asked.headers.get("authorization") == f"Basic {basic}" or asked.form.get("client_secret") == self.secret

    def _grant(self, scope: str, resource: str | None) -> Reply:
        token, refresh = (f"{kind}-{secrets.token_urlsafe(12)}" for kind in ("access", "refresh"))
        if self.signer is not None:
            token = self.jwt(aud=resource, scope=scope, jti=secrets.token_hex(4))
        self.given += (token, refresh)
        self.tokens[token] = scope, time.time() + (self.lifetime or 1e9)
        granted: JSON = {"access_token": token, "token_type": "bearer", "scope": scope}
        if self.lifetime is not None:
            granted["expires_in"] = self.lifetime
        if self.renews:
            self.refresh_tokens[refresh] = scope
            granted["refresh_token"] = refresh
        return 200, {}, granted


_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}


def _redirect(url: str) -> Reply:
    return 302, {"Location": url}, {}


def _problem(status: int, error: str) -> Reply:
    return status, {}, {"error": error}
