"""Fetching the keys of an issuer: where they are looked for, and what is said when they are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.errors import Unavailable
from mooring.testing.authorization import AuthorizationServer
from mooring.testing.signing import Signer
from mooring.wire.jwks import metadata_urls, published

LIMIT = 30.0
OAUTH, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"


@pytest.fixture
async def guardian() -> AsyncIterator[AuthorizationServer]:
    async with asyncio.timeout(LIMIT), AuthorizationServer() as server:
        server.signer = Signer()
        yield server


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        ("https://a", [f"https://a{OAUTH}", f"https://a{OPENID}"]),
        ("https://a/", [f"https://a{OAUTH}", f"https://a{OPENID}"]),
        ("https://a/t/1", [f"https://a{OAUTH}/t/1", f"https://a{OPENID}/t/1", f"https://a/t/1{OPENID}"]),
    ],
)
def test_metadata_is_looked_for_where_the_specification_says(issuer: str, places: list[str]) -> None:
    """MCP 2026-07-28 "Authorization Server Metadata Discovery": RFC 8414 first, then OpenID Connect."""
    assert list(metadata_urls(issuer)) == places


async def test_keys_come_from_where_the_metadata_or_the_configuration_says(guardian: AuthorizationServer) -> None:
    assert guardian.signer is not None
    assert await published(guardian.issuer, "") == guardian.signer.published
    asked = len(guardian.asked(OAUTH))
    assert await published("https://issuer.invalid", f"{guardian.issuer}/jwks") == guardian.signer.published
    assert len(guardian.asked(OAUTH)) == asked == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {}, {"keys": "none"}), "holds no keys"),
        ((200, {}, ["x"]), "is not a JSON object"),
        ((500, {}, {}), "answers HTTP 500"),
        ((302, {"Location": "https://elsewhere.invalid/"}, {}), "answers HTTP 302"),
        ((200, {}, {"keys": [{}], "more": "x" * (1 << 20)}), "cannot be asked: more than 1024 KiB"),
    ],
)
async def test_an_answer_without_keys_says_what_is_wrong(
    guardian: AuthorizationServer, monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str
) -> None:
    monkeypatch.setattr(guardian, "_answer", lambda asked: answer)
    with pytest.raises(Unavailable, match=reason):
        await published(guardian.issuer, f"{guardian.issuer}/jwks")


async def test_what_is_no_key_is_left_out(guardian: AuthorizationServer) -> None:
    assert guardian.signer is not None
    kept = list(guardian.signer.published)
    guardian.signer.published += ["x", None]  # pyright: ignore
    assert await published(guardian.issuer, "") == kept


async def test_an_issuer_that_is_not_there_is_named(guardian: AuthorizationServer) -> None:
    await guardian.__aexit__()
    with pytest.raises(Unavailable, match=f"{guardian.issuer} cannot be asked: "):
        await published(guardian.issuer, "")


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/keys", "http://10.0.0.1/keys", "https://10.0.0.1/keys"])
async def test_metadata_of_an_issuer_out_there_leads_to_no_address_in_here(
    guardian: AuthorizationServer, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """SSRF: what the configuration names is trusted, what is found there is not."""
    from mooring.wire import egress_transport, jwks

    async def found(http: Any, issuer: str) -> str:
        return where

    async def outside(url: str) -> str:
        return "public"

    monkeypatch.setattr(egress_transport, "trust", outside)
    monkeypatch.setattr(jwks, "_discovered", found)
    with pytest.raises(Unavailable, match=r"only https is gone to|not an address to be sent to"):
        await published("https://login.example.com", "")
