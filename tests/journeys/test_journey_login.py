"""Logging in at a remote server, as a person does it, and what follows from it in the daemon."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from guarded_server import GuardedServer
from mooring.testing import HttpClient, wait_for
from mooring.testing.daemon import Daemon, launched
from mooring.testing.login import log_in

Start = Callable[..., Awaitable[Daemon]]
LIMIT = 90.0


@pytest.fixture(autouse=True)
def without_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@pytest.fixture(params=["legacy", "modern"])
async def far(request: pytest.FixtureRequest) -> AsyncIterator[GuardedServer]:
    async with asyncio.timeout(LIMIT), GuardedServer(request.param) as server:
        yield server


@pytest.fixture
async def server() -> AsyncIterator[GuardedServer]:
    async with asyncio.timeout(LIMIT), GuardedServer() as server:
        yield server


def table(server: GuardedServer, **more: Any) -> dict[str, Any]:
    return {"far": {"url": server.url, "auth": "oauth", **more}}


async def status(running: Daemon) -> dict[str, Any]:
    code, out, err = await running.command("auth", "status", "far", "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    return row


async def signed_in(running: Daemon, **more: Any) -> dict[str, Any]:
    code, out, err = await log_in(running.env, "far", **more)
    assert code == 0, err
    return json.loads(out)


async def works(it: HttpClient) -> bool:
    return not (await it.call("far_echo")).get("isError")


def files(home: Path) -> list[Path]:
    return [file for file in home.rglob("*") if file.is_file()]


async def test_a_login_opens_the_server_at_once_and_its_tokens_are_in_one_private_file(
    start: Start, far: GuardedServer
) -> None:
    """A35: until then the error says what to do; afterwards a call costs no look at the store."""
    running = await start(table(far))
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        refused = await it.call("far_echo")
        assert refused["isError"]

        async def said() -> bool:
            rows = await running.rows("far")
            return any("needs login (there is none): mooring auth login far" in row.reason for row in rows)

        await wait_for(said, 10)
        assert (await status(running))["state"] == "logged out"
        row = await signed_in(running)
        assert (row["state"], row["issuer"], row["scopes"]) == ("logged in", far.guardian.issuer, ["basic"])
        await wait_for(lambda: works(it), 10)
        assert far.last("tools/call").headers["authorization"].startswith("Bearer access-")
    (registration,) = far.guardian.asked("/register")
    assert registration.form["application_type"] == "native"
    assert registration.form["redirect_uris"][0].startswith("http://localhost:")
    (asked,) = far.guardian.asked("/authorize")
    assert (asked.form["resource"], asked.form["code_challenge_method"]) == (far.url, "S256")
    holding = [file for file in files(running.home) if any(t.encode() in file.read_bytes() for t in far.guardian.given)]
    assert [file.name for file in holding] == ["far.json"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(holding[0].parent.stat().st_mode) == 0o700


async def test_tokens_appear_nowhere(start: Start, server: GuardedServer) -> None:
    """A35: not in the log, in what verbs print, in errors that servers provoke, or in command lines."""

    async def tell(it: Any, arguments: Any) -> None:
        await it.error(200, -32000, f"you sent {it.headers['authorization']}")

    server.tools["tell"] = tell
    running = await start(table(server))
    await signed_in(running)
    shown = json.dumps(await status(running))
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)
        await it.request("tools/call", {"name": "far_tell"})
        server.guardian.tokens.clear()
        server.guardian.refresh_tokens.clear()
        shown += json.dumps(await it.call("far_echo"))
    for verb in (("ps", "--json"), ("check", "--json"), ("logs", "far"), ("server", "show", "far"), ("auth", "status")):
        _, out, err = await running.command(*verb)
        shown += out + err
    shown += running.output
    proc = Path(f"/proc/{running.process.pid}")
    if proc.exists():
        shown += (proc / "cmdline").read_text() + (proc / "environ").read_text()
    assert server.guardian.given
    assert not [token for token in server.guardian.given if token in shown]


async def test_a_token_is_renewed_before_it_ends_and_once_for_all_who_wait(start: Start, server: GuardedServer) -> None:
    """A35: the daemon renews it by itself; a client that has a secret proves itself with it."""
    server.guardian.secret = "s3cret/of the client"
    server.guardian.lifetime = 31.0  # it counts as expired 30 s before its end
    running = await start(table(server))
    await signed_in(running)
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)
        await asyncio.sleep(1.1)
        server.guardian.lifetime = 3600.0
        before = len(server.guardian.asked("/token"))
        assert all(await asyncio.gather(*(works(it) for _ in range(8))))
        renewals = server.guardian.asked("/token")[before:]
        assert [each.form["grant_type"] for each in renewals] == ["refresh_token"]
        assert renewals[0].form["resource"] == server.url
        assert len(server.guardian.asked("/authorize")) == 1
    assert (await status(running))["expires_at"] > time.time() + 3000


async def test_a_token_that_was_taken_back_is_renewed_when_it_is_refused(start: Start, far: GuardedServer) -> None:
    far.guardian.lifetime = None
    running = await start(table(far))
    await signed_in(running)
    async with await running.client("w", "legacy", timeout=LIMIT) as it:
        await it.open()
        await wait_for(lambda: works(it), 10)
        far.guardian.tokens.clear()
        assert await works(it)
        assert [each.form["grant_type"] for each in far.guardian.asked("/token")][-1] == "refresh_token"


async def test_a_server_that_is_slow_after_a_login_is_starting_and_needs_no_other(
    start: Start, server: GuardedServer
) -> None:
    """A35: why it could not be listed before does not hold any more."""
    running = await start(table(server))
    async with await running.client("w", "modern", timeout=LIMIT) as it:

        async def missing() -> str:
            return str((await it.result("tools/list")).get("_meta", {}).get("mooring/missing"))

        async def said() -> bool:
            return "needs login" in await missing()

        await wait_for(said, 10)
        guard, go = server.override, asyncio.Event()
        assert guard is not None

        async def slow(exchange: Any) -> bool:
            if "authorization" in exchange.headers:
                await go.wait()
            return await guard(exchange)

        server.override = slow
        await signed_in(running)
        assert "starting" in await missing()
        go.set()
        await wait_for(lambda: works(it), 10)


async def test_an_ended_login_says_so_and_a_new_one_goes_on(start: Start, server: GuardedServer) -> None:
    """A35: nothing is restarted for it by hand."""
    running = await start(table(server))
    await signed_in(running)
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)
        server.guardian.tokens.clear()
        server.guardian.refresh_tokens.clear()
        refused = await it.call("far_echo")
        assert refused["isError"]
        assert "needs login (it has ended): mooring auth login far" in refused["content"][0]["text"]
        assert (await status(running))["state"] == "expired"
        await signed_in(running)
        assert await works(it)
        assert len(server.guardian.asked("/register")) == 1, "the client is the same"


async def test_an_authorization_server_that_is_down_ends_no_login(start: Start, server: GuardedServer) -> None:
    running = await start(table(server))
    await signed_in(running)
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)
        server.guardian.tokens.clear()
        server.guardian.broken = 503
        refused = await it.call("far_echo")
        assert "cannot be renewed now (HTTP 503" in refused["content"][0]["text"]
        server.guardian.broken = 0
        assert await works(it)


async def test_more_scopes_are_asked_for_besides_those_there_are(start: Start, far: GuardedServer) -> None:
    """A35: step-up: a refused call says so, the next login asks for the union, and the session goes on."""
    far.scopes["tools/call"] = "write"
    running = await start(table(far))
    await signed_in(running)
    async with await running.client("w", "modern", timeout=LIMIT) as it:

        async def listed() -> bool:
            return bool((await it.result("tools/list"))["tools"])

        await wait_for(listed, 10)
        refused = await it.call("far_echo")
        assert "needs login (it does not go far enough)" in refused["content"][0]["text"]
        assert (await status(running))["state"] == "insufficient"
        (before,) = await running.rows("far")
        assert set((await signed_in(running))["scopes"]) == {"basic", "write"}
        assert await works(it)
        (row,) = await running.rows("far")
        assert row.restarts == before.restarts


async def test_the_redirected_address_can_be_pasted(start: Start, server: GuardedServer) -> None:
    """A machine without a browser."""
    running = await start(table(server))
    assert (await signed_in(running, paste=True))["state"] == "logged in"


async def test_a_logout_revokes_and_forgets(start: Start, server: GuardedServer) -> None:
    running = await start(table(server))
    await signed_in(running)
    async with await running.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)
        assert (await running.command("auth", "logout", "far"))[0] == 0
        assert not server.guardian.tokens
        assert not server.guardian.refresh_tokens

        async def refused() -> bool:
            result = await it.call("far_echo")
            return bool(result.get("isError")) and "needs login (there is none)" in result["content"][0]["text"]

        await wait_for(refused, 10)
    assert not [
        file for file in files(running.home) if any(t in file.read_text("latin-1") for t in server.guardian.given)
    ]
    assert (await status(running))["state"] == "logged out"


async def test_the_old_transport_is_logged_in_at_too(start: Start) -> None:
    """A35: HTTP+SSE, whose messages go to another address of the same server."""
    async with asyncio.timeout(LIMIT), GuardedServer("sse") as server:
        running = await start(table(server, transport="sse"))
        await signed_in(running)
        async with await running.client("w", "modern", timeout=LIMIT) as it:
            await wait_for(lambda: works(it), 10)
        assert all("authorization" in each.headers for each in server.seen if each.path.startswith("/messages"))


async def test_a_login_at_a_server_that_no_workspace_has_disturbs_no_daemon(
    start: Start, server: GuardedServer
) -> None:
    async with GuardedServer() as other:
        servers = {**table(server), "other": {"url": other.url, "auth": "oauth"}}
        running = await start(servers, {"w": {"mcp_servers": ["other"]}})
        code, out, err = await log_in(running.env, "far")
        assert (code, json.loads(out)["state"]) == (0, "logged in")
        assert "mooring:" not in err


async def test_a_login_without_a_daemon_is_there_when_one_starts(start: Start, server: GuardedServer) -> None:
    running = await start(table(server))
    await running.mooring.stop()
    await running.ended()
    await signed_in(running)
    assert (await status(running))["state"] == "logged in"
    async with launched(running.home) as again, await again.client("w", "modern", timeout=LIMIT) as it:
        await wait_for(lambda: works(it), 10)


async def test_a_registered_client_is_used_and_never_shown_to_another_authorization_server(
    start: Start, server: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A35: its secret is a reference, and bound to the first authorization server it was used with."""
    monkeypatch.setenv("FAR_SECRET", "s3cret")
    server.guardian.secret = "s3cret"
    client = {"client_id": "me", "client_secret": {"env": "FAR_SECRET"}}
    running = await start(table(server, oauth=client))
    assert (await signed_in(running))["client_id"] == "me"
    assert not server.guardian.asked("/register")
    assert b"s3cret" not in b"".join(file.read_bytes() for file in files(running.home))
    async with GuardedServer() as other:
        server.resource["authorization_servers"] = [other.guardian.issuer]
        server.guardian.tokens.clear()
        await signed_in(running)
        assert other.guardian.asked("/register")
        assert all("me" not in each.form.values() for each in other.guardian.requests)
        assert all("s3cret" not in str(each.form) + str(each.headers) for each in other.guardian.requests)


async def test_a_server_at_another_address_does_not_get_the_token(start: Start, server: GuardedServer) -> None:
    """A35: the configuration changed; the login belongs to the old address."""
    async with GuardedServer() as other:
        running = await start(table(server))
        await signed_in(running)
        file = running.home / "mooring.toml"
        file.write_text(file.read_text().replace(server.url, other.url))
        await running.mooring.reload()
        assert (await status(running))["state"] == "logged out"
        await wait_for(lambda: other.seen, 10)
        assert not other.calls()
    assert os.path.exists(file)
