"""Log levels: who is told them, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from relay_bench import LEGACY, MODERN, FakeServer, benched, planned

from mooring.nouns import Era, Facts
from mooring.wire import jsonrpc


def told(server: FakeServer) -> list[Any]:
    return [jsonrpc.value(params)["level"] for params in server.asked("logging/setLevel")]


def call(level: str) -> dict[str, Any]:
    return {"name": "a_t", "_meta": {"io.modelcontextprotocol/logLevel": level}}


async def test_a_legacy_server_of_one_caller_is_told_the_lowest_level_that_a_modern_client_asked_for() -> None:
    server = FakeServer("t", facts=LEGACY)
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session(era="modern")
        for level in ("warning", "error", "nonsense", "debug", "info"):
            await session.do("tools/call", call(level))
        await session.do("tools/call", {"name": "a_t"})
        assert told(server) == ["warning", "debug"]


async def test_the_level_of_a_legacy_session_goes_with_its_next_request() -> None:
    server = FakeServer("t", facts=LEGACY)
    async with benched({"a": server}, planned("a", dialogue="session")) as bench:
        session = bench.session()
        assert await session.do("logging/setLevel", {"level": "error"}) == {}
        assert told(server) == []
        await session.call("a_t")
        await session.call("a_t")
        assert told(server) == ["error"]


@pytest.mark.parametrize(
    ("facts", "dialogue"),
    [(LEGACY, "call"), (MODERN, "session"), (Facts("legacy", "2025-11-25", b'{"tools":{}}'), "session")],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_servers_of_several_callers_and_those_without_levels_are_told_none(
    facts: Facts, dialogue: str, era: Era
) -> None:
    server = FakeServer("t", facts=facts)
    async with benched({"a": server}, planned("a", dialogue=dialogue)) as bench:
        session = bench.session(era=era)
        session.log_level = "debug"
        await session.do("tools/call", call("debug"))
        assert told(server) == []


async def test_a_modern_server_is_told_the_level_of_a_legacy_session_in_each_request() -> None:
    server = FakeServer("t", facts=MODERN)
    async with benched({"a": server}) as bench:
        session = bench.session()
        await session.do("logging/setLevel", {"level": "notice"})
        await session.call("a_t")
        (params,) = server.asked("tools/call")
        assert jsonrpc.value(params)["_meta"]["io.modelcontextprotocol/logLevel"] == "notice"
