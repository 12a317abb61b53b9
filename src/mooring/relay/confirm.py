"""Calls that a person has to agree to: Mooring asks the caller's user before anything goes to the server.

A legacy client gets an elicitation request, a modern one an ``input_required`` result whose ``requestState`` is a
handle of ``relay.parked``: bound to the principal and the very call, good for one answer, and gone after
``QUESTION_LIMIT``. A client that cannot be asked is refused, with what can be done about it. Used by ``relay.calls``.

What is shown is the name and the arguments, never what the server says about its tool.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from mooring.errors import Declined, Unconfirmed
from mooring.observe.events import Event, Events
from mooring.relay import bridge
from mooring.relay.exchange import QUESTION_LIMIT
from mooring.relay.parked import Parked, meaning
from mooring.relay.table import Route
from mooring.wire import eras, jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

SHOWN = 4000
"""Characters of the arguments that are shown."""
REMEMBERED = 1000
"""Agreed calls that a server answered with questions of its own; beyond it the oldest is asked about again."""
_SCHEMA = b'{"type":"object","properties":{}}'
Carry = Callable[[Request], Awaitable[Answer]]


class Confirm:
    """Asks; an agreement is for one call."""

    def __init__(self, parked: Parked, events: Events) -> None:
        self._parked = parked
        self._events = events
        self._agreed: OrderedDict[bytes, None] = OrderedDict()
        """Agreed calls that are not over (the server wants input, and the client will come again), and those that a
        person agreed to before they began."""

    @contextmanager
    def agreed(self, request: Request) -> Generator[None]:
        """Within the block this very call, which has to be the one that is meant (``relay.indirect``), is agreed to:
        somebody who cannot be asked within a call, as at the command line, was asked before it."""
        known = _print(request)
        self._agreed[known] = None
        try:
            yield
        finally:
            self._agreed.pop(known, None)

    async def __call__(self, request: Request, route: Route, carry: Carry) -> Answer:
        """The answer of ``carry`` once a person has agreed. Raises Unconfirmed, Declined and what ``carry`` raises."""
        known = _print(request)
        if request.era == "legacy":
            if known in self._agreed:
                del self._agreed[known]
                self._tell("dialogue.answered", request, route, "accept")
            else:
                await self._ask(request, route)
            return await carry(request)
        if known in self._agreed:
            del self._agreed[known]
            return self._remembered(request, await carry(request))
        return await self._parked.run(request, lambda call: self._carried(call, route, carry))

    async def _carried(self, request: Request, route: Route, carry: Carry) -> Answer:
        await self._ask(request, route)
        return self._remembered(request, await carry(request))

    async def _ask(self, request: Request, route: Route) -> None:
        if not askable(request):
            raise Unconfirmed(
                "This call needs a person's agreement, and this client cannot be asked: it does not offer elicitation. "
                f"Use a client that does, or take it out of `confirm` for {route.mount.server} in Mooring's "
                "configuration.",
                server=route.mount.server,
            )
        question = jsonrpc.build({"message": jsonrpc.text(_question(request, route)), "requestedSchema": _SCHEMA})
        self._tell("dialogue.asked", request, route)
        try:
            async with asyncio.timeout(QUESTION_LIMIT):
                answer = await request.ask("elicitation/create", question)
        except TimeoutError:
            self._tell("dialogue.expired", request, route)
            raise Declined("Nobody agreed to the call in time; it was not made.") from None
        action = jsonrpc.string(jsonrpc.fields(answer.result).get("action")) or "none"
        self._tell("dialogue.answered", request, route, action)
        if action != "accept":
            raise Declined

    def _remembered(self, request: Request, answer: Answer) -> Answer:
        if answer.result is not None and eras.result_type(answer.result) == "input_required":
            state = jsonrpc.string(jsonrpc.fields(answer.result).get("requestState")) or ""
            self._agreed[_print(request, state)] = None
            if len(self._agreed) > REMEMBERED:
                self._agreed.popitem(last=False)
        return answer

    def _tell(self, name: str, request: Request, route: Route, action: str = "") -> None:
        principal = request.session.principal
        data = {"tool": route.advertised, "key": principal.key_id, **({"action": action} if action else {})}
        self._events.emit(Event(name, time.time(), principal.workspace, route.mount.server, data=data))


def askable(request: Request) -> bool:
    """Whether the caller's client shows forms to its user. Pure."""
    declared = jsonrpc.fields(bridge.capabilities(request)).get("elicitation")
    modes = jsonrpc.fields(declared)
    return declared is not None and (not modes or "form" in modes)


def _print(request: Request, state: str | None = None) -> bytes:
    """What tells an agreed call from any other: who, what exactly, and the ``requestState`` of this round."""
    if state is None:
        state = jsonrpc.string(jsonrpc.members(request.params).get("requestState")) or ""
    who = request.session.principal
    parts = (who.key_id, who.workspace, request.method, state, repr(sorted(meaning(request.params).items())))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


def _question(request: Request, route: Route) -> str:
    arguments = bytes(jsonrpc.members(request.params).get("arguments", jsonrpc.EMPTY)).decode("utf-8", "replace")
    # What is not printable, such as marks that turn the direction of writing, could show another text than is meant.
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in arguments[:SHOWN])
    more = f" ... ({len(arguments)} characters in all)" if len(arguments) > SHOWN else ""
    return f"Allow this call of {route.advertised} (server {route.mount.server})?\n{shown}{more}"
