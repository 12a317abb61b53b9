"""What of a message to or from a server is Mooring's own: progress tokens, subscription tags, filters. Pure.

Used by every upstream transport (``wire.stdio_upstream``, ``wire.http_upstream``).
"""

from __future__ import annotations

from mooring.wire import jsonrpc
from mooring.wire.eras import PROTOCOL_VERSION_KEY, SUBSCRIPTION_ID_KEY
from mooring.wire.headers import NAMED_BY, encode_value
from mooring.wire.jsonrpc import EMPTY, fields, members, string

OUTSIDE = ("/list_changed", "resources/updated")
"""How the names of notifications end that belong to no request."""
_LISTS = ("tools", "prompts", "resources")
_TOKEN, _ESCAPE = b'"progressToken"', b"\\u"


def own_token(params: bytes, request_id: int) -> tuple[bytes, bytes | None]:
    """``params`` with our progress token in the place of the caller's, and the caller's, if there is one."""
    if _TOKEN not in params and _ESCAPE not in params:
        return params, None
    parts = members(params)
    meta = fields(parts.get("_meta"))
    token = meta.get("progressToken")
    if token is None:
        return params, None
    own = jsonrpc.build({**meta, "progressToken": b"%d" % request_id})
    return jsonrpc.build({**parts, "_meta": own}), bytes(token)


def without_tag(params: bytes) -> bytes:
    """``params`` of a notification without the id of our own subscription, which means nothing to others."""
    if params == b"null":  # in the place of none
        return EMPTY
    parts = members(params)
    meta = fields(parts.get("_meta"))
    if meta.pop(SUBSCRIPTION_ID_KEY, None) is None:
        return params
    return jsonrpc.replace(params, _meta=jsonrpc.build(meta) if meta else None)


def declared_lists(capabilities: bytes) -> list[str]:
    """The lists (tools, prompts, resources) that a server has."""
    offered = fields(capabilities)
    return [name for name in _LISTS if name in offered]


def list_filter(capabilities: bytes) -> dict[str, bool]:
    """The filter of ``subscriptions/listen`` for the lists that a server says it tells changes of."""
    offered = fields(capabilities)
    told = [name for name in _LISTS if bytes(fields(offered.get(name)).get("listChanged", EMPTY)) == b"true"]
    return {f"{name}ListChanged": True for name in told}


def mirrored(method: str, params: bytes) -> dict[str, str]:
    """The headers of a modern request that repeat what its body says. Source: MCP 2026-07-28 "Request Metadata"."""
    parts = members(params)
    headers = {"Mcp-Method": method}
    version = string(fields(parts.get("_meta")).get(PROTOCOL_VERSION_KEY))
    if version is not None:
        headers["MCP-Protocol-Version"] = version
    name = string(parts.get(NAMED_BY.get(method, "")))
    if name is not None:
        headers["Mcp-Name"] = encode_value(name)
    return headers
