"""People who come with a token of an authorization server instead of a key: from the first refusal to the audit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from mooring.testing import HttpClient, wait_for
from mooring.testing.authorization import AuthorizationServer
from mooring.testing.daemon import Daemon, server, write_config
from mooring.testing.signing import Signer
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
LIMIT = 90.0
ROOMS: dict[str, Any] = {"a": {"mcp_servers": ["echo"]}, "b": {"mcp_servers": ["echo"]}}
DOCS = [{"workspace": "a", "claims": {"groups": "docs*"}}, {"workspace": "b", "claims": {"groups": "ops"}}]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture
async def guardian() -> AsyncIterator[AuthorizationServer]:
    async with asyncio.timeout(LIMIT), AuthorizationServer() as server:
        server.signer = Signer()
        server.claims = {"groups": ["docs-team"]}
        yield server


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


def company(guardian: AuthorizationServer, admit: Any = DOCS, **more: Any) -> dict[str, Any]:
    return {"company": {"issuer": guardian.issuer, "admit": admit, **more}}


async def opened(start: Start, guardian: AuthorizationServer, rooms: Any = ROOMS, **more: Any) -> Daemon:
    return await start({"echo": server()}, rooms, identity=company(guardian, **more))


def token(guardian: AuthorizationServer, daemon: Daemon, **claims: Any) -> str:
    return guardian.jwt(**{"aud": daemon.endpoint, **claims})


def at(daemon: Daemon, workspace: str) -> str:
    return daemon.endpoint.replace("/mcp", f"/w/{workspace}/mcp")


async def refused(url: str, given: str | None, era: Era = "legacy") -> tuple[int, str, bytes]:
    """Status, ``WWW-Authenticate`` and body of a request with this token."""
    async with HttpClient(url, token=given, era=era, timeout=LIMIT) as client, client.post(PING) as reply:
        return reply.status, reply.headers.get("www-authenticate", ""), await reply.body()


async def names(client: HttpClient) -> list[str]:
    return [tool["name"] for tool in (await client.result("tools/list"))["tools"]]


async def audit(daemon: Daemon, event: str, count: int = 1) -> list[dict[str, Any]]:
    """The lines of this kind, as soon as there are so many."""
    found: list[dict[str, Any]] = []

    async def written() -> bool:
        code, out, err = await daemon.command("audit", "--json", "-n", "0")
        assert code == 0, err
        found[:] = [row for row in map(json.loads, out.splitlines()) if row["event"] == event]
        return len(found) >= count

    await wait_for(written, 20)
    return found


class Kept:
    """What an SDK client remembers of its login."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def browser(url: str) -> Any:
    """The official SDK's OAuth client, with a person who agrees to everything."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
    from pydantic import AnyUrl

    answers: list[dict[str, list[str]]] = []

    async def go(where: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as http:
            response = await http.get(where)
        answers.append(parse_qs(urlsplit(response.headers["location"]).query))

    async def back() -> AuthorizationCodeResult:
        answer = {name: value[0] for name, value in answers.pop().items()}
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer.get("iss"))

    metadata = OAuthClientMetadata(client_name="A client", redirect_uris=[AnyUrl("http://localhost:9/callback")])
    return OAuthClientProvider(url, metadata, Kept(), go, back)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("path", ["", "a"])
async def test_an_sdk_client_that_knows_only_the_address_logs_in_and_calls_a_tool(
    start: Start, guardian: AuthorizationServer, mode: str, path: str
) -> None:
    """It is refused, finds out where to log in and what to ask for, and comes back; the audit knows who it was."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    daemon = await opened(start, guardian, scopes=["mcp"])
    url = at(daemon, path) if path else daemon.endpoint
    async with (
        httpx2.AsyncClient(auth=browser(url), trust_env=False, timeout=LIMIT) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        result = await client.call_tool("echo_echo", {"text": "hi"})
    assert "hi" in result.content[0].text
    (asked,) = guardian.asked("/authorize")
    assert (asked.form["resource"], asked.form["scope"]) == (url, "mcp")
    assert len(guardian.asked("/jwks")) == 1
    (row,) = await audit(daemon, "call.finished")
    assert (row["key"], row["workspace"], row["tool"]) == ("jwt:alice@company", "a", "echo_echo")
    written = daemon.output + "".join(file.read_text() for file in (daemon.home / "state").glob("audit*"))
    assert guardian.given
    assert not [secret for secret in guardian.given if secret in written]


async def test_who_is_refused_is_told_where_to_log_in_and_nothing_else(
    start: Start, guardian: AuthorizationServer, era: Era
) -> None:
    daemon = await opened(start, guardian, scopes=["mcp", "more"])
    base = daemon.endpoint.removesuffix("/mcp")
    for url in (daemon.endpoint, at(daemon, "a"), at(daemon, "no-such")):
        place = f"{base}/.well-known/oauth-protected-resource{url.removeprefix(base)}"
        status, challenge, _ = await refused(url, None, era)
        assert (status, challenge) == (401, f'Bearer resource_metadata="{place}", scope="mcp more"')
        status, challenge, body = await refused(url, guardian.jwt(aud="https://other.example"), era)
        assert (status, challenge.split(", ")[0]) == (401, 'Bearer error="invalid_token"')
        assert f'resource_metadata="{place}"' in challenge
        assert b"valid key is needed" in body
        async with httpx2.AsyncClient(trust_env=False) as http:
            metadata = (await http.get(place)).json()
        assert metadata["resource"] == url
        assert metadata["authorization_servers"] == [guardian.issuer]
        assert metadata["scopes_supported"] == ["mcp", "more"]
    status, challenge, _ = await refused(daemon.endpoint, token(guardian, daemon, scope="mcp"), era)
    assert (status, challenge.startswith('Bearer error="insufficient_scope", scope="mcp more", ')) == (403, True)
    status, challenge, _ = await refused(daemon.endpoint, token(guardian, daemon, scope="mcp more", groups=[]), era)
    assert (status, challenge) == (403, ""), "another token would not help"
    reasons = [row["data"]["reason"] for row in await audit(daemon, "key.refused", 3)]
    assert any("Audience doesn't match" in reason for reason in reasons)
    assert any("has no scope more" in reason for reason in reasons)


async def test_without_an_issuer_there_is_no_metadata_and_keys_are_asked_for(start: Start) -> None:
    daemon = await start({"echo": server()}, ROOMS)
    assert await refused(daemon.endpoint, "a.b.c") == (401, 'Bearer error="invalid_token"', _body(401))
    async with httpx2.AsyncClient(trust_env=False) as http:
        place = daemon.endpoint.replace("/mcp", "/.well-known/oauth-protected-resource")
        assert (await http.get(place)).status_code == 404
        assert (await http.get(f"{place}/mcp")).status_code == 404


def _body(status: int) -> bytes:
    said = 'A valid key is needed: send it as \\"Authorization: Bearer <key>\\".'
    return b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"%b"}}' % said.encode()


async def test_policy_scopes_and_tools_hold_as_for_a_key(start: Start, guardian: AuthorizationServer, era: Era) -> None:
    rooms = {
        "a": {
            "mcp_servers": ["echo"],
            "policy": {"deny": [{"tool": "env"}]},
            "keys": {"people": {"rate": {"calls": 2, "per": "1h"}}},
        },
        "b": {"mcp_servers": ["echo"]},
    }
    admit = [
        {"workspace": "a", "claims": {"groups": "docs*"}, "key": "people"},
        {"workspace": "a", "claims": {"groups": "bots"}, "tools": ["echo_p*"]},
        {"workspace": "b", "claims": {"groups": "docs*"}, "scopes": ["list"]},
    ]
    daemon = await opened(start, guardian, rooms, admit=admit)
    async with HttpClient(daemon.endpoint, token=token(guardian, daemon), era=era, timeout=LIMIT) as client:
        await client.open()
        seen = await names(client)
        assert "echo_pid" in seen
        assert "echo_env" not in seen
        assert (await client.call("echo_env"))["isError"]
        answers = [await client.call("echo_pid") for _ in range(3)]
        assert [bool(answer.get("isError")) for answer in answers] == [False, False, True]
    limited = token(guardian, daemon, groups=["bots"], sub="robot")
    async with HttpClient(at(daemon, "a"), token=limited, era=era, timeout=LIMIT) as client:
        await client.open()
        assert all(name.startswith("echo_p") for name in await names(client))
        assert (await client.call("echo_echo", {"text": "x"}))["isError"]
        assert not (await client.call("echo_pid")).get("isError"), "the measure of people is not that of bots"
    async with HttpClient(at(daemon, "b"), token=token(guardian, daemon), era=era, timeout=LIMIT) as client:
        await client.open()
        assert await names(client)
        assert (await client.call("echo_pid"))["isError"]


async def test_a_session_belongs_to_one_subject_in_one_workspace(start: Start, guardian: AuthorizationServer) -> None:
    daemon = await opened(start, guardian)
    guardian.claims = {"groups": ["docs-team", "ops"]}
    async with (
        HttpClient(daemon.endpoint, token=token(guardian, daemon), timeout=LIMIT) as alice,
        HttpClient(daemon.endpoint, token=token(guardian, daemon, sub="mallory"), timeout=LIMIT) as other,
        HttpClient(at(daemon, "b"), token=token(guardian, daemon), timeout=LIMIT) as elsewhere,
        HttpClient(daemon.endpoint, token=await daemon.key("a"), timeout=LIMIT) as key,
    ):
        await alice.open()
        for thief in (other, elsewhere, key):
            thief.session = alice.session
            async with thief.post(PING) as reply:
                assert reply.status == 404
        alice.token = token(guardian, daemon, jti="another token of hers")
        assert await names(alice)


@pytest.mark.parametrize("sharing", ["shared", "session"])
async def test_one_person_in_two_workspaces_is_two_callers(
    start: Start, guardian: AuthorizationServer, era: Era, sharing: str
) -> None:
    """What is open in one is not touched by what is done in the other, and handles of one mean nothing there."""
    daemon = await start({"echo": server(sharing=sharing)}, ROOMS, identity=company(guardian))
    guardian.claims = {"groups": ["docs-team", "ops"]}
    given = token(guardian, daemon)
    async with (
        HttpClient(at(daemon, "a"), token=given, era=era, timeout=LIMIT) as here,
        HttpClient(at(daemon, "b"), token=given, era=era, timeout=LIMIT) as there,
    ):
        await here.open()
        await there.open()
        async with here.listening({"toolsListChanged": True}) as stream:
            pids = {name: str(await client.call("echo_pid")) for name, client in (("a", here), ("b", there)) * 2}
            assert not stream.complete
        assert (pids["a"] == pids["b"]) is (sharing == "shared")
        rows = await audit(daemon, "call.finished", 4)
        assert [row["workspace"] for row in rows] == ["a", "b", "a", "b"]


async def test_a_token_for_one_endpoint_is_good_for_that_one(start: Start, guardian: AuthorizationServer) -> None:
    """RFC 8707: a token names whom it is for."""
    daemon = await opened(start, guardian)
    guardian.claims = {"groups": ["docs-team", "ops"]}
    given = guardian.jwt(aud=at(daemon, "b"))
    assert (await refused(at(daemon, "a"), given))[0] == 403
    async with HttpClient(daemon.endpoint, token=given, timeout=LIMIT) as client:
        await client.open()
        await client.call("echo_pid")
    (row,) = await audit(daemon, "call.finished")
    assert row["workspace"] == "b"


async def test_the_end_of_a_token_ends_its_streams_and_a_new_one_goes_on(
    start: Start, guardian: AuthorizationServer, era: Era
) -> None:
    daemon = await opened(start, guardian, leeway=0)
    guardian.lifetime = 3.0
    async with HttpClient(daemon.endpoint, token=token(guardian, daemon), era=era, timeout=LIMIT) as client:
        await client.open()
        async with client.listening({"toolsListChanged": True}) as stream:
            await wait_for(lambda: stream.complete, LIMIT)
        assert (await refused(daemon.endpoint, client.token, era))[0] == 401
        guardian.lifetime = 3600.0
        client.token = token(guardian, daemon)
        assert await names(client), "the session is still there"


@pytest.mark.parametrize("left", ["nothing", "others"])
async def test_who_is_let_in_no_more_is_out_at_once(
    start: Start, guardian: AuthorizationServer, era: Era, left: str
) -> None:
    daemon = await opened(start, guardian)
    async with (
        HttpClient(daemon.endpoint, token=token(guardian, daemon), era=era, timeout=LIMIT) as client,
        HttpClient(daemon.endpoint, token=token(guardian, daemon, groups=["ops"]), timeout=LIMIT) as other,
    ):
        await client.open()
        await other.open()
        async with client.listening({"toolsListChanged": True}) as stream:
            more = {} if left == "nothing" else {"identity": company(guardian, DOCS[1:])}
            write_config(daemon.home / "mooring.toml", {"echo": server()}, ROOMS, **more)
            assert (await daemon.mooring.reload()).applied
            await wait_for(lambda: stream.complete, LIMIT)
        status, challenge, _ = await refused(daemon.endpoint, client.token, era)
        assert (status, challenge) == ((401, 'Bearer error="invalid_token"') if left == "nothing" else (403, ""))
        if left == "others":
            assert await names(other), "nobody else notices"


async def test_keys_of_the_issuer_that_cannot_be_had_are_said_to_the_operator_only(
    start: Start, guardian: AuthorizationServer
) -> None:
    """Mooring's own keys work on, and it heals by itself."""
    daemon = await opened(start, guardian)
    guardian.metadata["jwks_uri"] = f"{guardian.issuer}/gone"
    given = token(guardian, daemon)
    status, challenge, body = await refused(daemon.endpoint, given)
    assert (status, challenge) == (503, "")
    assert guardian.issuer.encode() not in body
    (row,) = await audit(daemon, "identity.failed")
    assert row["data"] == {"issuer": "company", "reason": f"{guardian.issuer}/gone answers HTTP 404"}
    async with await daemon.client("a", timeout=LIMIT) as client:
        await client.open()
    guardian.metadata.clear()

    async def healed() -> bool:
        return (await refused(daemon.endpoint, given))[0] == 400  # in: a session is missing, and nothing else

    await wait_for(healed, 20)
    assert await audit(daemon, "identity.recovered")


async def test_the_body_of_somebody_unknown_is_not_read_before_the_keys_are_there(
    start: Start, guardian: AuthorizationServer
) -> None:
    daemon = await opened(start, guardian)
    good, bad = token(guardian, daemon), token(guardian, daemon, aud="https://other.example")
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x" * (8 << 20), "version": "1"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()

    async def sent(given: str) -> int:
        async with HttpClient(daemon.endpoint, token=given, timeout=LIMIT) as client:
            try:
                async with client.post(body) as reply:
                    return reply.status
            except ConnectionError:
                return 401  # cut off while it was still sending

    assert await asyncio.gather(sent(good), sent(bad), sent(good)) == [200, 401, 200]
    assert len(guardian.asked("/jwks")) == 1, "fetched once for all who wait"
