"""LiteLLM's JSON to entries and back. Pure; called by ``export.litellm_client``.

What is sent names every field that Mooring decides about: one that is left out keeps its value in LiteLLM, and only an
explicit empty list clears.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mooring.export.litellm_entries import TAG, Grant, Key, Server, Team

_ADDED = "server_name"
"""What LiteLLM adds to ``mcp_info`` when it lists servers."""
LONGEST = 500
"""Characters of a complaint."""


class ServerRow(msgspec.Struct):
    """One of ``GET /v1/mcp/server``. Every field but the id may be null."""

    server_id: str
    server_name: str | None = None
    alias: str | None = None
    url: str | None = None
    transport: str | None = None
    auth_type: str | None = None
    static_headers: dict[str, str] | None = None
    mcp_access_groups: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    extra_headers: tuple[str, ...] | None = None
    allow_all_keys: bool | None = None
    mcp_info: dict[str, Any] | None = None
    is_config: bool | None = None

    @property
    def entry(self) -> Server:
        tag, others = _signed(self.mcp_info)
        others.pop(_ADDED, None)
        return Server(
            id=self.server_id,
            name=self.server_name or "",
            alias=self.alias or "",
            url=self.url or "",
            transport=self.transport or "",
            auth=self.auth_type or "none",
            headers=self.static_headers or {},
            groups=self.mcp_access_groups or (),
            allowed_tools=self.allowed_tools or (),
            forwarded=self.extra_headers or (),
            open=bool(self.allow_all_keys),
            tag=tag,
            others=others,
            fixed=bool(self.is_config),
        )


class Permission(msgspec.Struct):
    """An ``object_permission``."""

    mcp_servers: tuple[str, ...] | None = None
    mcp_access_groups: tuple[str, ...] | None = None
    mcp_tool_permissions: dict[str, Any] | None = None
    mcp_toolsets: tuple[str, ...] | None = None

    @property
    def grant(self) -> Grant:
        return Grant(
            servers=tuple(sorted(self.mcp_servers or ())),
            groups=tuple(sorted(self.mcp_access_groups or ())),
            tools=self.mcp_tool_permissions or {},
            toolsets=tuple(sorted(self.mcp_toolsets or ())),
        )


class TeamRow(msgspec.Struct):
    """``team_info`` of ``GET /team/info``; lists leave ``object_permission`` out."""

    team_id: str
    team_alias: str | None = None
    metadata: dict[str, Any] | None = None
    object_permission: Permission | None = None

    @property
    def entry(self) -> Team:
        tag, others = _signed(self.metadata)
        return Team(self.team_id, self.team_alias or "", (self.object_permission or Permission()).grant, tag, others)


class TeamInfo(msgspec.Struct):
    team_info: TeamRow


class TeamPage(msgspec.Struct):
    """One page of ``GET /v2/team/list``."""

    teams: tuple[TeamRow, ...]
    total_pages: int | None = None


class KeyRow(msgspec.Struct):
    token: str
    """SHA-256 of the value."""
    key_alias: str | None = None
    team_id: str | None = None
    allowed_routes: tuple[str, ...] | None = None
    object_permission: Permission | None = None

    @property
    def entry(self) -> Key:
        grant = (self.object_permission or Permission()).grant
        return Key(self.key_alias or "", self.team_id or "", self.token, grant, self.allowed_routes or ())


class KeyPage(msgspec.Struct):
    """One page of ``GET /key/list`` with full objects."""

    keys: tuple[KeyRow, ...]
    total_pages: int | None = None


def server_body(server: Server, secret: str) -> dict[str, Any]:
    """What makes or changes a server; ``secret``: what LiteLLM sends to it as bearer token."""
    return {
        "server_id": server.id,
        "server_name": server.name,
        "alias": server.alias,
        "url": server.url,
        "transport": server.transport,
        "auth_type": server.auth,
        "credentials": {"auth_value": secret} if secret else None,
        "static_headers": server.headers,
        "extra_headers": list(server.forwarded),
        "mcp_access_groups": list(server.groups),
        "allowed_tools": list(server.allowed_tools),
        "allow_all_keys": server.open,
        "mcp_info": {**server.others, TAG: server.tag},
    }


def team_body(team: Team) -> dict[str, Any]:
    """What makes or changes a team."""
    return {
        "team_id": team.id,
        "team_alias": team.alias,
        "metadata": {**team.others, TAG: team.tag},
        "object_permission": _permission(team.grant),
    }


def key_body(key: Key) -> dict[str, Any]:
    """What makes or changes a key, without what says which."""
    return {
        "key_alias": key.alias,
        "allowed_routes": list(key.routes),
        "object_permission": _permission(key.grant),
    }


def complaint(body: bytes) -> str:
    """What LiteLLM says in the body of an error, in whichever of its three shapes; "" when it says nothing."""
    try:
        said: Any = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        said = body.decode("utf-8", "replace").strip()
    while isinstance(said, dict):
        known = cast("dict[str, Any]", said)
        said = next((known[name] for name in ("detail", "error", "message") if name in known), str(known))
    if isinstance(said, list):
        said = "; ".join(map(_fault, cast("list[Any]", said)))
    return str(said)[:LONGEST]


def _fault(fault: Any) -> str:
    """One fault that LiteLLM found in a request's body: where, and what."""
    try:
        read = msgspec.convert(fault, _Fault)
    except msgspec.ValidationError:
        return str(fault)
    return f"{'.'.join(map(str, read.loc))}: {read.msg}"


class _Fault(msgspec.Struct):
    msg: str
    loc: tuple[str | int, ...] = ()


def _signed(info: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our signature, and what else stands beside it."""
    others = dict(info or {})
    tag: Any = others.pop(TAG, None)
    return (cast("dict[str, Any]", tag) if isinstance(tag, dict) else {}), others


def _permission(grant: Grant) -> dict[str, Any]:
    return {
        "mcp_servers": list(grant.servers),
        "mcp_access_groups": list(grant.groups),
        "mcp_tool_permissions": grant.tools,
        "mcp_toolsets": list(grant.toolsets),
    }
