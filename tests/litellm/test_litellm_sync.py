"""Syncs, against the fake and the real LiteLLM: everything once, nothing twice, every drift repaired by one."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from litellm_api import Api
from litellm_rig import BASE, TWO_TEAMS, Rig, rig, short

from mooring.errors import ConfigError


@pytest.fixture
async def made(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Rig]:
    """Two workspaces that share a server, not synced yet."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    async with rig(api, tmp_path) as made:
        yield made


@pytest.fixture
async def synced(made: Rig) -> Rig:
    await made.sync()
    return made


async def everything(made: Rig) -> dict[str, Any]:
    """What LiteLLM has, without what it adds by itself."""
    found: dict[str, Any] = {}
    for id, row in (await made.api.servers()).items():
        fields = ("server_name", "alias", "url", "transport", "auth_type", "allow_all_keys", "allowed_tools")
        found[id] = {**{field: row[field] for field in fields}, "tag": row["mcp_info"].get("mooring")}
    for id in await made.api.teams():
        team = await made.api.team(id)
        permission = team["object_permission"]
        granted = [sorted(permission["mcp_servers"]), *permission["mcp_access_groups"]]
        found[id] = (team["team_alias"], team["metadata"], granted)
    for key in await made.api.keys():
        granted = sorted((key["object_permission"] or {}).get("mcp_servers") or [])
        found[key["token"]] = (key["key_alias"], key["team_id"], granted, key["allowed_routes"])
    return found


async def test_the_first_sync_makes_everything_and_the_second_nothing(made: Rig) -> None:
    """R17 R19"""
    assert await made.sync() == [
        ("create", "server", "time"),
        ("create", "server", "git"),
        ("create", "team", "mooring a"),
        ("create", "team", "mooring b"),
        ("create", "key", made.names.key("a")),
        ("create", "key", made.names.key("b")),
    ]
    before = await everything(made)
    assert await made.sync() == []
    assert await everything(made) == before
    time, git = made.names.server("time"), made.names.server("git")
    assert before[time]["url"] == f"{BASE}/s/time/mcp"
    assert before[made.names.team("a")][2] == [sorted((time, git))]
    hash = hashlib.sha256((await made.key("b")).encode()).hexdigest()
    assert before[hash] == (made.names.key("b"), made.names.team("b"), [time], ["mcp_routes"])


async def test_a_dry_run_tells_the_same_and_changes_nothing(made: Rig) -> None:
    told = await made.litellm.sync(made.offer, dry_run=True)
    assert not told.applied
    assert await everything(made) == {}
    assert made.keys.rows() == []
    assert made.secrets.store_names() == []
    assert await made.sync() == short(told)


async def test_litellm_gets_a_key_for_each_variant_and_no_other(synced: Rig) -> None:
    """R19 R22: in the secret store, mode 0600, and nowhere else in the home."""
    rows = {(row.name, row.workspace, row.variant) for row in synced.keys.rows()}
    assert rows == {("litellm-time", "a", "time"), ("litellm-git", "a", "git")}
    assert Path(synced.home.secret_file).stat().st_mode & 0o777 == 0o600
    value = await synced.key("a")
    assert [
        file.name for file in synced.folder.rglob("*") if file.is_file() and value.encode() in file.read_bytes()
    ] == ["secrets.json"]


DRIFTS: dict[str, Any] = {
    "a server was renamed": ("PUT", "/v1/mcp/server", {"server_id": "{time}", "server_name": "x", "alias": "x"}),
    "its URL was changed": (
        "PUT",
        "/v1/mcp/server",
        {"server_id": "{time}", "transport": "http", "url": "http://127.0.0.1:9/mcp"},
    ),
    "its transport was changed": (
        "PUT",
        "/v1/mcp/server",
        {"server_id": "{time}", "transport": "sse", "url": f"{BASE}/s/time/mcp"},
    ),
    "its authentication was changed": ("PUT", "/v1/mcp/server", {"server_id": "{time}", "auth_type": "api_key"}),
    "it was opened to every key": ("PUT", "/v1/mcp/server", {"server_id": "{time}", "allow_all_keys": True}),
    "its tools were narrowed": ("PUT", "/v1/mcp/server", {"server_id": "{time}", "allowed_tools": ["one"]}),
    "its signature was lost": ("PUT", "/v1/mcp/server", {"server_id": "{time}", "mcp_info": {}}),
    "a server was deleted": ("DELETE", "/v1/mcp/server/{time}", None),
    "a team was renamed": ("POST", "/team/update", {"team_id": "{team}", "team_alias": "x"}),
    "a team was given more": (
        "POST",
        "/team/update",
        {"team_id": "{team}", "object_permission": {"mcp_servers": ["{time}", "{git}"]}},
    ),
    "a team was given a group": (
        "POST",
        "/team/update",
        {"team_id": "{team}", "object_permission": {"mcp_access_groups": ["all"]}},
    ),
    "a team was given nothing": (
        "POST",
        "/team/update",
        {"team_id": "{team}", "object_permission": {"mcp_servers": []}},
    ),
    "a team was deleted": ("POST", "/team/delete", {"team_ids": ["{team}"]}),
    "a key was renamed": ("POST", "/key/update", {"key": "{key}", "key_alias": "mine"}),
    "a key was given all of its team": (
        "POST",
        "/key/update",
        {"key": "{key}", "object_permission": {"mcp_servers": []}},
    ),
}


@pytest.mark.parametrize("drift", DRIFTS)
async def test_one_sync_repairs_what_somebody_changed(synced: Rig, drift: str) -> None:
    """R17 R19: and what agents hold goes on working."""
    before = await everything(synced)
    method, path, body = DRIFTS[drift]
    hash = hashlib.sha256((await synced.key("b")).encode()).hexdigest()
    ids = {"time": synced.names.server("time"), "git": synced.names.server("git")}
    filled = filling(body, {**ids, "team": synced.names.team("b"), "key": hash})
    status, said = await synced.api(method, path.format(**ids), filled)
    assert 200 <= status < 300, said
    assert await everything(synced) != before
    assert await synced.sync() != []
    assert await everything(synced) == before
    assert await synced.sync() == []


def filling(body: Any, values: dict[str, str]) -> Any:
    """``body`` with names in braces filled in."""
    if isinstance(body, dict):
        return {key: filling(value, values) for key, value in body.items()}
    if isinstance(body, list):
        return [filling(value, values) for value in body]
    return body.format(**values) if isinstance(body, str) else body


async def test_a_deleted_key_comes_back_with_another_value(synced: Rig) -> None:
    """R19: whoever deleted it may have had to."""
    old = await synced.key("b")
    await synced.api("POST", "/key/delete", {"keys": [hashlib.sha256(old.encode()).hexdigest()]})
    assert await synced.sync() == [("create", "key", synced.names.key("b"))]
    new = await synced.key("b")
    assert new != old
    hashes = {key["token"] for key in await synced.api.keys()}
    assert hashlib.sha256(new.encode()).hexdigest() in hashes
    assert hashlib.sha256(old.encode()).hexdigest() not in hashes


async def test_a_key_that_somebody_replaced_is_replaced(synced: Rig) -> None:
    old = await synced.key("b")
    await synced.api("POST", "/key/delete", {"keys": [hashlib.sha256(old.encode()).hexdigest()]})
    theirs = {"key": "sk-their-own-value", "key_alias": synced.names.key("b"), "team_id": synced.names.team("b")}
    assert (await synced.api("POST", "/key/generate", theirs))[0] == 200
    await synced.sync()
    (key,) = await synced.api.keys(team_id=synced.names.team("b"))
    assert key["token"] == hashlib.sha256((await synced.key("b")).encode()).hexdigest()
    assert await synced.sync() == []


async def test_foreign_entries_are_left_alone(made: Rig) -> None:
    """R17: also those that another Mooring made, and those in our team."""
    theirs = {
        "server_id": "mooring-0000000000-time",
        "server_name": "their_time",
        "url": "http://127.0.0.1:9/theirs",
        "transport": "http",
        "mcp_info": {"mooring": {"installation": "0000000000"}},
    }
    await made.api("POST", "/v1/mcp/server", theirs)
    await made.api("POST", "/team/new", {"team_id": "theirs", "object_permission": {"mcp_servers": ["x"]}})
    key = {"key": "sk-of-them-0123456789", "key_alias": "theirs", "team_id": "theirs"}
    assert (await made.api("POST", "/key/generate", key))[0] == 200
    before = await everything(made)
    await made.sync()
    key = {"key": "sk-lodger-0123456789", "key_alias": "lodger", "team_id": made.names.team("b")}
    assert (await made.api("POST", "/key/generate", key))[0] == 200
    made.write(TWO_TEAMS.replace('[workspaces.b]\nmcp_servers = ["time"]', ""))
    await made.sync()
    assert await made.sync() == []
    await made.litellm.remove(made.offer)
    after = await everything(made)
    lodger = hashlib.sha256(b"sk-lodger-0123456789").hexdigest()
    assert after.pop(lodger)[0] == "lodger"
    assert after.pop(made.names.team("b"))[2] == [[]]
    assert after == before


async def test_names_that_others_have_are_reported(made: Rig) -> None:
    """R20"""
    await made.api(
        "POST",
        "/v1/mcp/server",
        {"server_id": "theirs", "server_name": "TIME", "url": "http://127.0.0.1:9", "transport": "http"},
    )
    report = await made.litellm.sync(made.offer)
    assert {(row.workspace, row.variant) for row in report.skipped} == {("a", "time"), ("b", "time")}
    assert "somebody else" in report.skipped[0].reason
    assert list((await made.api.servers())["theirs"]["mcp_info"]) != ["mooring"]
    with pytest.raises(ConfigError, match='LiteLLM has no key for "b"'):
        await made.key("b")
    made.write(TWO_TEAMS, alias_prefix='"acme_"')
    assert ("create", "server", "acme_time") in await made.sync()
    assert await made.sync() == []


async def test_a_removed_workspace_and_the_last_server_leave_nothing(synced: Rig) -> None:
    """R18"""
    synced.write(TWO_TEAMS.replace('[workspaces.b]\nmcp_servers = ["time"]', ""))
    assert await synced.sync() == [
        ("remove", "key", synced.names.key("b")),
        ("remove", "team", "mooring b"),
    ]
    synced.write("[workspaces.a]\n")
    await synced.sync()
    assert await everything(synced) == {}
    assert synced.secrets.store_names() == []
    assert [row for row in synced.keys.rows() if not row.revoked] == []


async def test_a_removed_server_is_scrubbed_from_grants(synced: Rig) -> None:
    synced.write(TWO_TEAMS.replace('"time", "git"', '"time"'))
    await synced.sync()
    assert await synced.sync() == []
    assert synced.names.server("git") not in repr(await everything(synced))


async def test_removing_takes_out_all_and_the_schedule_does_not_put_it_back(synced: Rig) -> None:
    told = await synced.litellm.remove(synced.offer, dry_run=True)
    assert await everything(synced) != {}
    assert short(await synced.litellm.remove(synced.offer)) == short(told)
    assert await everything(synced) == {}
    assert await synced.litellm.export(synced.offer) is None
    assert await everything(synced) == {}
    await synced.sync()
    assert await synced.litellm.export(synced.offer) == 600


async def test_a_revoked_key_of_mooring_is_replaced(synced: Rig) -> None:
    (row,) = [row for row in synced.keys.rows() if row.variant == "time"]
    await synced.keys.revoke(row.id)
    assert await synced.sync() == [("update", "server", "time")]
    assert await synced.sync() == []


async def test_remotes_are_called_directly_where_that_is_wanted(made: Rig) -> None:
    """R21"""
    remote = """
[mcp_servers.docs]
url = "https://docs.example.com/mcp"
auth = { env = "TOKEN" }
headers = { X-Team = "docs" }
[workspaces.a]
mcp_servers = ["docs"]
"""
    made.write(remote, via='"upstream"')
    await made.sync()
    (row,) = (await made.api.servers()).values()
    assert (row["url"], row["auth_type"], row["static_headers"]) == (
        "https://docs.example.com/mcp",
        "bearer_token",
        {"X-Team": "docs"},
    )
    assert made.keys.rows() == []
    assert await made.sync() == []
    made.write(remote)
    assert await made.sync() == [("update", "server", "docs")]
    assert [row.name for row in made.keys.rows()] == ["litellm-docs"]


async def test_a_refused_master_key_says_where_it_stands(made: Rig) -> None:
    made.secrets = type(made.secrets)(made.home, environ={"MASTER": "sk-wrong"})
    made.vault._secrets = made.secrets  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ConfigError) as raised:
        await made.sync()
    assert raised.value.details["path"] == "litellm.master_key"
    assert (await made.litellm.status(made.offer)).state == "failing"


async def test_the_status_tells_what_the_last_sync_left(synced: Rig) -> None:
    status = await synced.litellm.status(synced.offer)
    assert (status.state, status.error, status.workspaces) == ("ok", "", ("a", "b"))
    assert [(row.name, row.workspaces) for row in status.servers] == [("git", ("a",)), ("time", ("a", "b"))]
    assert status.synced_at is not None
