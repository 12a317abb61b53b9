"""What Mooring answers itself, without any server: who it is, what there is, pings and log levels."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Raw

from mooring.relay import refusals
from mooring.relay.first_look import FirstLooks
from mooring.relay.levels import LEVELS
from mooring.relay.stewards import Stewards
from mooring.relay.view import View
from mooring.relay.views import Views
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

_EMPTY = Answer(result=jsonrpc.EMPTY)


class Greetings:
    """``initialize``, ``server/discover``, the four lists, ``ping`` and ``logging/setLevel``."""

    def __init__(self, views: Views, looks: FirstLooks, stewards: Stewards, version: str) -> None:
        self._views = views
        self._stewards = stewards
        self._looks = looks
        self._server_info = Raw(jsonrpc.text({"name": "mooring", "version": version}))

    async def initialize(self, request: Request) -> Answer:
        """The legacy handshake; never waits for a server."""
        if request.era == "modern":
            return refusals.LEGACY_ONLY
        view = self._views.of(request.session.principal)
        result = {
            "protocolVersion": request.version,
            "capabilities": view.capabilities(request.era),
            "serverInfo": self._server_info,
        }
        return _instructed(result, view)

    async def discover(self, request: Request) -> Answer:
        """The modern discovery; never waits for a server. A reload may change it without a word, hence no caching."""
        view = self._views.of(request.session.principal)
        result = {
            "resultType": "complete",
            "supportedVersions": eras.SUPPORTED_VERSIONS,
            "capabilities": view.capabilities(request.era),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {eras.SERVER_INFO_KEY: self._server_info},
        }
        return _instructed(result, view)

    async def list(self, request: Request) -> Answer:
        """One page with everything that is known; waits a bounded time for servers seen for the first time."""
        view = self._views.of(request.session.principal)
        if view.missing:
            await self._looks.wait(mount.variant for mount in view.mounts)
            view = self._views.of(request.session.principal)
        steward = self._stewards.get(request.session.principal.workspace)
        if steward is not None:
            steward.listing(request)
        return Answer(result=view.listing(request.method, request.era, time.time()))

    async def ping(self, request: Request) -> Answer:
        """Alive."""
        return _EMPTY if request.era == "legacy" else refusals.LEGACY_ONLY

    async def set_level(self, request: Request) -> Answer:
        """The session hears log messages of this level and above."""
        if request.era == "modern":
            return refusals.LEGACY_ONLY
        level = jsonrpc.string(jsonrpc.members(request.params).get("level"))
        if level not in LEVELS:
            return jsonrpc.failure(jsonrpc.INVALID_PARAMS, f"level must be one of {', '.join(LEVELS)}")
        request.session.log_level = level
        return _EMPTY


def _instructed(result: dict[str, Any], view: View) -> Answer:
    instructions = view.instructions()
    if instructions:
        result["instructions"] = instructions
    return Answer(result=jsonrpc.text(result))
