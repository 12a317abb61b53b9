"""The echo server's protocol half: eras, requests, cancellation, subscriptions. Standard library only.

``Server.receive`` takes one line and answers through ``write``, at once or from a thread of its own where a tool
waits. Sources: MCP 2025-11-25 "Lifecycle"; 2026-07-28 "Versioning", "Multi Round-Trip Requests", "Subscriptions".
"""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from collections.abc import Callable
from typing import Any, Protocol

from mooring.testing import content, tools
from mooring.testing.call import LOG_LEVELS, META, Call, Cancelled, InputRequired
from mooring.testing.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    JSON,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Raw,
    RpcError,
    encode,
)

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
UNSUPPORTED_VERSION = -32022
CACHEABLE = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)

Answer = JSON | Raw


class Write(Protocol):
    """Takes one message as text; ``about`` is the id of the request it belongs to. The empty text stands for dirt."""

    def __call__(self, text: str, about: Any = None) -> None: ...


class Server:
    """One conversation."""

    def __init__(self, flags: Namespace, write: Write) -> None:
        self.flags = flags
        self.write = write
        self.counter = 0
        self.watched_version = 1
        self.log_level = "debug"
        self.seen: list[str] = []
        """Methods of all messages received, in order."""
        self.cancelled: list[Any] = []
        """Ids of the requests the client cancelled while they ran, besides subscriptions, which end in no other way."""
        self.hello: JSON = {}
        """``params`` of ``initialize``."""
        self.initialized = False
        self.catalogue = content.Catalogue(tools.offered(flags))
        self._locked = ""
        self._lock = threading.Lock()
        self._running: dict[Any, Call] = {}
        self._questions: dict[str, Call] = {}
        self._subscribed: set[str] = set()
        self._listening: dict[Any, JSON] = {}

    def receive(self, line: bytes) -> None:
        """Take one line from the client."""
        try:
            text = line.decode()
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            return self._send_error(None, RpcError(PARSE_ERROR, f"not JSON: {error}"))
        if not isinstance(message, dict):
            return self._send_error(None, RpcError(INVALID_REQUEST, "not a JSON-RPC message"))
        return self._take(message, text)  # pyright: ignore[reportUnknownArgumentType]

    def notify(self, method: str, params: JSON, about: Any = None) -> None:
        """Send a notification; ``about``: the id of the request that it belongs to."""
        self.write(encode({"jsonrpc": "2.0", "method": method, "params": params}), about)

    def ask(self, call: Call, method: str, params: JSON) -> JSON:
        """Send a request to the client and wait for its result (legacy). Raises RpcError, Cancelled."""
        question = f"ask-{len(self.seen)}-{call.id}"
        with self._lock:
            self._questions[question] = call
        self.write(encode({"jsonrpc": "2.0", "id": question, "method": method, "params": params}), call.id)
        call.wait()
        if "error" in call.reply:
            error = call.reply["error"]
            raise RpcError(error.get("code", INTERNAL_ERROR), error.get("message", ""), error.get("data"))
        return call.reply.get("result", {})

    def list_changed(self, kind: str) -> None:
        """Announce a changed list in every way the client asked for. ``kind``: tools, prompts or resources."""
        if self.initialized:
            self.notify(f"notifications/{kind}/list_changed", {})
        for listen, wanted in tuple(self._listening.items()):
            if wanted.get(f"{kind}ListChanged"):
                self.notify(f"notifications/{kind}/list_changed", _tagged(listen), listen)

    def resource_updated(self, uri: str) -> None:
        """Announce an updated resource to those who subscribed to it."""
        if uri in self._subscribed:
            self.notify("notifications/resources/updated", {"uri": uri})
        for listen, wanted in tuple(self._listening.items()):
            if uri in wanted.get("resourceSubscriptions", ()):
                self.notify("notifications/resources/updated", {"uri": uri, **_tagged(listen)}, listen)

    def _take(self, message: JSON, text: str) -> None:
        method = message.get("method")
        if not isinstance(method, str):
            return self._answered(message)
        self.seen.append(method)
        params: JSON = message.get("params") or {}
        if "id" not in message:
            return self._notified(method, params)
        if not isinstance(message["id"], int | str):
            return self._send_error(None, RpcError(INVALID_REQUEST, "an id is a string or an integer"))
        if self.flags.never_answer or method in self.flags.hang:
            return None
        if method in self.flags.crash_on or (method == "tools/call" and self.flags.crash_in_call):
            tools.die(f"crashed on {method}")
        call = Call(self, message["id"], method, params, text)
        try:
            call.era = self._era(call)
            if method in self.flags.fail:
                raise RpcError(INTERNAL_ERROR, f"{method} fails on purpose")
            step = self._step(call)
        except RpcError as error:
            return self._send_error(call.id, error)
        self._running[call.id] = call
        if method == "tools/call" and tools.waits(params.get("name")):
            threading.Thread(target=self._run, args=(call, step), daemon=True).start()
            return None
        return self._run(call, step)

    def _run(self, call: Call, step: Callable[[Call], Answer | None]) -> None:
        try:
            answer = step(call)
        except InputRequired as required:
            answer = required.result
        except RpcError as error:
            self._send_error(call.id, error, call)
            return
        except Cancelled:
            return
        if answer is not None:
            self._send_result(call, answer)

    def _era(self, call: Call) -> str:
        """The era a request is served in. Raises the error that its envelope deserves."""
        era = "modern" if META + "protocolVersion" in call.meta else "legacy"
        if call.method == "server/discover":
            era = "modern"
        if self.flags.era != "dual":
            if self.flags.era == "modern":
                self._check_modern(call)
            return self.flags.era
        if self._locked and self._locked != era:
            raise _unsupported(call, (*MODERN_VERSIONS, *LEGACY_VERSIONS))
        if self.flags.lock_era:
            self._locked = era
        if era == "modern":
            self._check_modern(call)
        return era

    def _check_modern(self, call: Call) -> None:
        versions = MODERN_VERSIONS if self.flags.era == "modern" else (*MODERN_VERSIONS, *LEGACY_VERSIONS)
        if call.method == "initialize":
            raise _unsupported(call, versions)
        for key in ("protocolVersion", "clientCapabilities"):
            if META + key not in call.meta:
                raise RpcError(INVALID_PARAMS, f"_meta lacks {META}{key}")
        if call.meta[META + "protocolVersion"] not in MODERN_VERSIONS:
            raise _unsupported(call, versions)

    def _step(self, call: Call) -> Callable[[Call], Answer | None]:
        own = {
            "legacy": {
                "initialize": self._initialize,
                "ping": _empty,
                "logging/setLevel": self._set_level,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
            },
            "modern": {"server/discover": self._discover, "subscriptions/listen": self._listen},
        }[call.era]
        step = own.get(call.method) or content.METHODS.get(call.method) or tools.METHODS.get(call.method)
        capability = call.method.split("/")[0].replace("completion", "completions")
        if step is None or capability in self.flags.without:
            raise RpcError(METHOD_NOT_FOUND, f"no method {call.method}")
        if call.era == "legacy" and not self.initialized and call.method not in ("initialize", "ping"):
            raise RpcError(INVALID_PARAMS, "received before the initialization was complete")
        return step

    def _capabilities(self, era: str) -> JSON:
        changing: JSON = {"listChanged": True} if self.flags.changing else {}
        everything: JSON = {
            "tools": changing,
            "prompts": changing,
            "resources": {**changing, "subscribe": True},
            "completions": {},
            "logging": {},
            "experimental": {"vendor/kept": {"answer": 42}},
        }
        return {key: value for key, value in everything.items() if key not in self.flags.without}

    def _initialize(self, call: Call) -> Answer:
        self.hello = call.params
        asked = call.params.get("protocolVersion")
        hello = {
            "protocolVersion": asked if asked in LEGACY_VERSIONS else LEGACY_VERSIONS[0],
            "capabilities": self._capabilities("legacy"),
            "serverInfo": self._info(),
        }
        return {**hello, "instructions": self.flags.instructions} if self.flags.instructions else hello

    def _discover(self, call: Call) -> Answer:
        found = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": self._capabilities("modern"),
            "_meta": {META + "serverInfo": self._info()},
        }
        return {**found, "instructions": self.flags.instructions} if self.flags.instructions else found

    def _info(self) -> JSON:
        return {"name": self.flags.name, "version": "1.0.0"}

    def _set_level(self, call: Call) -> Answer:
        if call.params.get("level") not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, "no such level")
        self.log_level = call.params["level"]
        return {}

    def _subscribe(self, call: Call) -> Answer:
        self._subscribed.add(call.params["uri"])
        return {}

    def _unsubscribe(self, call: Call) -> Answer:
        self._subscribed.discard(call.params["uri"])
        return {}

    def _listen(self, call: Call) -> None:
        wanted: JSON = call.params.get("notifications", {})
        honoured = {key: value for key, value in wanted.items() if self._honours(key)}
        acknowledged = {"notifications": honoured, **_tagged(call.id)}
        self.notify("notifications/subscriptions/acknowledged", acknowledged, call.id)
        self._listening[call.id] = honoured

    def _honours(self, key: str) -> bool:
        if key == "resourceSubscriptions":
            return "resources" not in self.flags.without
        return self.flags.changing and key.removesuffix("ListChanged") in ("tools", "prompts", "resources")

    def _notified(self, method: str, params: JSON) -> None:
        if method == "notifications/initialized":
            self.initialized = True
        elif method == "notifications/cancelled":
            wanted = params.get("requestId")
            listened = self._listening.pop(wanted, None)
            call = self._running.pop(wanted, None)
            if call is not None:
                if listened is None:
                    self.cancelled.append(wanted)
                call.cancel()

    def _answered(self, message: JSON) -> None:
        with self._lock:
            call = self._questions.pop(str(message.get("id")), None)
        if call is not None:
            call.resume(message)

    def _send_result(self, call: Call, answer: Answer) -> None:
        text = encode(answer)
        if call.era == "modern":
            text = self._modern(call, text, answer)
        if self._running.pop(call.id, None) is call:
            self._put(f'{{"jsonrpc":"2.0","id":{json.dumps(call.id)},"result":{text}}}', call.id)

    def _modern(self, call: Call, text: str, answer: Answer) -> str:
        head: JSON = {} if isinstance(answer, dict) and "resultType" in answer else {"resultType": "complete"}
        if call.method in CACHEABLE:
            head.update({"ttlMs": 0, "cacheScope": "private"})
        return text if not head else encode(head)[:-1] + ("}" if text == "{}" else "," + text[1:])

    def _send_error(self, raw_id: Any, error: RpcError, call: Call | None = None) -> None:
        if call is None or self._running.pop(call.id, None) is call:
            self._put(encode({"jsonrpc": "2.0", "id": raw_id, "error": error.body()}), raw_id)

    def _put(self, text: str, about: Any) -> None:
        """An answer, with the dirt that the flags ask for before it."""
        if self.flags.garbage or self.flags.non_utf8:
            self.write("")
        self.write(text, about)


def _tagged(listen: Any) -> JSON:
    return {"_meta": {META + "subscriptionId": listen}}


def _empty(call: Call) -> Answer:
    return {}


def _unsupported(call: Call, versions: tuple[str, ...]) -> RpcError:
    asked = call.meta.get(META + "protocolVersion") or call.params.get("protocolVersion")
    data = {"supported": list(versions), "requested": asked}
    return RpcError(UNSUPPORTED_VERSION, f"unsupported protocol version; supported: {', '.join(versions)}", data)
