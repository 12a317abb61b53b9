"""What each client is told about servers, in its own words; and what an AG-UI server's events add up to."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.agents import acp_servers, claude_code, codex
from mooring.agents.ag_ui_round import Round
from mooring.agents.events import AnyEvent, Text, ToolCall, ToolResult
from mooring.config.plan import Direct
from mooring.config.plan_servers import Process, Remote

DIRECT = (
    Direct("time", "time", Process(("timed", "--zone", 'Mars/"Base"'), {"A b": "c\nd"}), 20.0, 90.0),
    Direct("web", "web", Remote("https://web.example/mcp", headers={"X-Team": "docs"})),
    Direct("old", "old", Remote("https://old.example/sse", "sse")),
)


def test_claude_code_is_told_all_servers_and_nothing_on_its_command_line() -> None:
    """A26 A37"""
    told = claude_code.servers("http://127.0.0.1:1/mcp", "mrg_key", DIRECT)
    assert told == {
        "mooring": {
            "type": "http",
            "url": "http://127.0.0.1:1/mcp",
            "headers": {"Authorization": "Bearer mrg_key"},
        },
        "time": {"type": "stdio", "command": "timed", "args": ["--zone", 'Mars/"Base"'], "env": {"A b": "c\nd"}},
        "web": {"type": "http", "url": "https://web.example/mcp", "headers": {"X-Team": "docs"}},
        "old": {"type": "sse", "url": "https://old.example/sse", "headers": {}},
    }
    assert not any("mrg_" in word or "http" in word for word in claude_code.arguments("m", "p"))


def test_codex_is_told_values_and_no_text_that_could_be_broken() -> None:
    """A27 A37"""
    told = codex.servers("http://127.0.0.1:1/mcp", "mrg_key", DIRECT[:2])
    assert told["mooring"]["http_headers"] == {"Authorization": "Bearer mrg_key"}
    assert told["mooring"]["default_tools_approval_mode"] == "approve"
    assert told["time"] == {
        "command": "timed",
        "args": ["--zone", 'Mars/"Base"'],
        "env": {"A b": "c\nd"},
        "startup_timeout_sec": 20.0,
        "tool_timeout_sec": 90.0,
    }
    assert told["web"]["http_headers"] == {"X-Team": "docs"}


def test_acp_agents_are_told_complete_entries() -> None:
    """A28 A37"""
    mooring = acp_servers.mooring(("/bin/python", "-m", "mooring"), {"MOORING_HOME": "/tmp/x"})
    told = [mooring, *(acp_servers.direct(server, lambda command: f"/bin/{command}") for server in DIRECT)]
    assert [server.model_dump(by_alias=True, exclude_none=True) for server in told] == [
        {
            "name": "mooring",
            "command": "/bin/python",
            "args": ["-m", "mooring"],
            "env": [{"name": "MOORING_HOME", "value": "/tmp/x"}],
        },
        {
            "name": "time",
            "command": "/bin/timed",
            "args": ["--zone", 'Mars/"Base"'],
            "env": [{"name": "A b", "value": "c\nd"}],
        },
        {
            "name": "web",
            "type": "http",
            "url": "https://web.example/mcp",
            "headers": [{"name": "X-Team", "value": "docs"}],
        },
        {"name": "old", "type": "sse", "url": "https://old.example/sse", "headers": []},
    ]


def test_what_an_acp_agent_cannot_take_is_known() -> None:
    """A28"""
    assert acp_servers.beyond(DIRECT, http=True, sse=False) == ("old",)
    assert acp_servers.beyond(DIRECT, http=False, sse=False) == ("web", "old")
    assert acp_servers.beyond(DIRECT, http=True, sse=True) == ()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("mcp__mooring__box_echo", "box_echo"),
        ("box_echo (mooring MCP Server)", "box_echo"),
        ("box_echo", "box_echo"),
        ("rm -rf / # box_echo", ""),
        ("box_echo (mooring MCP Server) && rm", ""),
        ("mcp__other__box_echo", ""),
    ],
)
def test_a_call_is_ours_only_when_its_title_says_exactly_so(title: str, name: str) -> None:
    """A31"""
    assert acp_servers.named(title, frozenset({"box_echo"})) == name


@pytest.mark.parametrize(
    ("title", "given", "name"),
    [
        ("mcp.mooring.box_echo", {"server": "mooring", "tool": "box_echo", "arguments": {}}, "box_echo"),
        ("mcp.mooring.box_echo", {"server": "other", "tool": "box_echo", "arguments": {}}, ""),
        ("mcp.mooring.gone", {"server": "mooring", "tool": "gone", "arguments": {}}, ""),
        ("rm -rf /", {"server": "mooring", "tool": "box_echo", "arguments": {}}, ""),
        ("mcp.mooring.box_echo", {"server": "mooring", "tool": "box_echo", "arguments": {}, "command": "rm"}, ""),
        ("mcp.mooring.box_echo", {"command": "mcp.mooring.box_echo"}, ""),
    ],
)
def test_a_command_is_not_taken_for_a_call_of_ours(title: str, given: dict[str, object], name: str) -> None:
    """A31"""
    assert acp_servers.told(title, given, frozenset({"box_echo"})) == name


def gathered(*events: dict[str, Any]) -> tuple[Round, list[AnyEvent]]:
    told: list[AnyEvent] = []
    got = Round(told.append)
    for event in events:
        got.took(event)
    return got, told


def test_pieces_of_calls_come_together() -> None:
    """A29"""
    got, told = gathered(
        {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "he"},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "y"},
        {"type": "TOOL_CALL_START", "toolCallId": "1", "toolCallName": "x"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "1", "delta": '{"a":'},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "1", "delta": "1}"},
        {"type": "TOOL_CALL_END", "toolCallId": "1"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "2", "toolCallName": "y", "delta": '{"b"'},
        {"type": "TOOL_CALL_CHUNK", "delta": ": 2}"},
        {"type": "TOOL_CALL_START", "toolCallId": "3", "toolCallName": "server_side"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": "3", "content": "done there"},
        {"type": "SOMETHING_NEW"},
        {"type": "RUN_FINISHED", "outcome": {"type": "success"}},
    )
    assert [(call.name, call.given()) for call in got.open()] == [("x", {"a": 1}), ("y", {"b": 2})]
    message, result = got.said()
    assert (message["id"], message["content"]) == ("m", "hey")
    assert [call["function"]["name"] for call in message["toolCalls"]] == ["x", "y", "server_side"]
    assert result == {"id": "r-3", "role": "tool", "toolCallId": "3", "content": "done there"}
    assert [type(event) for event in told] == [Text, Text, ToolCall, ToolCall, ToolCall, ToolResult]
    assert got.finished


def test_what_is_no_object_is_no_arguments_and_failures_are_kept() -> None:
    """A29"""
    got, _ = gathered(
        {"type": "TOOL_CALL_START", "toolCallId": "1", "toolCallName": "x"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "1", "delta": "{nonsense"},
        {"type": "RUN_ERROR", "message": "out of luck"},
    )
    assert got.open()[0].given() is None
    assert (got.error, got.finished) == ("out of luck", False)
    got, _ = gathered({"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [{"id": "i"}]}})
    assert got.interrupts == [{"id": "i"}]
    got, _ = gathered(
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "all"}]}, {"type": "STATE_SNAPSHOT", "snapshot": 1}
    )
    assert (got.snapshot, got.state, got.said()) == ([{"id": "all"}], 1, [])
