"""Claude Code with Mooring as its server."""

from __future__ import annotations

import json

import pytest

from mooring.testing.daemon import Daemon
from mooring.testing.model import Model
from real_clients.claude_code import ClaudeCode
from real_clients.place import Place, Reach


async def test_it_offers_its_model_the_tools_and_calls_one(place: Place, model: Model, way: Reach) -> None:
    said = await ClaudeCode(place, model.url).ask(way, '%call box_echo {"text": "ahoy", "n": [1, null]}')
    assert not said["is_error"]
    assert said["permission_denials"] == []
    assert json.loads(said["result"].removeprefix("got:\n")) == {"text": "ahoy", "n": [1, None]}
    assert {"mcp__mooring__box_echo", "mcp__mooring__box_counter"} <= set(model.turns[0].offered)


async def test_its_model_is_shown_what_the_server_answered(place: Place, model: Model, way: Reach) -> None:
    """Of a result with structured content it shows nothing else, of others the text."""
    await ClaudeCode(place, model.url).ask(way, "%call box_counter\n%and box_counter\n%call box_link\n%call box_error")
    counts, link, error = (turn.results for turn in model.turns[1:])
    assert sorted(counts) == ['{"count":1}', '{"count":2}']
    assert "test://hidden" in link[0]
    assert error == ["it went wrong"]


async def test_a_tool_that_is_added_while_it_runs_is_called(
    place: Place, model: Model, way: Reach, gateway: Daemon
) -> None:
    """R35: the change reaches the program; a call later its model is offered the tool."""
    async with await gateway.client("w") as client:
        await client.open()
        added = f"added_{len((await client.result('tools/list'))['tools'])}"
    prompt = f'%call box_change\n%call box_sleep {{"seconds": 2}}\n%call {added} {{"text": "new"}}'
    said = await ClaudeCode(place, model.url).ask(way, prompt)
    assert f"mcp__mooring__box_{added}" not in model.turns[0].offered
    assert said["result"] == 'got:\n{"text":"new"}'


async def test_its_search_for_tools_finds_those_of_the_workspace(place: Place, model: Model, way: Reach) -> None:
    """With tools of its own it offers its model no others at first, but one that finds them."""
    prompt = '%call ToolSearch {"query": "select:mcp__mooring__box_counter", "max_results": 5}\n%call box_counter'
    said = await ClaudeCode(place, model.url).ask(way, prompt, "--tools", "default", ENABLE_TOOL_SEARCH="true")
    assert said["result"] == 'got:\n{"count":1}'
    assert "mcp__mooring__box_counter" not in model.turns[0].offered


async def test_it_is_added_and_listed_as_connected(place: Place, gateway: Daemon, way: Reach) -> None:
    """The commands of docs/connect-clients.md."""
    claude = ClaudeCode(place)
    if way.url:
        await claude.mcp(
            "add", "--transport", "http", "mooring", way.url, "--header", f"Authorization: Bearer {way.key}"
        )
    else:
        env = [f"{name}={value}" for name, value in way.env.items()]
        await claude.mcp("add", "mooring", "-e", *env, "--", *way.command)
    assert "✔ Connected" in await claude.mcp("list")
    assert "Status: ✔ Connected" in await claude.mcp("get", "mooring")
    assert "Traceback" not in gateway.output


@pytest.mark.parametrize("way", ["http"], indirect=True)
async def test_it_is_told_that_a_key_is_not_valid(place: Place, way: Reach) -> None:
    """In Mooring's own words."""
    claude = ClaudeCode(place)
    await claude.mcp("add", "--transport", "http", "mooring", way.url, "--header", "Authorization: Bearer mrg_wrong")
    said = await claude.mcp("list")
    assert "✘ Failed to connect" in said
    assert "A valid key is needed" in said
