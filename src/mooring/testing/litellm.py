"""A small LiteLLM for tests: its management API as far as Mooring uses it, with the surprises of the real one.

    async with FakeLiteLLM() as litellm:
        ... litellm.url, litellm.master_key ...
        litellm.servers, litellm.teams, litellm.keys    # what it has, to look at and to spoil
        litellm.writes                                  # what was asked of it, but for reading

The same tests run against this and against the real one (``tests/litellm``), so that it stays like it. Among the
surprises: fields that it does not know are dropped in silence, credentials never come back, permissions are merged
field by field, lists leave permissions out, and unknown servers and teams are granted without a word. It serves no MCP.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

JSON = dict[str, Any]
MASTER_KEY = "sk-master-of-the-fake"
LISTS = ("mcp_access_groups", "allowed_tools", "extra_headers")
SERVER: JSON = {
    "server_id": None,
    "server_name": None,
    "alias": None,
    "description": None,
    "url": None,
    "transport": "sse",
    "auth_type": None,
    "static_headers": {},
    "mcp_info": {},
    "allow_all_keys": False,
    **{name: [] for name in LISTS},
}
PERMISSION: JSON = {"mcp_servers": [], "mcp_access_groups": [], "mcp_tool_permissions": {}, "mcp_toolsets": []}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, body: JSON) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def detail(status: int, text: str) -> Refused:
    """As the pages about servers complain."""
    return Refused(status, {"detail": {"error": text}})


def fault(field: str, text: str) -> Refused:
    """As the check of a body complains."""
    return Refused(422, {"detail": [{"type": "value_error", "loc": ["body", field], "msg": text}]})


def proxy(status: int, text: str, kind: str = "bad_request_error", param: str | None = None) -> Refused:
    """As the pages about teams and keys complain."""
    return Refused(status, {"error": {"message": text, "type": kind, "param": param, "code": str(status)}})


class FakeLiteLLM:
    """An async context manager; leaving it closes the port. Rows are plain dictionaries, by id."""

    def __init__(self, master_key: str = MASTER_KEY) -> None:
        self.master_key = master_key
        self.url = ""
        self.servers: dict[str, JSON] = {}
        self.credentials: dict[str, Any] = {}
        """What servers were given as credentials."""
        self.teams: dict[str, JSON] = {}
        self.keys: dict[str, JSON] = {}
        """By the SHA-256 of their values."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of everything that was asked."""
        self.trouble: Callable[[str, str], Refused | None] = lambda method, path: None
        """What goes wrong with a request."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def writes(self) -> list[tuple[str, str]]:
        """What was asked of it but for reading."""
        return [(method, path) for method, path in self.requests if method != "GET"]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen: on a free port, later on the same."""
        port = urlsplit(self.url).port or 0
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Close the port and all connections; what it has stays."""
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._open):
                writer.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        sent = await reader.readexactly(int(headers.get("content-length", 0)))
        status, said = self._answer(method, target, headers.get("authorization", ""), sent)
        body = b"" if said is None else msgspec.json.encode(said)
        writer.write(f"HTTP/1.1 {status} _\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return True

    def _answer(self, method: str, target: str, authorization: str, sent: bytes) -> tuple[int, Any]:
        parts = urlsplit(target)
        self.requests.append((method, parts.path))
        try:
            if refused := self.trouble(method, parts.path):
                raise refused
            if authorization != f"Bearer {self.master_key}":
                raise proxy(401, "Authentication Error, Invalid proxy server token passed.", "token_not_found_in_db")
            body: JSON = msgspec.json.decode(sent or b"{}")
            return self._route(method, parts.path, dict(parse_qsl(parts.query)), body)
        except Refused as refused:
            return refused.status, refused.body

    def _route(self, method: str, path: str, query: dict[str, str], body: JSON) -> tuple[int, Any]:
        match method, path:
            case "GET", "/v1/mcp/server":
                return 200, [self._server_row(row) for row in self.servers.values()]
            case "POST", "/v1/mcp/server":
                return 201, self._new_server(body)
            case "PUT", "/v1/mcp/server":
                return 202, self._change_server(body)
            case "DELETE", _ if path.startswith("/v1/mcp/server/"):
                self._remove_server(unquote(path.removeprefix("/v1/mcp/server/")))
                return 202, None
            case "POST", "/team/new":
                return 200, self._new_team(body)
            case "POST", "/team/update":
                return 200, self._change_team(body)
            case "POST", "/team/delete":
                return 200, self._remove_teams(body["team_ids"])
            case "GET", "/team/info":
                return 200, {"team_id": query["team_id"], "team_info": self._team(query["team_id"]), "keys": []}
            case "GET", "/v2/team/list":
                return 200, self._team_page(query)
            case "POST", "/key/generate":
                return 200, self._new_key(body)
            case "POST", "/key/update":
                return 200, self._change_key(body)
            case "POST", "/key/delete":
                return 200, self._remove_keys(body["keys"])
            case "GET", "/key/list":
                return 200, self._key_page(query)
            case _:
                raise Refused(404, {"detail": "Not Found"})

    def _server_row(self, row: JSON) -> JSON:
        """As it is listed: with a name in ``mcp_info`` that nobody put there, and without credentials."""
        info = {**row["mcp_info"], "server_name": row["server_name"], "is_public": False, "is_public_explicit": False}
        return {"is_config": False, **row, "credentials": None, "mcp_info": info}

    def _new_server(self, body: JSON) -> JSON:
        row: JSON = {**SERVER, **_known(body, SERVER)}
        row["alias"] = row["alias"] or row["server_name"]
        self._check_server(body, row)
        if row["server_id"] in self.servers:
            raise detail(400, f"MCP Server with id {row['server_id']} already exists. Cannot create another.")
        self._check_names(row)
        self.servers[row["server_id"]] = row
        self.credentials[row["server_id"]] = body.get("credentials")
        return self._server_row(row)

    def _change_server(self, body: JSON) -> JSON:
        known = self.servers.get(body["server_id"])
        self._check_server(body, body)
        if known is None:
            raise detail(404, f"MCP Server not found, passed server_id={body['server_id']}")
        row = {**known, **_known(body, SERVER)}
        self._check_names(row)
        self.servers[row["server_id"]] = row
        if "credentials" in body:
            self.credentials[row["server_id"]] = body["credentials"]
        return self._server_row(row)

    def _remove_server(self, id: str) -> None:
        """Its id stays in all grants."""
        if self.servers.pop(id, None) is None:
            raise detail(404, f"MCP Server not found, passed server_id={id}")
        del self.credentials[id]

    def _check_server(self, body: JSON, row: JSON) -> None:
        if body.get("transport") not in (None, "http", "sse", "stdio"):
            raise fault("transport", "Input should be 'sse', 'http' or 'stdio'")
        if row.get("transport") in ("http", "sse") and not row.get("url"):
            raise fault("", "Value error, url is required for HTTP/SSE transport")
        for name in (row.get("server_name"), row.get("alias")):
            if name and not name.replace("_", "").replace(".", "").isalnum():
                raise detail(400, f"Server name cannot contain '-'. Use an alternative character instead Found: {name}")

    def _check_names(self, row: JSON) -> None:
        taken = {
            str(other[field]).lower()
            for other in self.servers.values()
            for field in ("server_name", "alias")
            if other["server_id"] != row["server_id"]
        }
        for name in (row["server_name"], row["alias"]):
            if name and name.lower() in taken:
                raise detail(400, f"MCP Server with name or alias {name} already exists.")

    def _new_team(self, body: JSON) -> JSON:
        if body["team_id"] in self.teams:
            raise proxy(400, f"{{'error': 'Team id = {body['team_id']} already exists.'}}")
        row: JSON = {
            "team_id": body["team_id"],
            "team_alias": body.get("team_alias"),
            "metadata": body.get("metadata") or {},
            "object_permission": _merged({}, body.get("object_permission")),
        }
        self.teams[row["team_id"]] = row
        return {**row, "object_permission": None}

    def _change_team(self, body: JSON) -> JSON:
        row = self._team(body["team_id"])
        row |= {name: body[name] for name in ("team_alias", "metadata") if name in body}
        row["object_permission"] = _merged(row["object_permission"], body.get("object_permission"))
        return {"team_id": row["team_id"], "data": {**row, "object_permission": None}}

    def _remove_teams(self, ids: list[str]) -> JSON:
        """With their keys."""
        for id in ids:
            self._team(id)
            del self.teams[id]
            self.keys = {hash: key for hash, key in self.keys.items() if key["team_id"] != id}
        return {"deleted_teams": ids}

    def _team(self, id: str) -> JSON:
        if id not in self.teams:
            raise proxy(404, f"{{'message': 'Team not found, passed team id: {id}.'}}", "auth_error")
        return self.teams[id]

    def _team_page(self, query: dict[str, str]) -> JSON:
        begins = query.get("search_team_id_match") == "prefix"
        wanted = query.get("search", "")
        rows = [
            {**row, "object_permission": None}
            for id, row in self.teams.items()
            if id == wanted or (begins and id.startswith(wanted)) or wanted in (row["team_alias"] or "")
        ]
        return _page("teams", rows, query, int(query.get("page_size", 10)))

    def _new_key(self, body: JSON) -> JSON:
        hash = hashlib.sha256(body["key"].encode()).hexdigest()
        if any(key["key_alias"] == body.get("key_alias") for key in self.keys.values()):
            text = (
                f"Key with alias '{body['key_alias']}' already exists. Unique key aliases across all keys are required."
            )
            raise proxy(400, text, param="key_alias")
        row: JSON = {
            "token": hash,
            "key_alias": body.get("key_alias"),
            "team_id": body.get("team_id"),
            "allowed_routes": body.get("allowed_routes") or [],
            "object_permission": _merged({}, body.get("object_permission")),
        }
        self._check_grant(row)
        # A value that is there already is answered as if it were new, and stays what it was.
        self.keys.setdefault(hash, row)
        return {**row, "key": body["key"], "object_permission": None}

    def _change_key(self, body: JSON) -> JSON:
        row = self.keys.get(body["key"])
        if row is None:
            raise proxy(404, "Key not found.", "not_found_error", "key")
        changed = {**row, **{name: body[name] for name in ("key_alias", "allowed_routes") if name in body}}
        changed["object_permission"] = _merged(row["object_permission"], body.get("object_permission"))
        self._check_grant(changed)
        self.keys[body["key"]] = changed
        return {**changed, "key": body["key"]}

    def _check_grant(self, key: JSON) -> None:
        """A key may ask for what its team has; a team that is not there is no objection. Servers that are not there
        are left out."""
        team = self.teams.get(key["team_id"] or "")
        if team is None:
            return
        permission = key["object_permission"]
        permission["mcp_servers"] = [id for id in permission["mcp_servers"] if id in self.servers]
        has = team["object_permission"]["mcp_servers"]
        lacking = [id for id in permission["mcp_servers"] if id not in has]
        if lacking:
            text = f"Key requests MCP servers not allowed by team '{key['team_id']}': {lacking}. Team allows: {has}."
            raise proxy(403, f"{{'error': \"{text}\"}}", "auth_error")

    def _remove_keys(self, hashes: list[str]) -> JSON:
        for hash in hashes:
            if self.keys.pop(hash, None) is None:
                raise proxy(404, "{'error': 'No keys found'}", "auth_error")
        return {"deleted_keys": hashes}

    def _key_page(self, query: dict[str, str]) -> JSON:
        rows = [
            row
            for row in self.keys.values()
            if all(row[field] == query[field] for field in ("team_id", "key_alias") if field in query)
        ]
        full = query.get("return_full_object", "").lower() == "true"
        return _page("keys", [row if full else row["token"] for row in rows], query, int(query.get("size", 10)))


def _known(body: JSON, fields: JSON) -> JSON:
    """What it knows of a body, lists and tables never null."""
    return {name: fields[name] if value is None else value for name, value in body.items() if name in fields}


def _merged(before: JSON, given: JSON | None) -> JSON:
    """Permissions: what is left out keeps its value, and an empty list clears."""
    return {**PERMISSION, **before, **{name: value for name, value in (given or {}).items() if name in PERMISSION}}


def _page(member: str, rows: list[Any], query: dict[str, str], size: int) -> JSON:
    page = int(query.get("page", 1))
    total = -(-len(rows) // size)
    return {member: rows[(page - 1) * size : page * size], "page": page, "total_pages": total}
