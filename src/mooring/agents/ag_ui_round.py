"""One request to an AG-UI server: what its events add up to. Pure; used by ``agents.ag_ui``.

Text, calls and their arguments come in pieces, or as chunks that leave out what did not change. A call that has no
result when the run ends waits for us, if it is of a tool of ours; a server's own tools have theirs.
Source: AG-UI 1.0 "Events", "Tools", "State", "Interrupts"; deltas of the state are JSON Patch, RFC 6902.
"""

from __future__ import annotations

from typing import Any

import msgspec
from jsonpatch import JsonPatchException, JsonPointerException, apply_patch

from mooring.agents.agent import Tell
from mooring.agents.events import Text, Thought, ToolCall, ToolResult
from mooring.agents.results import shown
from mooring.wire import jsonrpc

JSON = dict[str, Any]


class Call(msgspec.Struct):
    """A call of a tool, as far as it was told."""

    id: str
    name: str
    arguments: str = ""
    result: str | None = None
    told: bool = False

    @property
    def message(self) -> JSON:
        """As part of an assistant's message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments or "{}"}}

    def given(self) -> JSON | None:
        """The arguments; None when they are no JSON object."""
        try:
            return msgspec.convert(jsonrpc.value((self.arguments or "{}").encode()), dict[str, Any])
        except (ValueError, RecursionError):
            return None


class Turn(msgspec.Struct):
    """One turn of the model: what it said, and what it called before any result came."""

    id: str = ""
    text: str = ""
    calls: list[Call] = []

    def messages(self) -> list[JSON]:
        """As the conversation has it, with the results that came; without those that we still owe."""
        message: JSON = {"id": self.id or f"a-{self.calls[0].id if self.calls else ''}", "role": "assistant"}
        if self.text:
            message["content"] = self.text
        if self.calls:
            message["toolCalls"] = [call.message for call in self.calls]
        results = [result(call, call.result) for call in self.calls if call.result is not None]
        return [message, *results] if self.text or self.calls else []


class Round:
    """Takes the events of one run."""

    def __init__(self, tell: Tell, state: Any = None) -> None:
        """``state``: as it was at the end of the run before."""
        self.calls: dict[str, Call] = {}
        self.interrupts: list[JSON] = []
        self.error = ""
        """Why the server gave up; "" when it did not."""
        self.finished = False
        self.state = state
        """As the server's snapshots and deltas have it; None while there is none."""
        self.snapshot: list[JSON] | None = None
        """The whole conversation, where the server sent it."""
        self._tell = tell
        self._turns = [Turn(calls=[])]
        self._message = ""
        self._call = ""

    def took(self, event: JSON) -> None:
        """One event, decoded."""
        match event.get("type"):
            case "TEXT_MESSAGE_START":
                self._message = event.get("messageId", "")
            case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK":
                self._message = event.get("messageId") or self._message
                self._spoke(event.get("delta") or "")
            case "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_CHUNK":
                if event.get("delta"):
                    self._tell(Thought(text=event["delta"]))
            case "TOOL_CALL_START" | "TOOL_CALL_CHUNK" | "TOOL_CALL_ARGS":
                self._called(event)
            case "TOOL_CALL_END":
                self._complete(event.get("toolCallId", ""))
            case "TOOL_CALL_RESULT":
                self._returned(event)
            case "STATE_SNAPSHOT":
                self.state = event.get("snapshot")
            case "STATE_DELTA":
                self._patched(event.get("delta") or [])
            case "MESSAGES_SNAPSHOT":
                self.snapshot = event.get("messages")
            case "RUN_ERROR":
                self.error = event.get("message") or "the run failed"
            case "RUN_FINISHED":
                self._finished(event.get("outcome") or {})
            case _:
                pass

    def said(self) -> list[JSON]:
        """The messages of this run, for the conversation; without results that we still owe."""
        return [message for turn in self._turns for message in turn.messages()]

    def open(self) -> list[Call]:
        """The calls without a result."""
        return [call for call in self.calls.values() if call.result is None]

    def _patched(self, delta: list[JSON]) -> None:
        try:
            self.state = apply_patch({} if self.state is None else self.state, delta)
        except (JsonPatchException, JsonPointerException) as error:
            self.error = self.error or f"a change of its state does not fit: {error}"

    def _spoke(self, text: str) -> None:
        if text:
            turn = self._turn()
            turn.id = turn.id or self._message
            turn.text += text
            self._tell(Text(text=text))

    def _turn(self) -> Turn:
        """The turn that goes on: what follows a result is another one, whatever ids say."""
        if any(call.result is not None for call in self._turns[-1].calls):
            self._turns.append(Turn(calls=[]))
        return self._turns[-1]

    def _called(self, event: JSON) -> None:
        id = event.get("toolCallId") or self._call
        if self._call and id != self._call:
            self._complete(self._call)
        self._call = id
        if id not in self.calls:
            self.calls[id] = Call(id, event.get("toolCallName") or "")
            turn = self._turn()
            turn.id = turn.id or event.get("parentMessageId") or ""
            turn.calls.append(self.calls[id])
        self.calls[id].arguments += event.get("delta") or ""

    def _complete(self, id: str) -> None:
        call = self.calls.get(id)
        if call is not None and not call.told:
            call.told = True
            self._tell(ToolCall(id=call.id, tool=call.name, arguments=call.given() or {}))

    def _returned(self, event: JSON) -> None:
        call = self.calls.get(event.get("toolCallId", ""))
        content = event.get("content", "")
        if call is not None:
            self._complete(call.id)
            call.result = content if isinstance(content, str) else shown({"content": content})
            self._tell(ToolResult(id=call.id, text=call.result))

    def _finished(self, outcome: JSON) -> None:
        self.finished = True
        for id in self.calls:
            self._complete(id)
        if outcome.get("type") == "interrupt":
            self.interrupts = list(outcome.get("interrupts") or ())


def result(call: Call, text: str, failed: bool = False) -> JSON:
    """The message that answers a call."""
    message = {"id": f"r-{call.id}", "role": "tool", "toolCallId": call.id, "content": text}
    return {**message, "error": text} if failed else message
