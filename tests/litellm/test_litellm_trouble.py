"""A LiteLLM in trouble, or one that is none: what a sync then says, and that the next one goes on. Faults that the real
one cannot be made to have are played by the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest
from litellm_api import Api
from litellm_rig import Rig, rig

from mooring.config.plan import LiteLLM as Settings
from mooring.config.plan_servers import SecretRef
from mooring.errors import ConfigError, Unavailable
from mooring.export import litellm, litellm_client
from mooring.export.litellm_rows import complaint
from mooring.testing.litellm import FakeLiteLLM, Refused


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FakeLiteLLM]:
    """One whose troubles pass quickly."""
    monkeypatch.setattr(litellm_client, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(litellm, "PAUSE", 0.01)
    async with FakeLiteLLM() as fake:
        yield fake


@pytest.fixture
async def made(fake: FakeLiteLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Rig]:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    async with rig(Api(fake.url, fake.master_key), tmp_path) as made:
        yield made


def times(count: int, status: int, method: str, path: str) -> Callable[[str, str], Refused | None]:
    """So many refusals of one request."""
    left = [Refused(status, {"error": {"message": "in trouble"}}) for _ in range(count)]
    return lambda *asked: left.pop() if asked == (method, path) and left else None


async def test_the_second_sync_writes_nothing(made: Rig, fake: FakeLiteLLM) -> None:
    """R17"""
    await made.sync()
    fake.requests.clear()
    await made.sync()
    assert fake.writes == []


async def test_a_sync_of_the_schedule_that_waits_while_all_is_removed_puts_nothing_back(
    made: Rig, fake: FakeLiteLLM
) -> None:
    await made.sync()
    removing = asyncio.create_task(made.litellm.remove(made.offer))
    await asyncio.sleep(0)
    assert await made.litellm.export(made.offer) is None
    await removing
    assert (fake.servers, fake.teams, fake.keys) == ({}, {}, {})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_what_passes_is_waited_for(made: Rig, fake: FakeLiteLLM, status: int) -> None:
    """R20"""
    fake.trouble = times(2, status, "POST", "/team/new")
    assert len(await made.sync()) == 6


async def test_what_does_not_pass_is_told_and_made_up_for_later(made: Rig, fake: FakeLiteLLM) -> None:
    """R19 R20: what was half done is finished, and nothing comes twice."""
    fake.trouble = times(1000, 503, "POST", "/key/generate")
    with pytest.raises(Unavailable, match="answered POST /key/generate with 503: in trouble"):
        await made.sync()
    assert (await made.litellm.status(made.offer)).state == "failing"
    assert len(fake.teams) == 2
    fake.trouble = lambda method, path: None
    assert [(action, kind) for action, kind, _ in await made.sync()] == [("create", "key")] * 2
    assert len(fake.keys) == 2
    assert await made.sync() == []


async def test_a_proxy_that_is_away_is_told(made: Rig, fake: FakeLiteLLM) -> None:
    """R20"""
    await fake.stop()
    with pytest.raises(Unavailable, match=f"LiteLLM cannot be reached at {fake.url}"):
        await made.sync()
    await fake.start()
    assert len(await made.sync()) == 6


async def test_a_refusal_in_the_middle_is_looked_at_anew(made: Rig, fake: FakeLiteLLM) -> None:
    """Such as when somebody else was faster."""
    fake.trouble = times(1, 400, "POST", "/team/new")
    assert len(await made.sync()) == 6
    assert await made.sync() == []


async def test_a_list_that_lags_behind_does_not_stop_a_sync(made: Rig, fake: FakeLiteLLM) -> None:
    """LiteLLM lists servers from memory: one that is there may be missing, and the other way round."""
    await made.sync()
    hidden = fake.servers.pop(made.names.server("time"))

    def back(method: str, path: str) -> Refused | None:
        """It shows up again between the list and the write."""
        if (method, path) == ("POST", "/v1/mcp/server"):
            fake.servers[hidden["server_id"]] = hidden
        return None

    fake.trouble = back
    assert ("create", "server", "time") in await made.sync()
    assert len(fake.servers) == 2

    def gone(method: str, path: str) -> Refused | None:
        if (method, path) == ("PUT", "/v1/mcp/server"):
            fake.servers.pop(hidden["server_id"], None)
        return None

    fake.servers[hidden["server_id"]]["url"] = "http://elsewhere"
    fake.trouble = gone
    assert await made.sync() == [("update", "server", "time")]
    assert fake.servers[hidden["server_id"]]["url"].endswith("/s/time/mcp")


async def test_somebody_who_keeps_changing_things_is_told_of(made: Rig, fake: FakeLiteLLM) -> None:
    def spoil(method: str, path: str) -> Refused | None:
        if (method, path) == ("GET", "/v1/mcp/server"):
            for row in fake.servers.values():
                row["url"] = "http://elsewhere"
        return None

    fake.trouble = spoil
    with pytest.raises(Unavailable, match="something else keeps changing"):
        await made.sync()


@pytest.mark.parametrize("body", [{"detail": "what?"}, {"models": []}, [{"id": 1}], None])
async def test_what_is_not_litellm_is_not_taken_for_one(made: Rig, fake: FakeLiteLLM, body: object) -> None:
    fake.trouble = lambda method, path: Refused(200, body)
    with pytest.raises(Unavailable, match="does not speak like LiteLLM"):
        await made.sync()
    assert fake.writes == []


async def test_a_missing_master_key_is_named_and_asks_nobody(made: Rig, fake: FakeLiteLLM) -> None:
    missing = Settings(fake.url, fake.url, SecretRef("env", "NOWHERE"))
    made.plan = msgspec.structs.replace(made.plan, litellm=missing)
    with pytest.raises(ConfigError, match="<env NOWHERE> is missing"):
        await made.sync()
    assert fake.requests == []


async def test_a_lost_secret_store_costs_new_keys_and_nothing_else(made: Rig, fake: FakeLiteLLM) -> None:
    """R20"""
    await made.sync()
    Path(made.home.secret_file).unlink()
    done = await made.sync()
    assert {kind for _, kind, _ in done} == {"server", "key"}
    assert await made.sync() == []
    assert (len(fake.servers), len(fake.teams), len(fake.keys)) == (2, 2, 2)


async def test_without_the_table_there_is_nothing_to_do(made: Rig) -> None:
    made.plan = msgspec.structs.replace(made.plan, litellm=None)
    assert await made.litellm.export(made.offer) is None
    with pytest.raises(ConfigError, match=r"has no \[litellm\]"):
        await made.sync()


async def test_lists_of_many_pages_are_read_to_the_end(
    made: Rig, fake: FakeLiteLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm_client, "PAGE", 2)
    rooms = "".join(f'[workspaces.w{number}]\nmcp_servers = ["time"]\n' for number in range(5))
    made.write(f'[mcp_servers.time]\ncommand = "time"\n{rooms}')
    assert len(await made.sync()) == 11
    assert await made.sync() == []
    made.write('[mcp_servers.time]\ncommand = "time"\n[workspaces.w0]\nmcp_servers = ["time"]\n')
    assert len(await made.sync()) == 8
    assert list(fake.teams) == [made.names.team("w0")]


async def test_interval_zero_waits_for_a_change(made: Rig) -> None:
    made.write('[mcp_servers.time]\ncommand = "time"\n', interval="0")
    assert await made.litellm.export(made.offer) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail": {"error": "MCP Server not found"}}', "MCP Server not found"),
        (b'{"detail": [{"loc": ["body", "url"], "msg": "missing"}, {"msg": "and"}]}', "body.url: missing; : and"),
        (b'{"detail": ["odd"]}', "odd"),
        (b'{"error": {"message": "no", "code": "400"}}', "no"),
        (b'{"other": 1}', "{'other': 1}"),
        (b"<html>", "<html>"),
        (b"", ""),
        (b'"' + b"x" * 999 + b'"', "x" * 500),
    ],
)
def test_a_complaint_is_found_in_every_shape(body: bytes, said: str) -> None:
    assert complaint(body) == said
