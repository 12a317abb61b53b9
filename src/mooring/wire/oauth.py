"""Logging in at a remote server: the one place that uses the MCP SDK, for its OAuth client.

Run by ``mooring auth login`` in a process of its own; the daemon only uses and renews what comes out
(``wire.bearer``). The SDK decides what to ask whom: discovery, registration, PKCE, the exchange. This module sends it,
each request through ``wire.egress``, and adds what the SDK leaves to its user: no login where PKCE is not offered, no
guessed endpoints, and no answer that was not asked for.

Source: MCP 2026-07-28 "Authorization"; RFC 8414, 9207, 9728, 7591.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from mooring.config.plan_servers import OAuth
from mooring.errors import ConfigError, Unavailable
from mooring.wire.egress import Forbidden, Reach, check_url
from mooring.wire.egress_transport import ask, guarded, trust
from mooring.wire.eras import MODERN_VERSIONS
from mooring.wire.login import INSUFFICIENT, Challenge, Client, Login

SHOWN = 300
"""Characters of an authorization server's own words that are shown."""

logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False  # it logs what goes wrong with a traceback, and we say it ourselves


class Redirect(Protocol):
    """How a person gets to the authorization server and their answer back."""

    @property
    def uri(self) -> str: ...

    async def ask(self, url: str) -> Mapping[str, str]:
        """Send the person to ``url``; the members of the answer. May raise MooringError."""
        ...


async def log_in(
    server: str, known: Login, client: OAuth, secret: str, headers: Mapping[str, str], redirect: Redirect
) -> Login:
    """A login at ``known.url``, made with a person's help. ``known``: what there was before, for its scopes, its client
    and the refusal that led here. ``secret``: that of ``client``. ``headers`` go to the server itself.

    Raises Unavailable when it fails, ConfigError when ``client`` cannot be used, and what ``redirect`` raises.
    """
    try:
        trusted = await trust(known.url)
        async with guarded(known.url) as http:
            return await _Flow(http, trusted, known, client, secret, redirect).run(headers)
    except (OAuthFlowError, Forbidden, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        why = str(error)[:SHOWN] or type(error).__name__
        raise Unavailable(f"{server}: the login failed: {why}", server=server, phase="login") from None


class _Flow:
    """One login."""

    def __init__(
        self, http: httpx2.AsyncClient, trusted: Reach, known: Login, client: OAuth, secret: str, redirect: Redirect
    ) -> None:
        self._http = http
        self._trusted: Reach = trusted
        self._known = known
        self._secret = secret
        self._redirect = redirect
        self._scopes = " ".join(client.scopes)
        self._registered = bool(client.client_id) and not client.client_id.startswith("https://")
        document = client.client_id if client.client_id and not self._registered else None
        try:
            self._provider = OAuthClientProvider(
                known.url,
                OAuthClientMetadata(client_name="Mooring", redirect_uris=[AnyUrl(redirect.uri)]),
                _Kept(known, self._client(client, document)),
                self._leave,
                self._return,
                document,
            )
        except ValueError as error:
            raise ConfigError(f"oauth.client_id: {error}") from None
        self._answer: Mapping[str, str] = {}

    def _client(self, client: OAuth, document: str | None) -> OAuthClientInformationFull | None:
        """The client to use, if there is one: that of the configuration, else the one registered before. Either is
        bound to the authorization server it was used with first."""
        known = self._known.client
        if self._registered:
            method = "client_secret_basic" if self._secret else "none"
            made = Client(client.client_id, self._secret, method)
        elif document is None and known is not None and _usable(known, self._redirect.uri):
            made = known
        else:
            return None
        return OAuthClientInformationFull(
            client_id=made.id,
            client_secret=made.secret or None,
            token_endpoint_auth_method=made.method or None,
            redirect_uris=[AnyUrl(self._redirect.uri)],
            issuer=self._known.issuer or None,
        )

    async def run(self, headers: Mapping[str, str]) -> Login:
        probe = self._http.build_request("POST", self._known.url, headers={**_PROBE, **headers}, content=_DISCOVER)
        refusal = self._known.challenge or await self._refusal(probe)
        flow = self._provider.async_auth_flow(probe)
        try:
            await anext(flow)  # the request to the server itself; what it says is known
            response = _refused(refusal, self._scopes, probe)
            while (request := await flow.asend(response)) is not probe:
                if request.method != "GET":
                    self._check()
                response = await ask(self._http, request)
        finally:
            await flow.aclose()
        return self._made()

    async def _refusal(self, probe: httpx2.Request) -> Challenge:
        """How the server refuses one who is not logged in. One that does not, or not yet, is asked by its metadata."""
        response = await ask(self._http, probe)
        return Challenge(401, response.headers.get("www-authenticate", "") if response.status_code == 401 else "")

    def _check(self) -> None:
        """Before anything is handed to the authorization server: it must say where it is and that it does PKCE."""
        metadata = self._provider.context.oauth_metadata
        if metadata is None:
            raise OAuthFlowError("its authorization server publishes no metadata")
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError(f"the authorization server {metadata.issuer} does not offer PKCE with S256")
        methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
        info = self._provider.context.client_info
        if info is not None and self._registered and info.client_secret and "client_secret_basic" not in methods:
            info.token_endpoint_auth_method = "client_secret_post"  # noqa: S105 - the name of a method

    async def _leave(self, url: str) -> None:
        self._check()
        check_url(url, self._trusted)
        self._answer = await self._redirect.ask(url)

    async def _return(self) -> AuthorizationCodeResult:
        answer = self._answer
        if "error" in answer:
            raise OAuthFlowError(f"{answer['error']} {answer.get('error_description', '')}".strip())
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer.get("state"), iss=answer.get("iss"))

    def _made(self) -> Login:
        """What came out of it."""
        context = self._provider.context
        tokens, metadata, info = context.current_tokens, context.oauth_metadata, context.client_info
        if tokens is None or metadata is None or info is None:
            raise OAuthFlowError("the authorization server gave no token")
        return Login(
            self._known.url,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            scope=tokens.scope or "",
            issuer=str(metadata.issuer),
            resource=context.get_resource_url(),
            token_endpoint=str(metadata.token_endpoint),
            revocation_endpoint=str(metadata.revocation_endpoint or ""),
            client=Client(
                info.client_id,
                "" if self._registered else info.client_secret or "",
                info.token_endpoint_auth_method or "",
                self._redirect.uri,
                info.client_secret_expires_at or None,
            ),
        )


def _refused(refusal: Challenge, scopes: str, probe: httpx2.Request) -> httpx2.Response:
    """The refusal as the SDK reads it, which also wants ``scopes``."""
    headers = {"WWW-Authenticate": refusal.header} if refusal.header else {}
    response = httpx2.Response(refusal.status, headers=headers, request=probe)
    wanted = union_scopes(extract_scope_from_www_auth(response), scopes)
    if not scopes or not wanted:
        return response
    parts = {"scope": wanted, "resource_metadata": extract_resource_metadata_from_www_auth(response)}
    named = ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)
    error = f', error="{INSUFFICIENT}"' if refusal.status == 403 else ""
    return httpx2.Response(refusal.status, headers={"WWW-Authenticate": f"Bearer {named}{error}"}, request=probe)


def _usable(client: Client, redirect_uri: str) -> bool:
    return client.redirect_uri == redirect_uri and (client.expires_at is None or client.expires_at > time.time())


class _Kept:
    """What the SDK asks for, and tells of what is to be kept (its ``TokenStorage``); that is done at the end."""

    def __init__(self, known: Login, client: OAuthClientInformationFull | None) -> None:
        self._known = known
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """Only the granted scopes matter: they are asked for again when more are needed."""
        known = self._known
        return OAuthToken(access_token=known.access_token, scope=known.scope) if known.access_token else None

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


_VERSION = MODERN_VERSIONS[0]
_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_DISCOVER = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _META}}).encode()
_PROBE = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": _VERSION,
    "Mcp-Method": "server/discover",
}
