"""Valid JSON that msgspec refuses: a lone surrogate (``"\\ud800"``) is legal JSON text and appears in real payloads.

The standard library scans it; raw values are the very bytes of the source. Loaded by ``wire.jsonrpc`` and
``instances.listing`` when msgspec has refused something. Pure.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from msgspec import Raw


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant).raw_decode
_SPACE = " \t\n\r"


def text(value: Any) -> bytes:
    """Any Python value as JSON bytes."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def value(source: bytes) -> Any:
    """The Python value. Raises ValueError."""
    return json.loads(source)


def members(frame: bytes) -> dict[str, Raw]:
    """The raw members of an object. Raises ValueError when it is none."""
    source = frame.decode("utf-8")
    parts: dict[str, Raw] = {}
    at = _skip(source, 0, "{")
    at = _skip(source, at)
    while source[at : at + 1] != "}":
        start = _skip(source, at)
        if source[start : start + 1] != '"':
            raise ValueError("a member name was expected")
        key, at = _scan(source, start)
        start = _skip(source, _skip(source, at, ":"))
        _, end = _scan(source, start)
        parts[str(key)] = Raw(source[start:end].encode())
        at = _skip(source, end)
        if source[at : at + 1] not in (",", "}"):
            raise ValueError("',' or '}' was expected")
        if source[at] == ",":
            at = _skip(source, at + 1)
            if source[at : at + 1] == "}":
                raise ValueError("a member name was expected")
    if _skip(source, at + 1) != len(source):
        raise ValueError("something follows the object")
    return parts


def elements(source: bytes) -> list[Raw]:
    """The raw elements of an array. Raises ValueError when it is none."""
    array = source.decode("utf-8")
    found: list[Raw] = []
    at = _skip(array, 0, "[")
    while (at := _past(array, at)) < len(array) and array[at] != "]":
        start = at
        _, at = _scan(array, start)
        found.append(Raw(array[start:at].encode()))
    return found


def _skip(source: str, at: int, expected: str = "") -> int:
    """The next position that is not white space; with ``expected`` the position after that character."""
    while source[at : at + 1] and source[at] in _SPACE:
        at += 1
    if expected:
        if source[at : at + 1] != expected:
            raise ValueError(f"{expected!r} was expected")
        at += 1
    return at


def _past(source: str, at: int) -> int:
    """The next position that is neither white space nor a comma."""
    while source[at : at + 1] and source[at] in _SPACE + ",":
        at += 1
    return at
