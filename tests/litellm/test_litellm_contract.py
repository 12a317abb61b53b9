"""What Mooring relies on in LiteLLM's management API. All of it runs against the fake and the real one."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from litellm_api import Api

SERVER = {
    "server_id": "s1",
    "server_name": "time_1",
    "alias": "time_1",
    "url": "http://127.0.0.1:9/s/time-1/mcp",
    "transport": "http",
    "auth_type": "bearer_token",
    "credentials": {"auth_value": "a secret"},
    "mcp_info": {"mooring": {"variant": "time-1"}, "description": "ours"},
    "allow_all_keys": False,
    "mcp_access_groups": ["group"],
    "allowed_tools": ["one"],
    "extra_headers": ["X-One"],
    "static_headers": {"X-Two": "2"},
}
KEY = "sk-mooring-of-the-contract"
HASH = hashlib.sha256(KEY.encode()).hexdigest()


def grant(*servers: str, **more: Any) -> dict[str, Any]:
    return {
        "mcp_servers": list(servers),
        "mcp_access_groups": [],
        "mcp_tool_permissions": {},
        "mcp_toolsets": [],
        **more,
    }


async def test_a_server_is_listed_as_it_was_written_without_its_credentials(api: Api) -> None:
    status, row = await api("POST", "/v1/mcp/server", {**SERVER, "auth_value": "dropped", "nonsense": 1})
    assert status == 201
    assert row["credentials"] is None
    (row,) = (await api.servers()).values()
    assert row["credentials"] is None
    assert row["is_config"] is False
    assert {name: row[name] for name in SERVER if name not in ("credentials", "mcp_info")} == {
        name: value for name, value in SERVER.items() if name not in ("credentials", "mcp_info")
    }
    assert row["mcp_info"]["mooring"] == {"variant": "time-1"}
    assert row["mcp_info"]["server_name"] == "time_1"


async def test_ids_and_names_of_servers_are_taken_once_whatever_their_case(api: Api) -> None:
    await api("POST", "/v1/mcp/server", SERVER)
    again, _ = await api("POST", "/v1/mcp/server", {**SERVER, "server_name": "other", "alias": "other"})
    named, body = await api("POST", "/v1/mcp/server", {**SERVER, "server_id": "s2", "server_name": "TIME_1"})
    assert (again, named) == (400, 400)
    assert "error" in body["detail"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"transport": "streamable_http"}, 422),
        ({"url": None}, 422),
        ({"server_name": "a-b", "alias": "a-b"}, 400),
        ({"server_name": "a b", "alias": "a b"}, 400),
        ({"server_name": "a.b", "alias": "a.b"}, 201),
    ],
)
async def test_what_a_new_server_may_be(api: Api, change: dict[str, Any], status: int) -> None:
    assert (await api("POST", "/v1/mcp/server", {**SERVER, **change}))[0] == status


async def test_a_change_touches_what_it_names_and_empty_lists_clear(api: Api) -> None:
    await api("POST", "/v1/mcp/server", SERVER)
    change = {"server_id": "s1", "url": "http://127.0.0.1:9/new", "transport": "http", "allowed_tools": []}
    assert (await api("PUT", "/v1/mcp/server", change))[0] == 202
    (row,) = (await api.servers()).values()
    assert (row["url"], row["allowed_tools"], row["alias"], row["mcp_access_groups"]) == (
        "http://127.0.0.1:9/new",
        [],
        "time_1",
        ["group"],
    )
    assert (await api("PUT", "/v1/mcp/server", {"server_id": "s1", "transport": "http"}))[0] == 422
    unknown = {**SERVER, "server_id": "s9", "server_name": "s9", "alias": "s9"}
    assert (await api("PUT", "/v1/mcp/server", unknown))[0] == 404


async def test_a_change_cannot_take_a_name(api: Api) -> None:
    await api("POST", "/v1/mcp/server", SERVER)
    other = {**SERVER, "server_id": "s2", "server_name": "other", "alias": "other"}
    await api("POST", "/v1/mcp/server", other)
    assert (await api("PUT", "/v1/mcp/server", {**other, "server_name": "time_1", "alias": "time_1"}))[0] == 400


async def test_removing_is_answered_without_a_body_and_once(api: Api) -> None:
    """R20"""
    await api("POST", "/v1/mcp/server", SERVER)
    assert await api("DELETE", "/v1/mcp/server/s1") == (202, None)
    assert (await api("DELETE", "/v1/mcp/server/s1"))[0] == 404
    assert await api.servers() == {}


async def test_what_a_team_may_use_is_told_by_its_own_page_alone(api: Api) -> None:
    made = {"team_id": "t1", "team_alias": "one", "metadata": {"a": 1}, "object_permission": grant("nowhere")}
    status, row = await api("POST", "/team/new", made)
    assert (status, row["object_permission"]) == (200, None)
    assert (await api.teams())["t1"]["object_permission"] is None
    team = await api.team("t1")
    assert team["object_permission"]["mcp_servers"] == ["nowhere"]
    assert (await api("POST", "/team/new", made))[0] == 400
    assert (await api("POST", "/team/new", {**made, "team_id": "t2"}))[0] == 200


async def test_permissions_of_a_team_are_merged_and_its_metadata_is_not(api: Api) -> None:
    made = {"team_id": "t1", "metadata": {"a": 1}, "object_permission": grant("s1", mcp_access_groups=["g"])}
    await api("POST", "/team/new", made)
    await api("POST", "/team/update", {"team_id": "t1", "object_permission": {}, "metadata": {"b": 2}})
    team = await api.team("t1")
    assert (team["object_permission"]["mcp_servers"], team["metadata"]) == (["s1"], {"b": 2})
    await api("POST", "/team/update", {"team_id": "t1", "object_permission": {"mcp_access_groups": []}})
    team = await api.team("t1")
    assert team["object_permission"]["mcp_servers"] == ["s1"]
    assert team["object_permission"]["mcp_access_groups"] == []
    await api("POST", "/team/update", {"team_id": "t1", "object_permission": {"mcp_servers": []}})
    assert (await api.team("t1"))["object_permission"]["mcp_servers"] == []


async def test_teams_are_found_by_the_beginning_of_their_ids(api: Api) -> None:
    for id in ("mooring-a-1", "mooring-a-2", "mooring-b-1"):
        await api("POST", "/team/new", {"team_id": id, "team_alias": id})
    _, page = await api("GET", "/v2/team/list", search="mooring-a-", search_team_id_match="prefix", page_size=1)
    assert page["total_pages"] == 2
    _, next_page = await api(
        "GET", "/v2/team/list", search="mooring-a-", search_team_id_match="prefix", page_size=1, page=2
    )
    assert {row["team_id"] for row in (*page["teams"], *next_page["teams"])} == {"mooring-a-1", "mooring-a-2"}


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("POST", "/team/update", {"team_id": "t9", "team_alias": "x"}, {}),
        ("POST", "/team/delete", {"team_ids": ["t9"]}, {}),
        ("GET", "/team/info", None, {"team_id": "t9"}),
        ("POST", "/key/update", {"key": HASH, "key_alias": "x"}, {}),
        ("POST", "/key/delete", {"keys": [HASH]}, {}),
    ],
)
async def test_what_is_not_there_is_404(
    api: Api, method: str, path: str, body: dict[str, Any] | None, query: dict[str, str]
) -> None:
    status, said = await api(method, path, body, **query)
    assert status == 404
    assert "error" in said or "detail" in said


async def add_servers(api: Api, *ids: str) -> None:
    for id in ids:
        status, _ = await api("POST", "/v1/mcp/server", {**SERVER, "server_id": id, "server_name": id, "alias": id})
        assert status == 201


async def test_a_key_has_the_value_that_was_chosen_and_is_named_by_its_hash(api: Api) -> None:
    await add_servers(api, "s1", "s2")
    await api("POST", "/team/new", {"team_id": "t1", "object_permission": grant("s1", "s2")})
    made = {
        "key": KEY,
        "key_alias": "k1",
        "team_id": "t1",
        "allowed_routes": ["mcp_routes"],
        "object_permission": grant("s1"),
    }
    status, row = await api("POST", "/key/generate", made)
    assert (status, row["key"]) == (200, KEY)
    for query in ({"team_id": "t1"}, {"key_alias": "k1"}):
        (row,) = await api.keys(**query)
        assert (row["token"], row["key_alias"], row["team_id"]) == (HASH, "k1", "t1")
        assert row["allowed_routes"] == ["mcp_routes"]
        assert row["object_permission"]["mcp_servers"] == ["s1"]
    assert await api.keys(key_alias="k") == []
    changed = {"key": HASH, "key_alias": "k2", "object_permission": grant("s2")}
    assert (await api("POST", "/key/update", changed))[0] == 200
    (row,) = await api.keys(team_id="t1")
    assert (row["key_alias"], row["object_permission"]["mcp_servers"]) == ("k2", ["s2"])


async def test_servers_that_are_not_there_are_left_out_of_what_a_key_may_use(api: Api) -> None:
    """Hence servers are written before keys: nothing left would mean all that the team has."""
    await api("POST", "/team/new", {"team_id": "t1", "object_permission": grant("s1")})
    made = {"key": KEY, "key_alias": "k1", "team_id": "t1", "object_permission": grant("s1")}
    assert (await api("POST", "/key/generate", made))[0] == 200
    (row,) = await api.keys(team_id="t1")
    assert row["object_permission"]["mcp_servers"] == []


async def test_a_key_cannot_have_what_its_team_lacks(api: Api) -> None:
    await add_servers(api, "s1", "s2")
    await api("POST", "/team/new", {"team_id": "t1", "object_permission": grant("s1")})
    made = {"key": KEY, "key_alias": "k1", "team_id": "t1"}
    refused, said = await api("POST", "/key/generate", {**made, "object_permission": grant("s2")})
    assert refused == 403
    assert "s2" in said["error"]["message"]
    await api("POST", "/key/generate", {**made, "object_permission": grant("s1")})
    assert (await api("POST", "/key/update", {"key": HASH, "object_permission": grant("s2")}))[0] == 403


async def test_an_alias_of_keys_is_taken_once_and_a_value_keeps_its_first_alias(api: Api) -> None:
    await api("POST", "/key/generate", {"key": KEY, "key_alias": "k1"})
    assert (await api("POST", "/key/generate", {"key": KEY + "2", "key_alias": "k1"}))[0] == 400
    status, row = await api("POST", "/key/generate", {"key": KEY, "key_alias": "k2"})
    assert (status, row["key_alias"]) == (200, "k2")
    assert [row["key_alias"] for row in await api.keys()] == ["k1"]


async def test_an_unknown_team_is_no_objection_to_a_key(api: Api) -> None:
    assert (await api("POST", "/key/generate", {"key": KEY, "key_alias": "k1", "team_id": "t9"}))[0] == 200


async def test_a_team_takes_its_keys_along_and_their_values_can_come_back(api: Api) -> None:
    """R19: agents go on with their keys when a database was reset."""
    await api("POST", "/team/new", {"team_id": "t1"})
    await api("POST", "/key/generate", {"key": KEY, "key_alias": "k1", "team_id": "t1"})
    await api("POST", "/team/delete", {"team_ids": ["t1"]})
    assert await api.keys(key_alias="k1") == []
    await api("POST", "/team/new", {"team_id": "t1"})
    await api("POST", "/key/generate", {"key": KEY, "key_alias": "k1", "team_id": "t1"})
    assert [row["token"] for row in await api.keys(team_id="t1")] == [HASH]


async def test_a_wrong_master_key_is_401(api: Api) -> None:
    status, said = await api("GET", "/v1/mcp/server", key="sk-wrong")
    assert status == 401
    assert said["error"]["message"]


async def test_a_removed_server_stays_in_grants(api: Api) -> None:
    """Which is why Mooring writes grants anew."""
    await api("POST", "/v1/mcp/server", SERVER)
    await api("POST", "/team/new", {"team_id": "t1", "object_permission": grant("s1")})
    await api("DELETE", "/v1/mcp/server/s1")
    assert (await api.team("t1"))["object_permission"]["mcp_servers"] == ["s1"]
