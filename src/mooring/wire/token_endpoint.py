"""Requests of a client to its authorization server: renewing tokens, giving them back.

Called by ``wire.bearer`` and ``mooring auth logout``. Every URL goes through ``wire.egress``.

Source: OAuth 2.1 "Refreshing an Access Token"; RFC 7009.
"""

from __future__ import annotations

import httpx2

from mooring.errors import Unavailable
from mooring.wire.egress import Forbidden
from mooring.wire.egress_transport import ask, guarded
from mooring.wire.login import Client, Login, credentials


async def refresh(server: str, login: Login, client: Client, secret: str) -> httpx2.Response:
    """The answer to a refresh of ``login``. ``secret``: that of the configuration, or "". Raises Unavailable."""
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
    if login.resource:
        form["resource"] = login.resource
    return await _posted(server, login, login.token_endpoint, client, secret, form)


async def revoke(server: str, login: Login, secret: str) -> bool:
    """Tell the authorization server that the tokens are given up; False when it did not take note. Raises
    Unavailable."""
    tokens = {"refresh_token": login.refresh_token, "access_token": login.access_token}
    if not login.revocation_endpoint or login.client is None:
        return False
    done = True
    for kind, token in tokens.items():
        if token:
            form = {"token": token, "token_type_hint": kind}
            response = await _posted(server, login, login.revocation_endpoint, login.client, secret, form)
            done = done and response.status_code == 200
    return done


async def _posted(
    server: str, login: Login, endpoint: str, client: Client, secret: str, form: dict[str, str]
) -> httpx2.Response:
    headers, proof = credentials(client, secret)
    try:
        async with guarded(login.url) as http:
            return await ask(http, http.build_request("POST", endpoint, headers=headers, data={**form, **proof}))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, Forbidden) as error:
        what = f"{server}: the authorization server {login.issuer} cannot be asked: {error}"
        raise Unavailable(what, server=server, phase="call") from None
