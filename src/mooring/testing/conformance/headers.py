"""What an HTTP request must say in its headers, and the status of an answer. Pure.

Source: MCP 2026-07-28 "Streamable HTTP"; SEP-2243 for names and parameters; MCP 2025-11-25 "Security Warning".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from mooring.testing.call import META, MISSING_CAPABILITY
from mooring.testing.conformance.server import MODERN_VERSIONS, UNSUPPORTED_VERSION
from mooring.testing.conformance.tools import SCHEMAS
from mooring.testing.peer import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    JSON,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
)

Headers = Mapping[str, str]
"""Values by lowercase name."""

HEADER_MISMATCH = -32020
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_BAD = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


def status_of(response: JSON) -> int:
    """The HTTP status of a modern response."""
    code = response.get("error", {}).get("code")
    return 404 if code == METHOD_NOT_FOUND else 400 if code in _BAD else 200


def local(headers: Headers) -> bool:
    """Whether a request was meant for this machine and comes from it, as far as a browser says (DNS rebinding)."""
    origin = headers.get("origin")
    pages = () if origin is None else (origin.partition("://")[2],)
    return all(_host(each) in _LOCAL for each in (headers.get("host", ""), *pages))


def _host(authority: str) -> str:
    host, _, port = authority.rpartition(":")
    return host if port.isdigit() else authority


def disagreement(headers: Headers, message: JSON) -> RpcError | None:
    """The first header of a modern request that does not say what the body says. What the body lacks, or a version that
    nobody knows, is for the server to refuse."""
    params: JSON = message.get("params") or {}
    meta: JSON = params.get("_meta") or {}
    version = meta.get(META + "protocolVersion")
    if version is None:
        return None
    if headers.get("mcp-protocol-version") != version:
        return _mismatch("MCP-Protocol-Version")
    if version not in MODERN_VERSIONS:
        return None
    if headers.get("mcp-method") != message["method"]:
        return _mismatch("Mcp-Method")
    member = _NAMED.get(message["method"])
    if member in params and _decoded(headers.get("mcp-name")) != params[member]:
        return _mismatch("Mcp-Name")
    return _parameters(headers, params) if message["method"] == "tools/call" else None


def _parameters(headers: Headers, params: JSON) -> RpcError | None:
    arguments: JSON = params.get("arguments") or {}
    for name, schema in SCHEMAS.get(str(params.get("name")), {}).get("properties", {}).items():
        header = schema.get("x-mcp-header")
        if header is None:
            continue
        value = arguments.get(name)
        if _decoded(headers.get(f"mcp-param-{header.lower()}")) != (None if value is None else str(value)):
            return _mismatch(f"Mcp-Param-{header}")
    return None


def _mismatch(header: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"the header {header} does not say what the body says")


def _decoded(value: str | None) -> str | None:
    """A header's value without the base64 sentinel; what is malformed equals nothing."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
