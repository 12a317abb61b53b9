"""The public keys of an authorization server, as it publishes them.

Called by ``access.identity``. What the configuration names is trusted; what the server's metadata names goes through
``wire.egress``, like every redirect that somebody else could choose: none is followed.

Source: RFC 8414, RFC 7517; OpenID Connect Discovery 1.0; MCP 2026-07-28 "Authorization Server Metadata Discovery".
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from mooring.errors import Unavailable
from mooring.wire.egress import Forbidden
from mooring.wire.egress_transport import ask, guarded
from mooring.wire.http_client import cause


async def published(issuer: str, jwks: str) -> list[dict[str, Any]]:
    """The keys of ``issuer``, from ``jwks``, or from where its metadata says. Raises Unavailable with the reason."""
    try:
        async with guarded(jwks or issuer) as http:
            where = jwks or await _discovered(http, issuer)
            keys = (await _object(http, where)).get("keys")
    except Forbidden as error:
        raise Unavailable(str(error)) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise Unavailable(f"{jwks or issuer} cannot be asked: {cause(error)}") from None
    if not isinstance(keys, list):
        raise Unavailable(f"{where} holds no keys")
    return [cast("dict[str, Any]", key) for key in cast("list[object]", keys) if isinstance(key, dict)]


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where the metadata of ``issuer`` may be, in the order in which they are asked."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    first = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    )
    return (*first, f"{origin}{path}/.well-known/openid-configuration") if path else first


async def _discovered(http: httpx2.AsyncClient, issuer: str) -> str:
    for url in metadata_urls(issuer):
        response = await ask(http, http.build_request("GET", url))
        if response.status_code != 200:
            continue
        metadata = _decoded(response, url)
        if metadata.get("issuer") != issuer:
            raise Unavailable(f"{url} is the metadata of another issuer, {str(metadata.get('issuer'))[:200]!r}")
        where = metadata.get("jwks_uri")
        if not isinstance(where, str):
            raise Unavailable(f"{url} names no jwks_uri; write jwks in the configuration")
        return where
    raise Unavailable(f"{issuer} publishes no metadata; write jwks in the configuration")


async def _object(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    response = await ask(http, http.build_request("GET", url, headers={"Accept": "application/json"}))
    if response.status_code != 200:
        raise Unavailable(f"{url} answers HTTP {response.status_code}")
    return _decoded(response, url)


def _decoded(response: httpx2.Response, url: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise Unavailable(f"{url} is not a JSON object") from None
