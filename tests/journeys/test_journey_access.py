"""Who may come in, and by which door: the endpoint of one variant, and keys that end while they are in use."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mooring.errors import MooringError
from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.http_client import HttpClient
from mooring.testing.speech import DIALOGUE, Era

Start = Callable[..., Awaitable[Daemon]]
ROOMS = {"a": {"mcp_servers": ["echo", "other"]}, "b": {"mcp_servers": ["echo"]}}


def door(daemon: Daemon, variant: str) -> str:
    return daemon.endpoint.replace("/mcp", f"/s/{variant}/mcp")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_endpoint_of_a_variant_offers_its_tools_under_their_own_names(start: Start, era: Era) -> None:
    daemon = await start({"echo": server(), "other": server()}, ROOMS)
    key = await daemon.mooring.key_create("a", variant="echo")
    async with HttpClient(door(daemon, "echo"), token=key.key, era=era) as client:
        await client.open()
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert "pid" in names
        assert not any(name.startswith(("echo_", "other_")) for name in names)
        assert not (await client.call("pid")).get("isError")
        assert (await client.call("other_pid"))["isError"]
        assert (await client.call("echo_pid"))["isError"]
    async with HttpClient(daemon.endpoint, token=key.key, era=era) as client:
        await client.open()
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names
        assert all(name.startswith("echo_") for name in names)


async def test_the_endpoint_of_a_variant_is_closed_to_other_keys(start: Start) -> None:
    """R19, R24: a key of the whole workspace, of another variant, of another workspace without it, and no key."""
    daemon = await start({"echo": server(), "other": server()}, ROOMS)
    made = [
        await daemon.key("a"),
        (await daemon.mooring.key_create("a", variant="other")).key,
        (await daemon.mooring.key_create("b", variant="echo")).key,
    ]
    for variant, token, status in [("echo", made[0], 403), ("echo", made[1], 403), ("other", made[2], 403)]:
        async with HttpClient(door(daemon, variant), token=token) as client, client.post(b"{}") as reply:
            assert (reply.status, b"Not available" in await reply.body()) == (status, True)
    async with HttpClient(door(daemon, "echo")) as client, client.post(b"{}") as reply:
        assert reply.status == 401


async def test_a_session_of_one_endpoint_is_unknown_at_the_other(start: Start) -> None:
    daemon = await start({"echo": server()}, {"a": {"mcp_servers": ["echo"]}})
    key = await daemon.mooring.key_create("a", variant="echo")
    async with (
        HttpClient(door(daemon, "echo"), token=key.key) as bare,
        HttpClient(daemon.endpoint, token=key.key) as full,
    ):
        await bare.open()
        full.session = bare.session
        async with full.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}') as reply:
            assert reply.status == 404


async def test_a_key_for_a_variant_that_is_not_there_is_not_made(start: Start) -> None:
    daemon = await start({"echo": server(), "other": server()}, ROOMS)
    with pytest.raises(MooringError, match=r'no variant "nope"\. Its variants: echo, other'):
        await daemon.mooring.key_create("a", variant="nope")
    code, _, err = await daemon.command("key", "create", "b", "--variant", "other")
    assert (code, "Its variants: echo" in err) == (2, True)


@pytest.mark.parametrize("ending", ["revoke", "rotate", "expire"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_end_of_a_key_ends_its_streams(start: Start, era: Era, ending: str) -> None:
    daemon = await start({"echo": server()}, {"a": {"mcp_servers": ["echo"]}})
    expires_at = time.time() + 2.0 if ending == "expire" else None
    key = await daemon.mooring.key_create("a", expires_at=expires_at)
    async with HttpClient(daemon.endpoint, token=key.key, era=era) as client:
        await client.open()
        request = {"toolsListChanged": True}
        async with client.listening(request) as stream:
            if ending == "revoke":
                await daemon.mooring.key_revoke(key.id)
            elif ending == "rotate":
                await daemon.mooring.key_rotate(key.id)
            async with asyncio.timeout(20):
                while not stream.complete:
                    await asyncio.sleep(0.02)
        async with client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}') as reply:
            assert reply.status == 401


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_agrees_over_http_and_everything_is_in_the_audit(start: Start, era: Era) -> None:
    """R23 R24: asked in the client's own era; who did what, and what was refused, with the reason."""
    rooms = {"w": {"mcp_servers": ["echo"], "policy": {"confirm": [{"tool": "counter"}], "deny": [{"tool": "env"}]}}}
    audited = {"arguments": [{"tool": "counter"}]}
    daemon = await start({"echo": server()}, rooms, None, audit=audited)
    key = await daemon.mooring.key_create("w", name="laptop")
    async with HttpClient(daemon.endpoint, token=key.key, era=era, capabilities=DIALOGUE) as client:
        await client.open()
        assert not (await client.call("echo_counter", {"by": 5})).get("isError")
        client.answers["elicitation/create"] = {"action": "decline"}
        assert (await client.call("echo_counter"))["isError"]
        assert (await client.call("echo_env"))["isError"]
    async with HttpClient(daemon.endpoint, token=key.key, era=era) as client:
        await client.open()
        assert "does not offer elicitation" in str(await client.call("echo_counter"))

    async def recorded() -> list[dict[str, Any]]:
        code, out, _ = await daemon.command("audit", "--json", "-w", "w", "--tool", "echo_*")
        assert code == 0
        return [json.loads(line) for line in out.splitlines()]

    async with asyncio.timeout(20):
        while len(found := [row for row in await recorded() if "decision" in row]) < 4 + 2 * (era == "modern"):
            await asyncio.sleep(0.1)
    confirmed = [row for row in found if row["decision"] == "confirmed"]
    assert confirmed[-1]["arguments"] == {"by": 5}
    assert (confirmed[0]["key"], confirmed[0]["server"]) == (key.id, "echo")
    reasons = {row["reason"] for row in found if row["decision"] == "denied"}
    assert reasons == {
        "the user did not agree",
        'deny[0] of the policy of workspace "w"',
        "a person has to agree, and the client cannot ask one",
    }
    code, out, _ = await daemon.command("audit", "--json", "--denied")
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, _ = await daemon.command("check", "--as", key.id, "--json")
    access = {row["name"]: row for row in json.loads(out)["access"]}
    assert (access["echo_counter"]["call"], access["echo_env"]["call"], access["echo_pid"]["call"]) == (
        "confirm",
        "no",
        "yes",
    )
    assert key.key not in out


async def test_a_changed_tool_is_shown_and_approved_at_the_command_line(start: Start) -> None:
    daemon = await start({"echo": server("--changing")}, None, {"pins": "strict"})
    async with await daemon.client("w") as client:
        await client.open()
        before = {tool["name"] for tool in (await client.result("tools/list"))["tools"]}
        await client.call("echo_change", {"kind": "tools"})
        code, out = 0, ""
        async with asyncio.timeout(20):
            while "it is new" not in out:
                code, out, _ = await daemon.command("pins", "diff", "echo")
        assert code == 0
        assert '+  "name": ' in out
        assert {tool["name"] for tool in (await client.result("tools/list"))["tools"]} == before
        (row,) = await daemon.rows("echo")
        assert row.unapproved == 1
        code, shown, err = await daemon.command("pins", "approve", "echo")
        assert (code, shown.startswith(out.rstrip()), "--yes" in err) == (2, True, True)
        assert (await daemon.command("pins", "approve", "echo", stdin=b"n\n"))[0] == 1
        assert (await daemon.rows("echo"))[0].unapproved == 1
        code, out, _ = await daemon.command("pins", "approve", "echo", "--json", "--yes")
        (approved,) = json.loads(out)
        assert (code, approved["state"]) == (0, "new")
        code, _, err = await daemon.command("pins", "approve", "echo", approved["tool"], "--yes")
        assert (code, f'No tool "{approved["tool"]}" of echo waits' in err) == (2, True)
        names = {tool["name"] for tool in (await client.result("tools/list"))["tools"]}
        assert names - before == {f"echo_{approved['tool']}"}
        assert (await daemon.command("check"))[0] == 0


async def test_every_change_of_a_key_is_in_the_audit_and_no_value_is(start: Start) -> None:
    daemon = await start({"echo": server()}, {"a": {"mcp_servers": ["echo"]}})
    flags = ("--name", "ci", "--scope", "list", "--tools", "echo_*", "--variant", "echo", "--expires", "30d")
    code, out, err = await daemon.command("key", "create", "a", *flags, "--json")
    assert code == 0, err
    made = json.loads(out)
    code, out, _ = await daemon.command("key", "rotate", made["id"], "--json")
    rotated = json.loads(out)
    assert (await daemon.command("key", "revoke", made["id"]))[0] == 0
    rows: list[dict[str, Any]] = []

    async def written() -> bool:
        _, out, _ = await daemon.command("audit", "--json")
        rows[:] = [row for row in map(json.loads, out.splitlines()) if row["event"].startswith("key.")]
        return len(rows) == 3

    await wait_for(written, 20)
    assert [row["event"] for row in rows] == ["key.created", "key.rotated", "key.revoked"]
    assert all(row["workspace"] == "a" and row["data"]["key"] == made["id"] for row in rows)
    created = rows[0]["data"]
    assert (created["scopes"], created["tools"], created["variant"]) == (["list"], ["echo_*"], "echo")
    assert created["expires_at"] > time.time() + 29 * 86400
    assert not [key for key in (made["key"], rotated["key"]) if key in json.dumps(rows)]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_scopes_and_tool_filters_of_a_key_hold_over_http(start: Start, era: Era) -> None:
    daemon = await start({"echo": server()}, {"a": {"mcp_servers": ["echo"]}})
    reader = await daemon.mooring.key_create("a", name="reader", scopes=("list",))
    caller = await daemon.mooring.key_create("a", name="caller", scopes=("call",))
    narrow = await daemon.mooring.key_create("a", name="narrow", tools=("echo_p*",))

    async def may(key: str) -> tuple[bool, bool, bool]:
        """Lists something, lists all, calls."""
        async with HttpClient(daemon.endpoint, token=key, era=era) as client:
            await client.open()
            names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
            called = not (await client.call("echo_pid")).get("isError")
            return bool(names), "echo_echo" in names, called

    assert await may(reader.key) == (True, True, False)
    assert await may(caller.key) == (False, False, True)
    assert await may(narrow.key) == (True, False, True)
    async with HttpClient(daemon.endpoint, token=narrow.key, era=era) as client:
        await client.open()
        assert (await client.call("echo_echo", {"text": "x"}))["isError"]
