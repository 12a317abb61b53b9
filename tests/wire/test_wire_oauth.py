"""Logging in, against an authorization server that may get anything wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from guarded_server import PLACE, GuardedServer
from mooring.config.plan_servers import OAuth
from mooring.errors import ConfigError, MooringError, Unavailable
from mooring.testing.login import visit
from mooring.wire.login import Challenge, Client, Login
from mooring.wire.oauth import log_in
from mooring.wire.oauth_redirect import Redirects, listening

LIMIT = 30.0


class Person:
    """Goes to the address in a browser at once."""

    def __init__(self, redirects: Redirects) -> None:
        self.uri = redirects.uri
        self.shown: list[str] = []
        self._redirects = redirects

    async def ask(self, url: str) -> Mapping[str, str]:
        self._redirects.expect(url)
        self.shown.append(url)
        await visit(url)
        return await self._redirects.answer()


@pytest.fixture
async def server() -> AsyncIterator[GuardedServer]:
    async with asyncio.timeout(LIMIT), GuardedServer() as server:
        yield server


async def made(server: GuardedServer, known: Login | None = None, client: OAuth = OAuth(), secret: str = "") -> Login:
    async with listening(known.port if known else 0) as redirects:
        return await log_in("far", known or Login(server.url), client, secret, {"X-Key": "k"}, Person(redirects))


async def refused(server: GuardedServer, match: str, **more: Any) -> MooringError:
    with pytest.raises(Unavailable, match=match) as raised:
        await made(server, **more)
    assert not server.guardian.given
    assert "far: the login failed" in str(raised.value)
    return raised.value


async def test_everything_that_is_needed_later_comes_out(server: GuardedServer) -> None:
    server.guardian.metadata["revocation_endpoint"] = None
    login = await made(server)
    guardian = server.guardian
    (asked,) = guardian.asked("/authorize")
    assert (login.access_token, login.refresh_token) == tuple(guardian.given)
    assert (login.issuer, login.resource, login.scope) == (guardian.issuer, server.url, "basic")
    assert (login.token_endpoint, login.revocation_endpoint) == (f"{guardian.issuer}/token", "")
    assert login.client == Client(asked.form["client_id"], "", "none", asked.form["redirect_uri"])
    assert server.seen[0].headers["x-key"] == "k", "headers of the configuration go to the server"
    assert "x-key" not in guardian.requests[0].headers, "and to nobody else"


async def test_a_server_that_does_not_refuse_yet_is_asked_by_its_metadata(server: GuardedServer) -> None:
    server.public = ("server/discover",)
    server.resource["scopes_supported"] = ["basic", "more"]
    assert (await made(server)).scope == "basic more"
    assert server.seen[-1].path == PLACE


async def test_the_client_is_registered_once_for_each_redirect_address(server: GuardedServer) -> None:
    first = await made(server)
    again = await made(server, first)
    assert again.client == first.client
    async with listening(first.port), listening(0) as redirects:
        third = await log_in("far", first, OAuth(), "", {}, Person(redirects))
    assert third.client != first.client
    assert len(server.guardian.asked("/register")) == 2


async def test_a_client_whose_secret_has_ended_is_registered_anew(server: GuardedServer) -> None:
    first = await made(server)
    assert first.client is not None
    ended = Login(server.url, client=Client(first.client.id, "s", "none", first.client.redirect_uri, expires_at=1.0))
    assert (await made(server, ended)).client != ended.client


async def test_a_client_metadata_document_comes_before_registration(server: GuardedServer) -> None:
    document = OAuth(client_id="https://me.example/client.json")
    server.guardian.metadata["client_id_metadata_document_supported"] = True
    login = await made(server, client=document)
    assert (login.client or Client("")).id == "https://me.example/client.json"
    assert not server.guardian.asked("/register")
    server.guardian.metadata.clear()
    await made(server, client=document)
    assert server.guardian.asked("/register"), "where documents are not taken"


async def test_a_document_that_is_no_address_is_a_fault_of_the_configuration(server: GuardedServer) -> None:
    with pytest.raises(ConfigError, match="client_id"):
        await made(server, client=OAuth(client_id="https://me.example"))


@pytest.mark.parametrize("offered", ["client_secret_basic", "client_secret_post"])
async def test_a_registered_client_proves_itself_as_the_authorization_server_wants(
    server: GuardedServer, offered: str
) -> None:
    server.guardian.secret = "s3/cret"
    server.guardian.metadata["token_endpoint_auth_methods_supported"] = [offered]
    login = await made(server, client=OAuth(client_id="me"), secret="s3/cret")
    assert login.client is not None
    assert (login.client.id, login.client.secret, login.client.method) == ("me", "", offered)
    (asked,) = server.guardian.asked("/token")
    assert ("client_secret" in asked.form) is (offered == "client_secret_post")


async def test_more_scopes_are_asked_for_besides_those_that_were_granted(server: GuardedServer) -> None:
    first = await made(server)
    refusal = Challenge(403, 'Bearer error="insufficient_scope", scope="write"')
    known = Login(server.url, access_token="t", scope=first.scope, client=first.client, challenge=refusal)
    assert (await made(server, known)).scope == "basic write"


async def test_scopes_of_the_configuration_are_asked_for_too(server: GuardedServer) -> None:
    """A35"""
    server.public = ("server/discover",)
    login = await made(server, client=OAuth(scopes=("mine", "yours")))
    assert login.scope == "mine yours"
    server.public = ()
    login = await made(server, client=OAuth(scopes=("mine", "basic")))
    assert login.scope == "basic mine"
    refusal = Challenge(403, 'Bearer error="insufficient_scope", scope="write"')
    known = Login(server.url, access_token="t", scope="basic", challenge=refusal)
    assert (await made(server, known, OAuth(scopes=("mine",)))).scope == "basic write mine"


@pytest.mark.parametrize("iss", ["https://evil.example", None])
async def test_an_answer_from_another_issuer_is_refused(server: GuardedServer, iss: str | None) -> None:
    """A35: RFC 9207: also one that says nothing, where it promised to."""
    server.guardian.iss = iss
    await refused(server, "iss")


async def test_metadata_of_another_issuer_is_refused(server: GuardedServer) -> None:
    """A35: RFC 8414, 3.3"""
    server.guardian.metadata["issuer"] = "https://evil.example"
    await refused(server, "issuer mismatch")
    assert not server.guardian.asked("/register")


async def test_metadata_of_another_resource_is_refused(server: GuardedServer) -> None:
    server.resource["resource"] = "https://evil.example/mcp"
    await refused(server, "does not match")
    assert not server.guardian.requests


@pytest.mark.parametrize("methods", [None, ["plain"]])
async def test_without_pkce_nothing_is_begun(server: GuardedServer, methods: list[str] | None) -> None:
    server.guardian.metadata["code_challenge_methods_supported"] = methods
    await refused(server, "does not offer PKCE")
    assert not server.guardian.asked("/register")
    server.guardian.requests.clear()
    await refused(server, "does not offer PKCE", client=OAuth(client_id="me"))
    assert not server.guardian.asked("/authorize")


async def test_endpoints_are_never_guessed(server: GuardedServer) -> None:
    server.guardian.moved["/.well-known/oauth-authorization-server"] = "/nowhere"
    await refused(server, "publishes no metadata")
    assert not server.guardian.asked("/register")


@pytest.mark.parametrize(
    "place", ["https://169.254.169.254/latest", "http://10.0.0.1", "https://[fe80::1]", "http://intranet.example"]
)
async def test_a_server_sends_nobody_to_addresses_that_it_has_no_business_with(
    server: GuardedServer, place: str
) -> None:
    """A35: link-local addresses never, and without TLS only this machine."""
    server.resource["authorization_servers"] = [place]
    await refused(server, "only https|not an address to be sent to")
    assert not server.guardian.requests


@pytest.mark.parametrize("name", ["token_endpoint", "registration_endpoint", "authorization_endpoint"])
async def test_endpoints_are_looked_at_like_discovered_addresses(server: GuardedServer, name: str) -> None:
    server.guardian.metadata[name] = "http://192.168.0.1/x"
    await refused(server, "only https")


@pytest.mark.parametrize("path", ["/.well-known/oauth-authorization-server", "/register", "/token"])
async def test_a_redirect_leads_nowhere_else(server: GuardedServer, path: str) -> None:
    """A35: neither to private addresses nor to those of others; code and verifier stay where they belong."""
    async with GuardedServer() as other:
        for target in ("http://169.254.169.254/", f"{other.guardian.issuer}{path}"):
            server.guardian.moved = {path: target}
            with pytest.raises(Unavailable, match="the login failed"):
                await made(server)
        assert not other.guardian.requests
    assert not server.guardian.given


async def test_a_person_who_says_no_ends_it(server: GuardedServer) -> None:
    server.guardian.error = "access_denied"
    await refused(server, "access_denied")


async def test_a_server_without_an_address_is_named(server: GuardedServer) -> None:
    with pytest.raises(Unavailable, match="far: the login failed"):
        async with listening(0) as redirects:
            await log_in("far", Login("https://nowhere.invalid/mcp"), OAuth(), "", {}, Person(redirects))


async def test_what_an_authorization_server_says_is_shortened(server: GuardedServer) -> None:
    server.guardian.error = "x" * 10_000
    assert len(str(await refused(server, "xxx"))) < 500


async def test_only_the_answer_that_is_waited_for_counts() -> None:
    """Any page can send a browser to the listener."""
    async with asyncio.timeout(LIMIT), listening(0) as redirects:
        waiting = asyncio.create_task(redirects.answer())
        assert not redirects.take(f"{redirects.uri}?code=x&state="), "nothing is waited for yet"
        redirects.expect("https://there.example/authorize?state=mine&x=y")
        await visit(f"{redirects.uri}?code=evil&state=other")
        await visit(redirects.uri.replace("/callback", "/other?code=evil&state=mine"))
        assert not waiting.done()
        assert not redirects.take("gibberish")
        assert redirects.take(f" {redirects.uri}?code=good&state=mine\n")
        assert redirects.take(f"{redirects.uri}?code=later&state=mine")
        assert (await waiting)["code"] == "good"
