"""Who looks at the tool calls of a workspace before they are carried out: agents, for confirmation and dialogue.

``relay.calls`` asks after routing and policy, whatever way a call came in, and ``relay.greetings`` tells of lists;
``agents.seat`` is the one that looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from mooring.relay.table import Route
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

Proceed = Callable[[Request], Awaitable[Answer]]
"""Carries the call out, for the request it came with or for another one in its place."""


class Steward(Protocol):
    """Looks at each call of one workspace."""

    async def attended(self, request: Request, route: Route, confirm: bool, proceed: Proceed) -> Answer:
        """Carry the call out, or answer it without. ``confirm``: configuration or policy want a person to agree."""
        ...

    def listing(self, request: Request) -> None:
        """Somebody asks for a list."""
        ...


Stewards = dict[str, Steward]
"""By workspace."""
