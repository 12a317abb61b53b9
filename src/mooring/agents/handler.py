"""Who answers for an agent: what a run asks its host, whichever kind of agent it is.

Handed to ``Mooring.agents``; asked by ``agents.seat`` and by adapters. Whatever is None is declined.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer

LIMIT = 300.0
"""Seconds a person may take for an answer; after that the question counts as declined."""

_log = logging.getLogger("mooring")

Verdict = Literal["allow", "skip", "abort"]
"""``skip``: the call is not made, and the agent reads that. ``abort``: the run ends, too."""


class Approval(msgspec.Struct, frozen=True):
    """A call that a person must approve."""

    agent: str
    tool: str
    """Advertised name, or the name of a tool of the agent's own program."""
    arguments: dict[str, Any]
    why: str


Asked = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Params of an MCP request to its result."""


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """Answers the questions of one pool's runs."""

    approve: Callable[[Approval], Awaitable[Verdict]] | None = None
    """Asked for calls that need confirmation; without it they are skipped."""
    elicit: Asked | None = None
    """``elicitation/create``: {"action": "accept" | "decline" | "cancel", "content": ...}."""
    sample: Asked | None = None
    """``sampling/createMessage``. Agents of type native use their model when this is None."""
    roots: tuple[str, ...] = ()
    """Folders that servers may be told of, absolute."""

    def capabilities(self) -> bytes:
        """What this handler can be asked, as an MCP client declares it."""
        offered: dict[str, Any] = {}
        if self.elicit is not None:
            offered["elicitation"] = {"form": {}}
        if self.sample is not None:
            offered["sampling"] = {}
        if self.roots:
            offered["roots"] = {}
        return jsonrpc.text(offered)

    async def answer(self, method: str, params: bytes) -> Answer:
        """The answer to a server's question."""
        asked: Mapping[str, Asked | None] = {
            "elicitation/create": self.elicit,
            "sampling/createMessage": self.sample,
            "roots/list": self._roots if self.roots else None,
        }
        ask = asked.get(method)
        if ask is None:
            return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"this agent answers no {method}")
        try:
            async with asyncio.timeout(LIMIT):
                return Answer(result=jsonrpc.text(await ask(jsonrpc.value(params))))
        except TimeoutError:
            return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, f"{method} was not answered within {LIMIT:g} s")
        except Exception as error:  # the host's own code: the server hears that it failed, nobody else is hurt
            return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, f"{method}: {type(error).__name__}: {error}")

    async def elicited(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a form that an agent's program passes on, from a server that it connects to itself or of its
        own; declined when nobody can be asked."""
        if asked.get("mode", "form") != "form":
            return {"action": "decline"}
        form = {"mode": "form", "message": asked.get("message"), "requestedSchema": asked.get("requestedSchema")}
        answer = await self.answer("elicitation/create", jsonrpc.text(form))
        return {"action": "decline"} if answer.result is None else jsonrpc.value(answer.result)

    async def verdict(self, approval: Approval) -> Verdict:
        """What a person says to a call; "skip" when nobody can be asked or answers in time."""
        if self.approve is None:
            return "skip"
        try:
            async with asyncio.timeout(LIMIT):
                return await self.approve(approval)
        except TimeoutError:
            return "skip"
        except Exception:  # the host's own code
            _log.exception("The host could not say whether %s may be called; it is not", approval.tool)
            return "skip"

    async def _roots(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"roots": [{"uri": Path(folder).as_uri(), "name": Path(folder).name} for folder in self.roots]}
