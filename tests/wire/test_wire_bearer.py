"""Tokens in use: sent, renewed, looked up again, and the errors when that does not help."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from guarded_server import GuardedServer
from mooring.errors import Busy, Unavailable
from mooring.launch.base import Url
from mooring.testing import wait_for
from mooring.wire import bearer as module
from mooring.wire.bearer import Bearer
from mooring.wire.connection import Connection
from mooring.wire.eras import to_modern_params
from mooring.wire.jsonrpc import EMPTY, Answer
from mooring.wire.login import Client, Login, decoded, encoded
from mooring.wire.remote_upstream import Terms, connect
from mooring.wire.token_endpoint import revoke
from raw_http_server import Exchange

LIMIT = 30.0


class Nobody:
    """A listener that hears nothing."""

    def announced(self, method: str, params: bytes) -> None: ...

    async def asked(self, method: str, params: bytes) -> Answer:
        return Answer(result=EMPTY)


async def call(connection: Connection) -> Any:
    params = to_modern_params(
        b'{"name":"echo","arguments":{}}', version=connection.facts.version, capabilities=EMPTY, client_info=EMPTY
    )
    answer = await connection.request("tools/call", params)
    return json.loads(answer.result or answer.error or b"")


class Memory:
    """A place in memory."""

    def __init__(self, login: Login | None = None) -> None:
        self.raw = None if login is None else encoded(login)
        self.reads = 0

    async def read(self) -> bytes | None:
        self.reads += 1
        return self.raw

    async def change(self, to: Callable[[bytes | None], bytes | None]) -> None:
        self.raw = to(self.raw)


class Bench:
    """Conversations with one server, by what is kept in ``place``."""

    def __init__(self, server: GuardedServer, stack: AsyncExitStack) -> None:
        self.server = server
        self.place = Memory()
        self.learned: list[str] = []
        self.turn = asyncio.Lock()
        self._stack = stack

    def log_in(self, scope: str = "basic", *, lifetime: float = 3600.0, **more: Any) -> Login:
        """What ``mooring auth login`` would put there."""
        guardian = self.server.guardian
        number = len(guardian.given)
        access, refresh = f"access-{number}", f"refresh-{number}"
        guardian.given += (access, refresh)
        guardian.tokens[access] = scope, time.time() + lifetime
        guardian.refresh_tokens[refresh] = scope
        login = Login(
            self.server.url,
            **{
                "access_token": access,
                "refresh_token": refresh,
                "expires_at": time.time() + lifetime,
                "scope": scope,
                "issuer": guardian.issuer,
                "token_endpoint": f"{guardian.issuer}/token",
                "revocation_endpoint": f"{guardian.issuer}/revoke",
                "client": Client("me", method="none"),
                **more,
            },
        )
        self.place.raw = encoded(login)
        return login

    @property
    def kept(self) -> Login:
        return decoded(self.place.raw, self.server.url)

    async def connect(self, era: Any = None) -> Connection:
        exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        auth = Bearer("far", self.server.url, self.place, learned=self.learned.append, turn=self.turn)
        terms = Terms("far", exited, Nobody(), b"{}", LIMIT, lambda step: None, era=era, auth=auth)
        return await self._stack.enter_async_context(connect(Url(self.server.url), terms))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.timeout(LIMIT * 2), AsyncExitStack() as stack:
        yield Bench(await stack.enter_async_context(GuardedServer()), stack)


async def test_every_request_carries_the_token_and_the_place_is_read_once(bench: Bench) -> None:
    login = bench.log_in()
    connection = await bench.connect()
    for _ in range(5):
        assert "isError" not in await call(connection)
    assert {it.headers["authorization"] for it in bench.server.seen} == {f"Bearer {login.access_token}"}
    assert bench.place.reads == 1
    assert set(bench.learned) == {login.access_token, login.refresh_token}


async def test_without_a_login_the_refusal_says_what_to_do_and_is_kept_for_the_login(bench: Bench) -> None:
    with pytest.raises(Unavailable, match=r"far needs login \(there is none\): mooring auth login far") as raised:
        await bench.connect()
    assert raised.value.details["http"] == 401
    assert bench.kept.challenge is not None
    assert 'scope="basic"' in bench.kept.challenge.header


async def test_what_needs_no_token_works_without(bench: Bench) -> None:
    bench.server.public = ("server/discover", "subscriptions/listen", "tools/list")
    connection = await bench.connect()
    with pytest.raises(Unavailable, match="there is none"):
        await call(connection)
    bench.log_in()
    assert "isError" not in await call(connection), "the new login counts at once"


async def test_one_renewal_serves_all_and_outlives_the_caller_that_began_it(bench: Bench) -> None:
    old = bench.log_in(lifetime=10.0)
    bench.server.public = ("server/discover", "subscriptions/listen")
    connection = await bench.connect()
    first = asyncio.create_task(call(connection))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    results = await asyncio.gather(*(call(connection) for _ in range(5)))
    assert all("isError" not in result for result in results)
    assert len(bench.server.guardian.asked("/token")) == 1
    new = bench.kept
    assert new.access_token != old.access_token
    assert new.refresh_token != old.refresh_token
    assert new.client == old.client
    assert {new.access_token, new.refresh_token} <= set(bench.learned)


async def test_of_two_conversations_with_one_login_one_renews_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh token that comes twice is taken for stolen: the login would be over for both."""
    bench.log_in()
    both = [await bench.connect() for _ in range(2)]
    bench.server.guardian.tokens.clear()
    refresh, go_on = module.refresh, asyncio.Event()

    async def slow(*args: Any) -> Any:
        await go_on.wait()
        return await refresh(*args)

    monkeypatch.setattr(module, "refresh", slow)
    calls = [asyncio.create_task(call(connection)) for connection in both]
    await wait_for(lambda: len([it for it in bench.server.seen if it.message.get("method") == "tools/call"]) == 2)
    await asyncio.sleep(0.05)  # both want another token now
    go_on.set()
    assert all("isError" not in result for result in await asyncio.gather(*calls))
    assert len(bench.server.guardian.asked("/token")) == 1


async def test_a_login_made_meanwhile_is_not_replaced_by_a_renewal(bench: Bench) -> None:
    bench.log_in()
    connection = await bench.connect()
    bench.server.guardian.tokens.clear()
    bench.server.guardian.refresh_tokens.clear()
    newer = bench.log_in()
    assert "isError" not in await call(connection)
    assert bench.kept == newer
    assert not bench.server.guardian.asked("/token")


async def test_a_refused_renewal_ends_the_login_but_not_the_client(bench: Bench) -> None:
    bench.log_in()
    connection = await bench.connect()
    bench.server.guardian.tokens.clear()
    bench.server.guardian.refresh_tokens.clear()
    for _ in range(2):
        with pytest.raises(Unavailable, match="it has ended"):
            await call(connection)
    assert len(bench.server.guardian.asked("/token")) == 1, "what failed for good is not tried again"
    assert (bench.kept.access_token, bench.kept.client) == ("", Client("me", method="none"))


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
async def test_an_authorization_server_in_trouble_ends_nothing(bench: Bench, status: int) -> None:
    bench.log_in()
    connection = await bench.connect()
    bench.server.guardian.tokens.clear()
    bench.server.guardian.broken = status
    with pytest.raises(Busy, match=f"HTTP {status}"):
        await call(connection)
    bench.server.guardian.broken = 0
    assert "isError" not in await call(connection)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("http://169.254.169.254/token", "only https"),
        ("https://169.254.169.254/token", "not an address"),
        ("http://127.0.0.1:9/token", "cannot be asked"),
    ],
)
async def test_tokens_are_renewed_at_addresses_that_may_be_gone_to(bench: Bench, place: str, why: str) -> None:
    """A35"""
    bench.log_in(token_endpoint=place)
    connection = await bench.connect()
    bench.server.guardian.tokens.clear()
    with pytest.raises(Unavailable, match=why):
        await call(connection)


async def test_a_token_that_is_refused_again_is_not_tried_for_ever(bench: Bench) -> None:
    bench.log_in()
    connection = await bench.connect()
    bench.server.scopes["tools/call"] = "nobody has this"

    async def always(it: Exchange) -> bool:
        if it.message.get("method") != "tools/call":
            return False
        await it.reply(401)
        return True

    bench.server.override = always
    with pytest.raises(Unavailable, match="needs login"):
        await call(connection)
    assert bench.server.methods().count("tools/call") == 2
    assert len(bench.server.guardian.asked("/token")) == 1


async def test_a_refusal_that_no_login_ends_is_passed_on(bench: Bench) -> None:
    bench.log_in()
    connection = await bench.connect()

    async def forbidden(it: Exchange) -> bool:
        await it.reply(403)
        return True

    bench.server.override = forbidden
    with pytest.raises(Unavailable, match="HTTP 403"):
        await call(connection)
    assert bench.kept.challenge is None


async def test_what_is_not_enough_says_so_and_more_counts_at_once(bench: Bench) -> None:
    bench.log_in()
    connection = await bench.connect()
    bench.server.scopes["tools/call"] = "write"
    with pytest.raises(Unavailable, match="it does not go far enough"):
        await call(connection)
    assert bench.kept.challenge is not None
    assert bench.kept.challenge.status == 403
    assert not bench.server.guardian.asked("/token"), "a renewal would not help"
    bench.log_in("basic write")
    assert "isError" not in await call(connection)


async def test_a_renewal_under_way_is_awaited_at_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authorization server has taken the old token back; the new one must not be lost."""
    old = bench.log_in(lifetime=1.0)
    asked, go_on = asyncio.Event(), asyncio.Event()
    refresh = module.refresh

    async def slow(*args: Any) -> Any:
        response = await refresh(*args)
        asked.set()
        await go_on.wait()
        return response

    monkeypatch.setattr(module, "refresh", slow)
    async with Bearer("far", bench.server.url, bench.place) as bearer:
        caller = asyncio.create_task(bearer.token())
        await asked.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        go_on.set()
    assert bench.kept.refresh_token in bench.server.guardian.refresh_tokens
    assert bench.kept.refresh_token != old.refresh_token


async def test_tokens_are_given_back(bench: Bench) -> None:
    login = bench.log_in()
    assert await revoke("far", login, "")
    assert not bench.server.guardian.tokens
    assert not bench.server.guardian.refresh_tokens
    assert not await revoke("far", bench.log_in(revocation_endpoint=""), "")
    assert not await revoke("far", bench.log_in(revocation_endpoint=f"{bench.server.guardian.issuer}/other"), "")
