"""A server asks its user, across all four pairs of eras."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mooring.testing.daemon import Daemon, server
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
EVERYTHING: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


@pytest.mark.parametrize("served", ["legacy", "modern", "dual"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_questions_reach_the_caller_and_the_answers_the_server(start: Start, era: Era, served: str) -> None:
    """A18, R27: elicitation, sampling and roots, mirrored where the eras match and translated where they do not."""
    daemon = await start({"s": server("--era", served, dialogue="session")})
    async with await daemon.client("w", era, capabilities=EVERYTHING) as client:
        await client.open()
        for tool in ("elicit", "sample", "roots"):
            result = await client.call(f"s_{tool}")
            assert not result.get("isError"), (tool, result)
            assert text(result)


async def test_two_callers_of_one_modern_server_get_their_own_questions(start: Start) -> None:
    """A18: parallel calls on one shared instance do not mix."""
    daemon = await start({"s": server("--era", "modern")})
    async with (
        await daemon.client("w", capabilities=EVERYTHING) as one,
        await daemon.client("w", capabilities=EVERYTHING) as two,
    ):
        for client, name in ((one, "Ann"), (two, "Bob")):
            await client.open()
            client.answers["elicitation/create"] = {"action": "accept", "content": {"name": name}}
        first, second = await asyncio.gather(one.call("s_elicit"), two.call("s_elicit"))
    assert "Ann" in text(first)
    assert "Bob" in text(second)


async def test_a_parked_call_is_resumed_once_and_only_by_its_own_request(start: Start) -> None:
    """A request state is worth nothing to anybody else, for anything else, or a second time."""
    daemon = await start(
        {"s": server("--era", "legacy", dialogue="session")}, {"a": {"mcp_servers": ["s"]}, "b": {"mcp_servers": ["s"]}}
    )
    async with (
        await daemon.client("a", "modern", capabilities=EVERYTHING) as client,
        await daemon.client("b", "modern", capabilities=EVERYTHING) as stranger,
    ):
        call = {"name": "s_elicit", "arguments": {}}
        asked = await client.result("tools/call", call)
        assert asked["resultType"] == "input_required"
        answer = {"action": "accept", "content": {"name": "Ann"}}
        answers = dict.fromkeys(asked["inputRequests"], answer)
        retry = {**call, "requestState": asked["requestState"], "inputResponses": answers}
        assert "error" in await stranger.request("tools/call", retry)
        assert "error" in await client.request("tools/call", {**retry, "arguments": {"other": 1}})
        assert "Ann" in text(await client.result("tools/call", retry))
        assert "error" in await client.request("tools/call", retry)
