"""LiteLLM's management API, as far as Mooring uses it. Called by ``export.litellm``; imported only when it syncs.

Any 2xx is success. Requests are repeated while LiteLLM cannot be reached or is in trouble: all ids are chosen here, so
that none of them does more when it comes twice. Never decides what should be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from mooring import __version__
from mooring.errors import ConfigError, MooringError, Unavailable
from mooring.export import litellm_rows as rows
from mooring.export.litellm_entries import Key, Names, Observed, Server, Team
from mooring.wire.http_client import cause, tls_context

T = TypeVar("T")
TIMEOUT = 30.0
"""Seconds for one request."""
PAUSES = (0.2, 0.8, 3.0)
"""Seconds before a request is repeated."""
PAGE = 100
"""Rows of one page: the most that LiteLLM gives."""
PAGES = 1000
_IN_TROUBLE = (429, 502, 503, 504)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class LiteLLMClient:
    """An async context manager. Its methods raise Unavailable (``details["code"]`` is the HTTP status, if there was
    one), and ConfigError when the master key is refused."""

    def __init__(self, url: str, master_key: str) -> None:
        self.url = url
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {master_key}", "User-Agent": f"mooring/{__version__}"},
            timeout=TIMEOUT,
            verify=tls_context(),
            trust_env=urlsplit(url).hostname not in _LOOPBACK,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def observe(self, names: Names, workspaces: Iterable[str]) -> Observed:
        """What is there: all servers, the teams of this installation, their keys, and keys that have the alias of one
        of ``workspaces`` wherever they are."""
        servers = await self._read(tuple[rows.ServerRow, ...], "/v1/mcp/server")
        teams = await self._teams(names.prefix)
        keys: dict[str, Key] = {}
        for team in teams:
            keys |= await self._keys(team_id=team.id)
        seen = {key.alias for key in keys.values()}
        for alias in map(names.key, workspaces):
            if alias not in seen:
                keys |= await self._keys(key_alias=alias)
        return Observed(tuple(row.entry for row in servers), teams, tuple(keys.values()))

    async def put_server(self, server: Server, secret: str, *, new: bool) -> None:
        """Write a server, with the bearer token that LiteLLM sends to it. LiteLLM lists servers from a memory that lags
        behind its database, so that a new one may be there already, and a known one gone."""
        body = rows.server_body(server, secret)
        methods = ("POST", "PUT") if new else ("PUT", "POST")
        try:
            await self._write(methods[0], "/v1/mcp/server", body)
        except Unavailable as error:
            if error.details.get("code") != (400 if new else 404):
                raise
            try:
                await self._write(methods[1], "/v1/mcp/server", body)
            except Unavailable:
                raise error from None

    async def remove_server(self, id: str) -> None:
        """It may be gone already."""
        await self._send("DELETE", f"/v1/mcp/server/{quote(id, safe='')}", gone=True)

    async def put_team(self, team: Team, *, new: bool) -> None:
        """Write a team."""
        await self._write("POST", "/team/new" if new else "/team/update", rows.team_body(team))

    async def remove_team(self, id: str) -> None:
        """With all its keys. It may be gone already."""
        await self._send("POST", "/team/delete", {"team_ids": [id]}, gone=True)

    async def create_key(self, key: Key, value: str) -> None:
        """``value``: what its holder sends."""
        await self._write("POST", "/key/generate", {"key": value, "team_id": key.team, **rows.key_body(key)})

    async def update_key(self, key: Key) -> None:
        """Write a key that is there."""
        await self._write("POST", "/key/update", {"key": key.hash, **rows.key_body(key)})

    async def remove_key(self, hash: str) -> None:
        """It may be gone already."""
        await self._send("POST", "/key/delete", {"keys": [hash]}, gone=True)

    async def _teams(self, prefix: str) -> tuple[Team, ...]:
        """The teams whose ids begin so. Each is asked for by itself, since lists do not tell what it may use."""
        found: list[Team] = []
        query = {"search": prefix, "search_team_id_match": "prefix", "page_size": PAGE}
        for page in range(1, PAGES + 1):
            answer = await self._read(rows.TeamPage, "/v2/team/list", {**query, "page": page})
            for id in (row.team_id for row in answer.teams if row.team_id.startswith(prefix)):
                told = await self._send("GET", "/team/info", params={"team_id": id}, gone=True)
                if told is not None:  # else it went meanwhile
                    found.append(self._decode(rows.TeamInfo, told, "/team/info").team_info.entry)
            if page >= (answer.total_pages or 0):
                break
        return tuple(found)

    async def _keys(self, **query: str) -> dict[str, Key]:
        """By hash."""
        found: dict[str, Key] = {}
        for page in range(1, PAGES + 1):
            full = {**query, "return_full_object": "true", "size": PAGE, "page": page}
            answer = await self._read(rows.KeyPage, "/key/list", full)
            found |= {row.token: row.entry for row in answer.keys}
            if page >= (answer.total_pages or 0):
                break
        return found

    async def _read(self, kind: type[T], path: str, params: Mapping[str, Any] | None = None) -> T:
        return self._decode(kind, await self._send("GET", path, params=params) or b"", path)

    async def _write(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        await self._send(method, path, body)

    def _decode(self, kind: type[T], body: bytes, path: str) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"What answers at {self.url}{path} does not speak like LiteLLM: {error}") from None

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        gone: bool = False,
    ) -> bytes | None:
        """The body of the answer; None for 404 where the thing may be ``gone``."""
        code: int | None = None
        why = ""
        for pause in (*PAUSES, None):
            try:
                response = await self._client.request(method, path, json=body, params=params)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                code, why = None, cause(error)
            else:
                if response.is_success:
                    return response.content
                if response.status_code == 404 and gone:
                    return None
                code, why = response.status_code, rows.complaint(response.content) or response.reason_phrase
                if code not in _IN_TROUBLE:
                    break
            if pause is not None:
                await asyncio.sleep(pause)
        raise self._failure(f"{method} {path}", code, why)

    def _failure(self, request: str, code: int | None, why: str) -> MooringError:
        if code is None:
            return Unavailable(f"LiteLLM cannot be reached at {self.url}: {why}")
        if code == 401:
            return ConfigError(f"LiteLLM at {self.url} refuses the master key: {why}", path="litellm.master_key")
        return Unavailable(f"LiteLLM answered {request} with {code}: {why}", code=code)
