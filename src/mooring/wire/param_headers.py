"""``Mcp-Param-*``: arguments of a tool that HTTP requests repeat in their headers, so that what stands in between can
route by them without reading bodies. Pure.

A tool's schema marks such properties with ``x-mcp-header``. ``relay.table`` reads the marks once for each listed tool;
``relay.calls`` compares a client's headers with its arguments, ``relay.exchange`` makes the headers for a server. Tools
without marks never come here.

Source: MCP 2026-07-28 "Custom Headers from Tool Parameters" (SEP-2243).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from mooring.wire.eras import HEADER_MISMATCH
from mooring.wire.headers import decode_value, encode_value
from mooring.wire.jsonrpc import EMPTY, Answer, failure, fields, value

MARK = "x-mcp-header"
PREFIX = "Mcp-Param-"
_PREFIX = PREFIX.lower().encode()
_TYPES = ("string", "integer", "boolean")
"""Of properties that may be marked: a ``number`` has no text that all languages agree on."""
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""What the name of a header is made of (RFC 9110)."""

_ONE = frozenset(
    [
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
"""Keywords of JSON Schema 2020-12 whose value is a schema."""
_LIST = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAP = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


class Marked(msgspec.Struct, frozen=True):
    """A property that is repeated as a header."""

    path: tuple[str, ...]
    """From the arguments down."""
    header: str

    @property
    def key(self) -> bytes:
        """The header's name as requests hold it."""
        return self.header.lower().encode()


class InvalidMarks(ValueError):
    """The marks of a schema break the rules: HTTP clients must not use the tool."""


def marked(schema: Any) -> tuple[Marked, ...]:
    """The marked properties of a tool's input schema. Raises InvalidMarks."""
    found: dict[str, Marked] = {}
    for path, part in _parts(schema):
        if MARK not in part:
            continue
        if not path:
            raise InvalidMarks(f"{MARK} stands where only schemas of plain properties may have it")
        mark = Marked(path, f"{PREFIX}{_name(path, part)}")
        if found.setdefault(mark.header.lower(), mark) is not mark:
            raise InvalidMarks(f"two properties are repeated as {mark.header}")
    return tuple(found.values())


def disagreement(marks: tuple[Marked, ...], params: bytes, headers: Mapping[bytes, bytes]) -> Answer | None:
    """The error for a ``tools/call`` whose headers do not say what its arguments say: present together and equal, or
    absent together, where null counts as absent."""
    arguments = fields(params).get("arguments", EMPTY)
    for mark in marks:
        argument, given = _argument(arguments, mark.path), headers.get(mark.key)
        expected, said = _text(argument), decode_value(given)
        if said is not None and not argument.startswith(b'"'):
            said = _whole(said)
        if said != expected or (given is None) is not (expected is None):
            what = f"{mark.header} is missing, malformed, or not what params.arguments.{'.'.join(mark.path)} says"
            return failure(HEADER_MISMATCH, f"Header mismatch: {what}")
    return None


def outgoing(marks: tuple[Marked, ...], params: bytes, headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The headers for a server: made from the arguments, whoever the client is, and besides these whatever parameters
    the client's own request (``headers``) had that nobody here knows."""
    known = {mark.key for mark in marks}
    made = {
        key.decode("latin-1"): value.decode("latin-1")
        for key, value in headers.items()
        if key.startswith(_PREFIX) and key not in known and value.isascii()
    }
    arguments = fields(params).get("arguments", EMPTY) if marks else EMPTY
    for mark in marks:
        text = _text(_argument(arguments, mark.path))
        if text is not None:
            made[mark.header] = encode_value(text)
    return made


def _parts(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within a schema, with its path; None for one that is not reached through properties alone. Values
    that are data (default, enum, examples) are not entered, references not followed."""
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        schema = cast("dict[str, Any]", node)
        yield path, schema
        for keyword, under in schema.items():
            if keyword == "properties" and isinstance(under, dict):
                named = cast("dict[str, Any]", under)
                waiting += [(None if path is None else (*path, name), each) for name, each in named.items()]
            elif keyword in _ONE:
                waiting.append((None, under))
            elif keyword in _LIST and isinstance(under, list):
                waiting += [(None, each) for each in cast("list[Any]", under)]
            elif keyword in _MAP and isinstance(under, dict):
                waiting += [(None, each) for each in cast("dict[str, Any]", under).values()]


def _name(path: tuple[str, ...], schema: dict[str, Any]) -> str:
    name, where = schema[MARK], ".".join(path)
    if not (isinstance(name, str) and name and _TOKEN.issuperset(name)):
        raise InvalidMarks(f"{MARK} of {where} is not the name of a header")
    if schema.get("type") not in _TYPES:
        raise InvalidMarks(f"{MARK} of {where} stands at a property that is no string, integer or boolean")
    return name


def _argument(arguments: bytes | msgspec.Raw, path: tuple[str, ...]) -> bytes:
    """An argument as raw JSON; null when there is none."""
    for step in path:
        arguments = fields(arguments).get(step, b"null")
    return bytes(arguments)


def _text(raw: bytes) -> str | None:
    """An argument as its header says it; None when there is none, or when it has no such text."""
    if raw.startswith((b"{", b"[")) or raw == b"null":
        return None
    if not raw.startswith(b'"'):
        return _whole(raw.decode())
    text = str(value(raw))
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return text


def _whole(number: str) -> str:
    """Whole numbers are compared as numbers: 42.0 is 42. Whatever else there is (true, 1e3) stays."""
    whole, _, fraction = number.partition(".")
    return whole if whole.removeprefix("-").isdecimal() and not fraction.strip("0") else number
