"""``registry_exec``: a call that names another tool becomes the call of that tool, before anything is decided about it.

So there is one route and one policy for both, and the result is the inner tool's own. Used by ``relay.calls``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.config.plan import REGISTRY
from mooring.nouns import Era
from mooring.relay.table import Route
from mooring.wire import jsonrpc
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request, Session

EXEC = "exec"
"""The tool of the registry that calls others."""
_ALIAS = "mcp_"


class Inner:
    """The call that a request stands for. Implements ``wire.session.Request``."""

    headers: Mapping[bytes, bytes] = {}
    """Those of the outer request speak of the outer tool."""

    def __init__(self, outer: Request, params: bytes) -> None:
        self._outer = outer
        self.params = params

    @property
    def session(self) -> Session:
        return self._outer.session

    @property
    def raw_id(self) -> bytes:
        return self._outer.raw_id

    @property
    def method(self) -> str:
        return self._outer.method

    @property
    def era(self) -> Era:
        return self._outer.era

    @property
    def version(self) -> str:
        return self._outer.version

    def heard(self, method: str, params: bytes) -> None:
        self._outer.heard(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        return await self._outer.ask(method, params)


def indirect(route: Route) -> bool:
    """Whether the tool is ``registry_exec``."""
    return route.upstream == EXEC and route.variant.id == REGISTRY


def meant(request: Request, tools: Mapping[str, Route]) -> Request:
    """The call that ``request``, one of ``registry_exec``, asks for."""
    parts = jsonrpc.members(request.params)
    given = jsonrpc.fields(parts.get("arguments"))
    name = by_alias(jsonrpc.string(given.get("tool_name")) or "", tools)
    inner = given.get("arguments", jsonrpc.EMPTY)
    return Inner(request, jsonrpc.build({**parts, "name": jsonrpc.text(name), "arguments": inner}))


def by_alias(name: str, tools: Mapping[str, Route]) -> str:
    """The advertised name of ``name``, which may have the form ``mcp_<prefix>_<tool>``."""
    return name if name in tools else name.removeprefix(_ALIAS)
