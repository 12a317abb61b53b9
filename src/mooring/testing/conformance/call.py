"""One request to the conformance server, and the client it came from. Standard library only.

Tools ask in one way, ``Call.ask``: a legacy client gets requests, a modern one an input-required result. What a modern
client has answered so far travels in ``requestState``, signed, so that the server keeps nothing between two rounds.

Source: MCP 2025-11-25 "Elicitation", "Sampling", "Roots"; MCP 2026-07-28 "Multi round-trip requests".
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from mooring.testing.call import LOG_LEVELS, META, MISSING_CAPABILITY
from mooring.testing.peer import INTERNAL_ERROR, INVALID_PARAMS, JSON, RpcError

Era = Literal["legacy", "modern"]
Say = Callable[[JSON], None]
"""Sends one message."""

CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""What a client must have declared before it is asked."""
_KEY = os.urandom(32)


class InputRequired(Exception):
    """Ends a modern request with this result; the client repeats it with answers."""

    def __init__(self, result: JSON) -> None:
        super().__init__("input required")
        self.result = result


class Client:
    """The other end: a legacy session, one stdio pipe in whichever era, or the sender of one modern HTTP request."""

    def __init__(self, say: Say) -> None:
        self.say = say
        """Sends what belongs to no request."""
        self.capabilities: JSON = {}
        """Declared in ``initialize``."""
        self.initialized = False
        self.log_level = "debug"
        self.subscribed: set[str] = set()
        self.running: dict[Any, asyncio.Task[Any]] = {}
        self._questions: dict[str, asyncio.Future[JSON]] = {}
        self._asked = 0

    async def ask(self, say: Say, method: str, params: JSON) -> JSON:
        """Send a request and wait for its result. Raises RpcError with the client's error."""
        self._asked += 1
        question = f"question-{self._asked}"
        reply: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._questions[question] = reply
        try:
            say({"jsonrpc": "2.0", "id": question, "method": method, "params": params})
            message = await reply
        finally:
            del self._questions[question]
        if "error" in message:
            error = message["error"]
            raise RpcError(error.get("code", INTERNAL_ERROR), error.get("message", ""), error.get("data"))
        return message.get("result", {})

    def answered(self, message: JSON) -> None:
        """A response of the client."""
        reply = self._questions.get(str(message.get("id")))
        if reply is not None and not reply.done():
            reply.set_result(message)

    def cancelled(self, params: JSON) -> None:
        """The client does not want an answer any more."""
        task = self.running.get(params.get("requestId"))
        if task is not None:
            task.cancel()


class Call:
    """One request. ``say`` sends what belongs to it; ``pause`` ends its stream early where there is one."""

    def __init__(self, client: Client, era: Era, message: JSON, say: Say, pause: Callable[[], None]) -> None:
        self.client = client
        self.era: Era = era
        self.id = message["id"]
        self.method: str = message["method"]
        self.params: JSON = message.get("params") or {}
        self.meta: JSON = self.params.get("_meta") or {}
        self.say = say
        self.pause = pause

    @property
    def capabilities(self) -> JSON:
        """What the client declared, in its era's place."""
        return self.meta.get(META + "clientCapabilities", {}) if self.era == "modern" else self.client.capabilities

    @property
    def arguments(self) -> JSON:
        """Of a tool or a prompt."""
        return self.params.get("arguments") or {}

    def notify(self, method: str, params: JSON) -> None:
        """Send a notification that belongs to this request."""
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def progress(self, done: float, total: float) -> None:
        """Report progress, if the client asked for it."""
        if "progressToken" in self.meta:
            token = self.meta["progressToken"]
            self.notify("notifications/progress", {"progressToken": token, "progress": done, "total": total})

    def log(self, level: str, data: Any) -> None:
        """Send a log message, if the client wants that level; a modern one does only if the request says so."""
        wanted = self.meta.get(META + "logLevel") if self.era == "modern" else self.client.log_level
        if wanted is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            self.notify("notifications/message", {"level": level, "logger": "conformance", "data": data})

    async def ask(self, questions: Mapping[str, JSON], *, sealed: bool = False) -> dict[str, JSON]:
        """Answers to all ``questions`` (name to ``method`` and ``params``). ``sealed``: a modern client must bring a
        ``requestState`` back. Raises RpcError, InputRequired."""
        for question in questions.values():
            self.require(CAPABILITY[question["method"]])
        if self.era == "legacy":
            return {name: await self._push(question) for name, question in questions.items()}
        answers = self._answers(sealed)
        open_ones = {name: question for name, question in questions.items() if name not in answers}
        if open_ones:
            state: JSON = {"requestState": _seal(self._purpose, answers)} if sealed else {}
            raise InputRequired({"resultType": "input_required", "inputRequests": open_ones, **state})
        return {name: answers[name] for name in questions}

    def require(self, capability: str) -> None:
        """Raises RpcError when the client did not declare it."""
        if capability not in self.capabilities:
            data: JSON = {"requiredCapabilities": {capability: {}}}
            raise RpcError(MISSING_CAPABILITY, f"the client did not declare {capability}", data)

    async def _push(self, question: JSON) -> JSON:
        return await self.client.ask(self.say, question["method"], question["params"])

    @property
    def _purpose(self) -> str:
        return f"{self.method} {self.params.get('name')} {json.dumps(self.arguments, sort_keys=True)}"

    def _answers(self, sealed: bool) -> dict[str, JSON]:
        """All answers so far: those of earlier rounds, and those that this request brings."""
        given = self.params.get("inputResponses", {})
        if not isinstance(given, dict):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object")
        state = self.params.get("requestState")
        if state is None:
            if sealed and given:
                raise RpcError(INVALID_PARAMS, "requestState is missing")
            earlier: dict[str, JSON] = {}
        else:
            earlier = _open(self._purpose, state)
        return {**earlier, **{name: answer for name, answer in given.items() if isinstance(answer, dict)}}  # pyright: ignore[reportUnknownVariableType]


def _seal(purpose: str, answers: dict[str, JSON]) -> str:
    text = base64.urlsafe_b64encode(json.dumps(answers).encode())
    return f"{text.decode()}.{_signature(purpose, text)}"


def _open(purpose: str, state: Any) -> dict[str, JSON]:
    text, _, signature = str(state).partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(purpose, text.encode()).encode()):
        raise RpcError(INVALID_PARAMS, "requestState was tampered with, or belongs to another request")
    return json.loads(base64.urlsafe_b64decode(text))


def _signature(purpose: str, text: bytes) -> str:
    return hmac.new(_KEY, purpose.encode() + b"\0" + text, hashlib.sha256).hexdigest()
