"""What a run of an agent reports while it goes on: the same few events for every kind of agent. Pure.

An adapter tells them, ``Agent.stream`` hands them on, ``mooring agent run --json`` prints them, one a line.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Stop = Literal["done", "cancelled", "aborted", "failed"]
"""``aborted``: a person refused a call and with it the run. ``failed``: the agent gave up; the text says why."""


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something happened in a run."""

    agent: str = ""
    """Whose run."""


class Text(RunEvent, frozen=True, tag="text"):
    """A piece of what the agent says; pieces follow each other."""

    text: str


class Thought(RunEvent, frozen=True, tag="thought"):
    """A piece of what the agent thinks, where it tells."""

    text: str


class ToolCall(RunEvent, frozen=True, tag="tool_call"):
    """The agent calls a tool: one of its own, or one of Mooring's under its advertised name."""

    id: str
    tool: str
    arguments: dict[str, Any] = {}


class ToolResult(RunEvent, frozen=True, tag="tool_result"):
    """The call with this id is over."""

    id: str
    text: str = ""
    failed: bool = False


class Finished(RunEvent, frozen=True, tag="finished"):
    """The last event of a run."""

    text: str
    """What the agent said after its last call."""
    stop: Stop = "done"


AnyEvent = Text | Thought | ToolCall | ToolResult | Finished
