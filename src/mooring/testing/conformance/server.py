"""The conformance server without a transport: eras, requests and what answers them. Standard library only.

Transports call ``answer`` for each request and ``notified`` for all else; what a request has to say before its answer
leaves through the ``say`` it came with. Source: MCP 2025-11-25 "Lifecycle"; MCP 2026-07-28 "Versioning", "Discovery".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mooring.testing.call import LOG_LEVELS, META
from mooring.testing.conformance import content, tools
from mooring.testing.conformance.call import Call, Client, Era, InputRequired, Say
from mooring.testing.conformance.hub import TRIGGERS, Hub, tagged
from mooring.testing.peer import INTERNAL_ERROR, INVALID_PARAMS, JSON, METHOD_NOT_FOUND, RpcError

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
UNSUPPORTED_VERSION = -32022
CACHEABLE = ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list")
INFO: JSON = {"name": "mooring-conformance", "version": "1.0.0"}

Step = Callable[[Call], Awaitable[JSON]]


def _nothing() -> None:
    pass


class Server:
    """One process. ``eras``: which it speaks."""

    def __init__(self, eras: tuple[Era, ...] = ("legacy", "modern")) -> None:
        self.eras = eras
        self.hub = Hub()
        both: dict[str, Step] = {
            "tools/list": self._list("tools"),
            "prompts/list": self._list("prompts"),
            "resources/list": _fixed({"resources": content.RESOURCES}),
            "resources/templates/list": _fixed({"resourceTemplates": content.TEMPLATES}),
            "resources/read": content.read,
            "prompts/get": content.prompt,
            "completion/complete": content.complete,
            "tools/call": self._call,
        }
        legacy: dict[str, Step] = {
            "initialize": self._initialize,
            "ping": _fixed({}),
            "logging/setLevel": _set_level,
            "resources/subscribe": _subscribe,
            "resources/unsubscribe": _unsubscribe,
        }
        modern: dict[str, Step] = {"server/discover": self._discover, "subscriptions/listen": self._listen}
        self._steps: dict[Era, dict[str, Step]] = {"legacy": {**both, **legacy}, "modern": {**both, **modern}}

    @property
    def versions(self) -> list[str]:
        """All versions it speaks."""
        return [
            *(MODERN_VERSIONS if "modern" in self.eras else ()),
            *(LEGACY_VERSIONS if "legacy" in self.eras else ()),
        ]

    def era_of(self, message: JSON) -> Era:
        """The era of a request, by what it says about itself."""
        if len(self.eras) == 1:
            return self.eras[0]
        params: JSON = message.get("params") or {}
        meta: JSON = params.get("_meta") or {}
        return "modern" if META + "protocolVersion" in meta or message["method"] == "server/discover" else "legacy"

    async def answer(
        self, client: Client, message: JSON, era: Era, say: Say, pause: Callable[[], None] = _nothing
    ) -> JSON:
        """The response to a request. ``say`` sends what belongs to it, ``pause`` closes its stream early."""
        head = {"jsonrpc": "2.0", "id": message["id"]}
        task = asyncio.current_task()
        assert task is not None
        client.running[message["id"]] = task
        try:
            return {**head, "result": await self._result(Call(client, era, message, say, pause))}
        except InputRequired as required:
            return {**head, "result": required.result}
        except RpcError as error:
            return {**head, "error": error.body()}
        except Exception as error:
            return {**head, "error": RpcError(INTERNAL_ERROR, f"{type(error).__name__}: {error}").body()}
        finally:
            if client.running.get(message["id"]) is task:
                del client.running[message["id"]]

    def notified(self, client: Client, message: JSON) -> None:
        """A notification or a response of a client."""
        match message.get("method"):
            case "notifications/initialized":
                client.initialized = True
                self.hub.clients.add(client)
            case "notifications/cancelled":
                client.cancelled(message.get("params") or {})
            case None:
                client.answered(message)
            case _:
                pass

    def gone(self, client: Client) -> None:
        """A client left."""
        self.hub.clients.discard(client)
        for task in client.running.values():
            task.cancel()

    async def _result(self, call: Call) -> JSON:
        if call.era == "modern":
            self._check(call)
        step = self._steps[call.era].get(call.method)
        if step is None:
            raise RpcError(METHOD_NOT_FOUND, f"no method {call.method}")
        answer = await step(call)
        if call.era == "legacy":
            return answer
        hints: JSON = {"ttlMs": 0, "cacheScope": "private"} if call.method in (*CACHEABLE, "resources/read") else {}
        return {"resultType": "complete", **hints, **answer}

    def _check(self, call: Call) -> None:
        """The envelope of a modern request."""
        if call.method == "initialize" and META + "protocolVersion" not in call.meta:
            raise self._unsupported(call.params.get("protocolVersion"))
        for key in ("protocolVersion", "clientCapabilities"):
            if META + key not in call.meta:
                raise RpcError(INVALID_PARAMS, f"_meta lacks {META}{key}")
        version = call.meta[META + "protocolVersion"]
        if version not in MODERN_VERSIONS:
            raise self._unsupported(version)

    def _unsupported(self, version: object) -> RpcError:
        data: JSON = {"supported": self.versions, "requested": version}
        return RpcError(UNSUPPORTED_VERSION, f"protocol version {version} is not supported", data)

    def _capabilities(self, era: Era) -> JSON:
        changing = {"listChanged": True}
        own: JSON = {"tools": changing, "prompts": changing, "resources": {"subscribe": True}}
        return {**own, "completions": {}, "logging": {}}

    async def _initialize(self, call: Call) -> JSON:
        asked = call.params.get("protocolVersion")
        call.client.capabilities = call.params.get("capabilities") or {}
        version = asked if asked in LEGACY_VERSIONS else LEGACY_VERSIONS[0]
        return {"protocolVersion": version, "capabilities": self._capabilities("legacy"), "serverInfo": INFO}

    async def _discover(self, call: Call) -> JSON:
        about = {META + "serverInfo": INFO}
        return {"supportedVersions": self.versions, "capabilities": self._capabilities("modern"), "_meta": about}

    def _list(self, kind: str) -> Step:
        async def step(call: Call) -> JSON:
            return {kind: self.hub.lists[kind]}

        return step

    async def _call(self, call: Call) -> JSON:
        name: Any = call.params.get("name")
        if name in TRIGGERS:
            self.hub.toggle(TRIGGERS[name])
            return tools.result(tools.text("changed"))
        if name in tools.TOOLS:
            return await tools.run(call)
        if name in [each["name"] for each in self.hub.lists["tools"]]:
            return tools.result(tools.text("here today"))
        raise RpcError(INVALID_PARAMS, f"no tool {name}")

    async def _listen(self, call: Call) -> JSON:
        """Lasts until it is cancelled."""
        wanted: JSON = call.params.get("notifications") or {}
        known = ("toolsListChanged", "promptsListChanged", "resourceSubscriptions")
        honoured = {key: value for key, value in wanted.items() if key in known}
        call.notify("notifications/subscriptions/acknowledged", {"notifications": honoured, **tagged(call)})
        self.hub.listens[call] = honoured
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            del self.hub.listens[call]
        return {}


def _fixed(answer: JSON) -> Step:
    async def step(call: Call) -> JSON:
        return answer

    return step


async def _set_level(call: Call) -> JSON:
    if call.params.get("level") not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, "no such level")
    call.client.log_level = call.params["level"]
    return {}


async def _subscribe(call: Call) -> JSON:
    call.client.subscribed.add(str(call.params.get("uri")))
    return {}


async def _unsubscribe(call: Call) -> JSON:
    call.client.subscribed.discard(str(call.params.get("uri")))
    return {}
