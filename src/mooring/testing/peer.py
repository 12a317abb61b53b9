"""Just enough JSON-RPC for the echo server: raw members, ids, errors. Standard library only, for its start time."""

from __future__ import annotations

import json
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

JSON = dict[str, Any]

_scan = json.JSONDecoder().raw_decode
_SPACE = " \t\n\r"


class Raw(str):
    """JSON text of an object, to be sent as it is."""

    __slots__ = ()


class RpcError(Exception):
    """Becomes a JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def body(self) -> JSON:
        """The ``error`` member."""
        body: JSON = {"code": self.code, "message": str(self)}
        return body if self.data is None else {**body, "data": self.data}


def encode(value: JSON | Raw) -> str:
    """A value as JSON text; ``Raw`` stays as it is."""
    return value if isinstance(value, Raw) else json.dumps(value, separators=(",", ":"))


def member(source: str, *path: str) -> Raw:
    """The text of one member of a valid JSON object, exactly as the peer wrote it; ``{}`` when there is none."""
    for key in path:
        source = _members(source).get(key, "{}")
    return Raw(source)


def _members(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = _skip(source, _skip(source, 0) + 1)
    while source[at] != "}":
        key, at = _scan(source, at)
        start = _skip(source, _skip(source, at) + 1)
        _, at = _scan(source, start)
        found[key] = source[start:at]
        at = _skip(source, at)
        if source[at] == ",":
            at = _skip(source, at + 1)
    return found


def _skip(source: str, at: int) -> int:
    while source[at] in _SPACE:
        at += 1
    return at
