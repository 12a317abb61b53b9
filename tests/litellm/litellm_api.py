"""LiteLLM's management API for tests: raw, and a few short ways to look at what is there."""

from __future__ import annotations

from typing import Any

import httpx2


class Api:
    """The management API, raw: status and decoded body of whatever is asked."""

    def __init__(self, url: str, master_key: str) -> None:
        self.url = url
        self.master_key = master_key

    async def __call__(self, method: str, path: str, body: Any = None, key: str = "", **query: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key or self.master_key}"}
        async with httpx2.AsyncClient(base_url=self.url, timeout=60, trust_env=False) as client:
            answer = await client.request(method, path, json=body, headers=headers, params=query)
        return answer.status_code, answer.json() if answer.content else None

    async def servers(self) -> dict[str, dict[str, Any]]:
        _, rows = await self("GET", "/v1/mcp/server")
        return {row["server_id"]: row for row in rows}

    async def teams(self) -> dict[str, dict[str, Any]]:
        _, page = await self("GET", "/v2/team/list", page_size=100)
        return {row["team_id"]: row for row in page["teams"]}

    async def team(self, id: str) -> dict[str, Any]:
        status, answer = await self("GET", "/team/info", team_id=id)
        assert status == 200, answer
        return answer["team_info"]

    async def keys(self, **query: str) -> list[dict[str, Any]]:
        _, page = await self("GET", "/key/list", return_full_object=True, size=100, **query)
        return page["keys"]

    async def clear(self) -> None:
        """Remove whatever is there."""
        for id in await self.servers():
            await self("DELETE", f"/v1/mcp/server/{id}")
        for team in await self.teams():
            await self("POST", "/team/delete", {"team_ids": [team]})
        for key in await self.keys():
            await self("POST", "/key/delete", {"keys": [key["token"]]})
