"""The place of one open agent: its key, its session, its tools, its run. What an adapter is given.

One for each open agent or session of one. Every tool call of the agent passes ``attended``, whether it comes from this
process or over the endpoint: that is where calls are confirmed, and where the relay learns for whom a server may ask.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from mooring.agents.handler import Approval, Handler
from mooring.agents.layers import OWN
from mooring.agents.session import AgentRequest, AgentSession
from mooring.agents.tools import Context, Tools
from mooring.config.plan import Agent, Plan
from mooring.config.plan_servers import Launch
from mooring.errors import ConfigError, MooringError
from mooring.launch.base import Launched
from mooring.launch.functions import Served, result
from mooring.nouns import NewKey, Principal
from mooring.relay import refusals
from mooring.relay.stewards import Proceed, Steward
from mooring.relay.table import Route
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Handler as RequestHandler
from mooring.wire.session import Request

_EVERY = "every call of this agent is confirmed"
_log = logging.getLogger("mooring")


class Ground(Protocol):
    """What the running parts give an agent; made by ``serve.agents``."""

    @property
    def plan(self) -> Plan: ...

    @property
    def relay(self) -> RequestHandler: ...

    @property
    def stewards(self) -> dict[str, Steward]: ...

    @property
    def models(self) -> Mapping[str, Any]:
        """Models of native agents that the host made itself, by the name that the configuration uses."""
        ...

    def lend(self, workspace: str, name: str) -> NewKey:
        """A key in memory only."""
        ...

    def take_back(self, key_id: str) -> None: ...

    async def endpoint(self) -> str:
        """URL where agents' programs reach Mooring; listens from the first time on."""
        ...

    async def shim(self, workspace: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Command and environment of a process that speaks MCP on its pipes for a workspace: it needs no key, since
        only this user can reach the socket that it opens."""
        ...

    async def serve(self, workspace: str, prefix: str, served: Served | None) -> None:
        """Mount functions in a workspace, or (None) take them away."""
        ...

    async def relisted(self, workspace: str) -> None:
        """The functions of a workspace changed: list them anew, tell every session."""
        ...

    async def route(self, workspace: str, servers: tuple[str, ...]) -> None:
        """Let servers of a session go through Mooring, whatever is configured."""
        ...

    def started(self, name: str, launch: Launch) -> AbstractAsyncContextManager[Launched]:
        """Start an agent's program, with its secrets and nobody else's environment. Raises MooringError."""
        ...


class Run:
    """One run: a prompt, until the agent has answered it."""

    def __init__(self, deps: Any) -> None:
        self.id = uuid.uuid4().hex
        self.deps = deps
        self.aborted = False
        self.abort: Callable[[], None] = lambda: None
        """Ends it; set by whoever carries it out."""


class Seat:
    """Implements ``relay.stewards.Steward``. Made by ``agents.pool``."""

    def __init__(self, ground: Ground, workspace: str, handler: Handler) -> None:
        self.ground = ground
        self.workspace = workspace
        self.handler = handler
        self.key = NewKey("", "", workspace)
        self.session = AgentSession(Principal("", workspace), handler, self.touched)
        self.tools = Tools(self._context, self._own_changed)
        self.run: Run | None = None
        self.stale = False
        """Whether something of the agent changed that its program may not have noticed."""
        self.looked = asyncio.Event()
        """Set when the program has asked for its tools since then."""

    @property
    def agent(self) -> Agent:
        """The agent as it is configured now. Raises ConfigError when it is not any more."""
        agent = self.ground.plan.agents.get(self.workspace)
        if agent is None:
            raise ConfigError(f'The agent of "{self.workspace}" is not in the configuration any more; close it.')
        return agent

    async def open(self) -> None:
        """Take the place: from now on calls are guarded, and the key is valid. Raises MooringError when it is taken."""
        if self.workspace in self.ground.stewards:
            raise MooringError(f'The agent "{self.agent.name}" is open already, in another block of agents.')
        self.key = self.ground.lend(self.workspace, "run")
        self.session = AgentSession(Principal(self.key.id, self.workspace), self.handler, self.touched)
        self.ground.stewards[self.workspace] = self
        self.ground.relay.opened(self.session)
        try:
            await self.ground.serve(self.workspace, OWN, self.tools)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave it; the key is worth nothing afterwards."""
        self.session.close()
        self.ground.stewards.pop(self.workspace, None)
        self.ground.take_back(self.key.id)
        await self.ground.serve(self.workspace, OWN, None)

    async def listed(self) -> list[dict[str, Any]]:
        """The tools of the view as MCP has them."""
        return jsonrpc.value(await self._asked("tools/list", jsonrpc.EMPTY))["tools"]

    async def called(self, tool: str, arguments: Mapping[str, Any], call_id: str) -> dict[str, Any]:
        """The result of a call made in this process; every failure is a result with ``isError``."""
        meta = {"progressToken": call_id, "mooring/callId": call_id}
        params = jsonrpc.text({"name": tool, "arguments": arguments, "_meta": meta})
        answer = await self.ground.relay.handle(AgentRequest(self.session, "tools/call", params))
        if answer.error is not None:
            said = jsonrpc.value(answer.error).get("message")
            answer = result(f"{tool}: {said}", failed=True)
        return jsonrpc.value(answer.result or jsonrpc.EMPTY)

    def touched(self) -> None:
        """Something of the agent changed; the next run begins with a look."""
        self.stale = True
        self.looked.clear()

    def listing(self, request: Request) -> None:
        """See ``relay.stewards.Steward``."""
        if request.method == "tools/list" and not isinstance(request, AgentRequest):
            self.looked.set()

    async def through_mooring(self, servers: Iterable[str], why: str) -> None:
        """Servers that the program was to connect to by itself go through Mooring: it turned out that it cannot."""
        names = tuple(servers)
        if names:
            _log.warning('The agent "%s" reaches %s through Mooring: %s', self.agent.name, ", ".join(names), why)
            await self.ground.route(self.workspace, names)

    async def attended(self, request: Request, route: Route, confirm: bool, proceed: Proceed) -> Answer:
        """See ``relay.stewards.Steward``."""
        if why := self._needs_approval(route, confirm):
            arguments = jsonrpc.fields(jsonrpc.members(request.params).get("arguments"))
            plain = {name: jsonrpc.value(value) for name, value in arguments.items()}
            refusal = await self.approved(route.advertised, plain, why)
            if refusal:
                return refused(refusal, request)
        if isinstance(request, AgentRequest):
            return await proceed(request)
        call = AgentRequest.standing_for(request, self.session)
        return call.returned(await proceed(call))

    async def approved(self, tool: str, arguments: dict[str, Any], why: str) -> str:
        """Ask a person for a call; "" when it may be made, else what the agent is told. An abort ends the run, too."""
        run = self.run
        verdict = await self.handler.verdict(Approval(self.agent.name, tool, arguments, why))
        if verdict == "allow":
            return ""
        if verdict == "abort" and run is not None and run is self.run:  # not one that began meanwhile
            run.aborted = True
            run.abort()
        nobody = "" if self.handler.approve is not None else ", and nobody could be asked"
        return f"This call was not approved ({why}{nobody}); it was not made."

    async def permitted(self, tool: str, arguments: dict[str, Any]) -> str:
        """The program asks for a tool that Mooring does not carry out: "" when it may use it, else what it is told."""
        if self.agent.confirm == "never":
            return ""
        why = _EVERY if self.agent.confirm == "always" else "the agent asks for it"
        return await self.approved(tool, arguments, why)

    def _needs_approval(self, route: Route, confirm: bool) -> str:
        mode = self.agent.confirm
        if confirm:
            return "the configuration wants it confirmed"
        if mode != "per_tool":
            return _EVERY if mode == "always" else ""
        if route.mount.prefix == OWN and self.tools.confirms(route.upstream):
            return "the tool wants to be confirmed"
        hints = jsonrpc.fields(jsonrpc.members(route.raw).get("annotations"))
        if bytes(hints.get("destructiveHint", b"")) == b"true":
            return "the tool says that it may destroy something"
        return ""

    async def _asked(self, method: str, params: bytes) -> bytes | msgspec.Raw:
        answer = await self.ground.relay.handle(AgentRequest(self.session, method, params))
        return answer.result or jsonrpc.EMPTY

    def _context(self, caller: Caller | None, call_id: str) -> Context:
        run = self.run
        return Context(self.agent.name, run.id if run else "", call_id, run.deps if run else None, caller)

    async def _own_changed(self) -> None:
        await self.ground.relisted(self.workspace)
        self.touched()


def refused(text: str, request: Request) -> Answer:
    """A refusal as the result of a tool, for the era of who called."""
    answer = result(text, failed=True)
    facts = jsonrpc.build({refusals.ERROR_KEY: jsonrpc.text({"kind": "refused"})})
    changes: dict[str, bytes | None] = {"_meta": facts}
    if request.era == "modern":
        changes["resultType"] = b'"complete"'
    return Answer(result=jsonrpc.replace(answer.result or jsonrpc.EMPTY, **changes))
