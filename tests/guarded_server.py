"""An MCP server that lets nobody in without a token, and the authorization server that gives them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Self

from mooring.testing.authorization import AuthorizationServer
from raw_http_server import Exchange, RawServer

PLACE = "/.well-known/oauth-protected-resource/mcp"


class GuardedServer(RawServer):
    """``scopes``: what a token must be good for, by JSON-RPC method; "" for all others. ``resource``: members of its
    metadata that are otherwise."""

    def __init__(self, era: str = "dual") -> None:
        super().__init__(era)
        self.guardian = AuthorizationServer()
        self.scopes: dict[str, str] = {"": "basic"}
        self.resource: dict[str, Any] = {}
        self.public: tuple[str, ...] = ()
        """Methods that need no token."""
        self.override = self._guard
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.guardian)
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self._stack.aclose()

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    def calls(self) -> list[Exchange]:
        """Requests that carried a token."""
        return [it for it in self.seen if "authorization" in it.headers]

    async def _guard(self, it: Exchange) -> bool:
        if it.path == PLACE:
            usual = {"resource": self.url, "authorization_servers": [self.guardian.issuer]}
            await it.reply(200, {**usual, **self.resource})
            return True
        method = it.message.get("method", "")
        if method in self.public:
            return False
        has = self.guardian.scopes(it.headers.get("authorization", ""))
        needs = self.scopes.get(method, self.scopes[""])
        where = f'resource_metadata="{self.origin}{PLACE}"'
        if has is None:
            await it.reply(401, www_authenticate=f'Bearer scope="{self.scopes[""]}", {where}')
        elif needs not in has:
            await it.reply(403, www_authenticate=f'Bearer error="insufficient_scope", scope="{needs}", {where}')
        return has is None or needs not in has
