"""Functions of plugins around tool calls. Made by ``relay.methods`` when a plugin brings some; else nothing is there.

A guard that fails refuses the call: what cannot be checked does not pass.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from mooring.errors import MooringError, Unavailable
from mooring.plugins.hooks import Guard, GuardedCall, Proceed
from mooring.relay.forward import Forward
from mooring.relay.table import Route
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

_log = logging.getLogger(__name__)


class Guarded:
    """A ``Forward`` for tool calls, which pass the guards, the first one outermost."""

    def __init__(self, forward: Forward, guards: Sequence[tuple[str, Guard]]) -> None:
        self._forward = forward
        self._guards = tuple(guards)
        self.reported = forward.reported

    async def __call__(self, request: Request, route: Route, params: bytes) -> Answer:
        """The answer, as the outermost guard gives it. Raises MooringError."""
        principal = request.session.principal
        call = GuardedCall(principal.workspace, principal.key_id, route.mount.server, route.advertised, route.upstream)

        async def send(given: bytes) -> Answer:
            return await self._forward(request, route, given)

        way: Proceed = send
        for plugin, guard in reversed(self._guards):
            way = _around(plugin, guard, call, way)
        return await way(params)


def _around(plugin: str, guard: Guard, call: GuardedCall, inner: Proceed) -> Proceed:
    async def way(params: bytes) -> Answer:
        try:
            answer: Any = await guard(call, params, inner)
        except MooringError:
            raise
        except Exception as error:
            _log.exception('plugin "%s": its guard failed for %s', plugin, call.tool)
            message = f'The plugin "{plugin}" that guards calls failed ({type(error).__name__}).'
            raise Unavailable(message, server=call.server) from error
        if not isinstance(answer, Answer):
            raise Unavailable(f'The plugin "{plugin}" that guards calls returned no answer.', server=call.server)
        return answer

    return way
