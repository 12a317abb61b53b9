"""One request inside the echo server: what a tool may do with its caller. Standard library only."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

from mooring.testing.peer import INVALID_PARAMS, JSON, RpcError

if TYPE_CHECKING:
    from mooring.testing.server import Server

META = "io.modelcontextprotocol/"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MISSING_CAPABILITY = -32021


class Cancelled(Exception):
    """The client cancelled the request; there is no answer."""


class InputRequired(Exception):
    """The modern way to ask: the request ends with this result, and the client repeats it with answers."""

    def __init__(self, result: JSON) -> None:
        super().__init__("input required")
        self.result = result


class Call:
    """One request from the client."""

    def __init__(self, server: Server, id: Any, method: str, params: JSON, text: str) -> None:
        self.server = server
        self.id = id
        self.method = method
        self.params = params
        self.text = text
        """The whole message as the client wrote it."""
        self.meta: JSON = params.get("_meta") or {}
        self.era = ""
        self.reply: JSON = {}
        self._cancelled = False
        self._woken = threading.Event()

    @property
    def capabilities(self) -> JSON:
        """What the client declared, in its era's place."""
        if self.era == "modern":
            return self.meta.get(META + "clientCapabilities", {})
        return self.server.hello.get("capabilities", {})

    def progress(self, done: float, total: float) -> None:
        """Report progress, if the client asked for it."""
        if "progressToken" in self.meta:
            token = self.meta["progressToken"]
            params = {"progressToken": token, "progress": done, "total": total}
            self.server.notify("notifications/progress", params, self.id)

    def log(self, level: str, data: Any) -> None:
        """Send a log message, if the client wants that level (modern: only if the request names one)."""
        wanted = self.meta.get(META + "logLevel") if self.era == "modern" else self.server.log_level
        if wanted is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            self.server.notify("notifications/message", {"level": level, "logger": "echo", "data": data}, self.id)

    def ask(self, capability: str, method: str, params: JSON) -> JSON:
        """Ask the client something: a request (legacy), or an input round (modern). Raises RpcError when the client
        did not declare the capability, Cancelled, InputRequired."""
        if capability not in self.capabilities:
            data: JSON = {"requiredCapabilities": {capability: {}}}
            raise RpcError(MISSING_CAPABILITY, f"the client did not declare {capability}", data)
        if self.era == "legacy":
            return self.server.ask(self, method, params)
        answers = self.params.get("inputResponses", {})
        if capability not in answers:
            question = {capability: {"method": method, "params": params}}
            self._require({"inputRequests": question, "requestState": self._state()})
        if self.params.get("requestState") != self._state():
            raise RpcError(INVALID_PARAMS, "requestState is not what was sent")
        return answers[capability]

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until the client answers (True) or the time is over (False). Raises Cancelled."""
        woken = self._woken.wait(seconds)
        if self._cancelled:
            raise Cancelled
        return woken

    def resume(self, reply: JSON) -> None:
        """The client answered a question of this call."""
        self.reply = reply
        self._woken.set()

    def cancel(self) -> None:
        """The client does not want an answer any more."""
        self._cancelled = True
        self._woken.set()

    def _state(self) -> str:
        return f"state-{self.params.get('name')}-{self.server.flags.name}"

    def _require(self, result: JSON) -> NoReturn:
        raise InputRequired({"resultType": "input_required", **result})
