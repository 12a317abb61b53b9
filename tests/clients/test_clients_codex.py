"""Codex with Mooring as its server."""

from __future__ import annotations

from mooring.testing.daemon import Daemon
from mooring.testing.model import Model
from real_clients.codex import KEY, Codex, server
from real_clients.place import Place, Reach


async def test_it_offers_its_model_the_tools_and_calls_one(place: Place, model: Model, way: Reach) -> None:
    """Text and structured content reach it as the server sent them; its model is shown the latter."""
    codex = Codex(place, model.url, way.key)
    codex.configure({"mooring": server(way)})
    items = await codex.ask("%call box_counter\n%call box_error")
    counter, error = (item for item in items if item["type"] == "mcp_tool_call")
    assert (counter["server"], counter["tool"], counter["status"]) == ("mooring", "box_counter", "completed")
    assert counter["result"]["content"] == [{"type": "text", "text": "1"}]
    assert counter["result"]["structured_content"] == {"count": 1}
    assert error["status"] == "failed"
    assert {"mcp__mooring__box_echo", "mcp__mooring__box_counter"} <= set(model.turns[0].offered)
    assert '{"count":1}' in model.turns[1].results[0]
    assert "it went wrong" in model.turns[2].results[0]


async def test_its_app_server_lists_and_calls_tools_with_a_model_and_without(
    place: Place, model: Model, way: Reach
) -> None:
    codex = Codex(place, model.url, way.key)
    codex.configure({"mooring": server(way)})
    async with codex.serving() as app:
        thread = (await app.request("thread/start", {"cwd": str(place.work), "ephemeral": True}))["thread"]["id"]
        (listed,) = (await app.request("mcpServerStatus/list", {"threadId": thread}))["data"]
        assert listed["serverInfo"]["name"] == "mooring"
        assert {"box_echo", "box_counter"} <= set(listed["tools"])
        call = {"threadId": thread, "server": "mooring", "tool": "box_counter", "arguments": {}}
        called = await app.request("mcpServer/tool/call", call)
        assert called == {"content": [{"type": "text", "text": "1"}], "structuredContent": {"count": 1}}
        words = [{"type": "text", "text": "%call box_counter"}]
        await app.request("turn/start", {"threadId": thread, "input": words})
        turn = (await app.note("turn/completed"))["turn"]
        assert (turn["status"], turn["error"]) == ("completed", None)
        assert '{"count":2}' in model.turns[-1].results[0]


async def test_it_is_added_listed_and_used(place: Place, model: Model, gateway: Daemon, way: Reach) -> None:
    """The commands of docs/connect-clients.md."""
    codex = Codex(place, model.url, way.key)
    if way.url:
        added = await codex.mcp("add", "mooring", "--url", way.url, "--bearer-token-env-var", KEY)
    else:
        env = [word for name, value in way.env.items() for word in ("--env", f"{name}={value}")]
        added = await codex.mcp("add", "mooring", *env, "--", *way.command)
    assert added.code == 0, added.err
    (listed,) = (await codex.mcp("list", "--json")).data
    assert (listed["name"], listed["enabled"]) == ("mooring", True)
    assert listed["auth_status"] == ("bearer_token" if way.url else "unsupported")
    (said,) = (item for item in await codex.ask("%call box_counter") if item["type"] == "agent_message")
    assert said["text"].endswith('{"count":1}')
    assert way.key not in gateway.output or not way.key
    assert "Traceback" not in gateway.output
