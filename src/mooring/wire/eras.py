"""The two eras of the protocol, and one message carried from the one to the other. Pure.

Legacy (up to 2025-11-25) agrees on version and capabilities once, in ``initialize``; modern (2026-07-28) says them in
the ``_meta`` of every request, and its results carry a type and caching hints. Fronts read the modern ``_meta`` here;
the relay and the upstreams translate here. Only the object that is edited is rebuilt, from raw members; a payload that
needs no change is returned as it is. ``input_required`` results are told apart but not bridged.

Source: MCP 2026-07-28 "Overview" (``_meta``, ``resultType``, error codes), "Versioning and Compatibility", "Caching".
"""

from __future__ import annotations

import msgspec

from mooring.wire.jsonrpc import (
    EMPTY,
    INVALID_PARAMS,
    Answer,
    BadFrame,
    Raw,
    build,
    failure,
    fields,
    members,
    string,
    text,
)

MODERN_VERSIONS = ("2026-07-28",)
"""Newest first."""
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first."""
SUPPORTED_VERSIONS = MODERN_VERSIONS + LEGACY_VERSIONS
"""What Mooring tells its clients: both eras on every front."""

_NAMESPACE = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY = f"{_NAMESPACE}protocolVersion"
CLIENT_CAPABILITIES_KEY = f"{_NAMESPACE}clientCapabilities"
CLIENT_INFO_KEY = f"{_NAMESPACE}clientInfo"
LOG_LEVEL_KEY = f"{_NAMESPACE}logLevel"
SERVER_INFO_KEY = f"{_NAMESPACE}serverInfo"
SUBSCRIPTION_ID_KEY = f"{_NAMESPACE}subscriptionId"

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND_LEGACY = -32002
URL_ELICITATION_LEGACY = -32042

IN_ROUNDS = ("tools/call", "prompts/get", "resources/read")
"""Methods that may be answered with questions (``input_required``), and are then called again."""

_REQUEST_KEYS = (PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY)
_ROUND = ("requestState", "inputResponses")
_CACHEABLE = frozenset(
    ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
)


class ModernMeta(msgspec.Struct, frozen=True):
    """What a modern request says about its client. The ``bytes`` are raw JSON."""

    version: str
    capabilities: bytes
    client_info: bytes = EMPTY
    """``{}`` when the client did not say."""
    log_level: str | None = None


def negotiate(version: str) -> str:
    """The version to answer a legacy ``initialize`` with: the one asked for when it is known, else the newest."""
    return version if version in LEGACY_VERSIONS else LEGACY_VERSIONS[0]


def unsupported(requested: str) -> Answer:
    """The error for a protocol version that is not spoken here; names those that are."""
    data = {"supported": SUPPORTED_VERSIONS, "requested": requested}
    return failure(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def supported_versions(error: bytes) -> tuple[str, ...] | None:
    """The versions that an "unsupported protocol version" error offers; None when ``error`` is not such an error, and
    so no sign of a modern server."""
    parts = fields(error)
    if bytes(parts.get("code", EMPTY)) != b"%d" % UNSUPPORTED_VERSION:
        return None
    try:
        return msgspec.json.decode(fields(parts.get("data")).get("supported", EMPTY), type=tuple[str, ...])
    except msgspec.DecodeError:
        return None


def modern_meta(params: bytes) -> ModernMeta | Answer:
    """The modern ``_meta`` of a request, or the error to answer: -32602 when what is required is missing or has the
    wrong shape, -32022 when the version is not a modern one."""
    try:
        meta = members(members(params).get("_meta", EMPTY))
    except BadFrame:
        return failure(INVALID_PARAMS, "params._meta must be an object")
    missing = [key for key in (PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY) if key not in meta]
    if missing:
        return failure(INVALID_PARAMS, f"params._meta misses what is required: {', '.join(missing)}")
    version = string(meta[PROTOCOL_VERSION_KEY])
    if version is None:
        return failure(INVALID_PARAMS, f"params._meta: {PROTOCOL_VERSION_KEY} must be a string")
    capabilities = bytes(meta[CLIENT_CAPABILITIES_KEY])
    if not capabilities.startswith(b"{"):
        return failure(INVALID_PARAMS, f"params._meta: {CLIENT_CAPABILITIES_KEY} must be an object")
    if version not in MODERN_VERSIONS:
        return unsupported(version)
    return ModernMeta(
        version=version,
        capabilities=capabilities,
        client_info=bytes(meta.get(CLIENT_INFO_KEY, EMPTY)),
        log_level=string(meta.get(LOG_LEVEL_KEY)),
    )


def to_modern_params(
    params: bytes, *, version: str, capabilities: bytes, client_info: bytes, log_level: str | None = None
) -> bytes:
    """``params`` with the ``_meta`` that a modern server requires. ``client_info`` of ``{}`` and a ``log_level`` of
    None add nothing. Raises BadFrame when ``params`` is not an object."""
    wanted = {PROTOCOL_VERSION_KEY: text(version), CLIENT_CAPABILITIES_KEY: capabilities}
    if client_info != EMPTY:
        wanted[CLIENT_INFO_KEY] = client_info
    if log_level is not None:
        wanted[LOG_LEVEL_KEY] = text(log_level)
    parts = members(params)
    meta = fields(parts.get("_meta"))
    if all(key in meta and bytes(meta[key]) == value for key, value in wanted.items()):
        return params
    return build({**parts, "_meta": build({**meta, **wanted})})


def to_legacy_params(params: bytes) -> bytes:
    """``params`` without what only a modern server reads, answers to earlier questions among it; a ``_meta`` that is
    empty then is dropped. The progress token and all else stay. Raises BadFrame when ``params`` is not an object."""
    parts = members(params)
    meta = fields(parts.get("_meta"))
    kept = {key: value for key, value in meta.items() if key not in _REQUEST_KEYS}
    answered = [parts.pop(name) for name in _ROUND if name in parts]
    if len(kept) == len(meta):
        return build(parts) if answered else params
    del parts["_meta"]
    return build({**parts, "_meta": build(kept)}) if kept else build(parts)


def result_type(result: bytes) -> str:
    """What kind of result this is: "complete" (also when it does not say), "input_required", or what an extension
    defined; "" when it is not a string, which no client accepts."""
    kind = fields(result).get("resultType")
    return "complete" if kind is None else string(kind) or ""


def to_modern_result(method: str, result: bytes, server_info: bytes) -> bytes:
    """A legacy server's ``result`` with what a modern client requires: its type and, where the ``method`` has them,
    caching hints that forbid caching; ``server_info`` unless it is ``{}``. What the server said itself stays."""
    parts = members(result)
    wanted: dict[str, bytes] = {"resultType": b'"complete"'}
    if method in _CACHEABLE:
        wanted |= {"ttlMs": b"0", "cacheScope": b'"private"'}
    changes: dict[str, bytes | Raw] = {key: value for key, value in wanted.items() if key not in parts}
    meta = fields(parts.get("_meta"))
    if server_info != EMPTY and SERVER_INFO_KEY not in meta and (meta or "_meta" not in parts):
        changes["_meta"] = build({**meta, SERVER_INFO_KEY: server_info})
    return build({**parts, **changes}) if changes else result


def to_legacy_result(method: str, result: bytes) -> bytes:
    """A modern server's complete ``result`` for a legacy client. Some of those refuse members they do not know in
    empty results, hence ``resultType`` goes; caching hints and all else stay. ``method`` decides nothing so far."""
    parts = members(result)
    if string(parts.get("resultType")) != "complete":
        return result
    del parts["resultType"]
    return build(parts)
