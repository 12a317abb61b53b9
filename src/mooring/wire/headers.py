"""The rules about HTTP headers of an MCP endpoint: who may be addressed, what must agree with the body. Pure.

Called by ``wire.http_front`` for each request; also holds the codec that an HTTP upstream uses to send such headers.
Never looks at a socket or a clock; says what is wrong, the front answers.

What is asked of clients, and why: ``Accept`` must name JSON and event streams when it is there (both revisions say
MUST; every client that was seen sends both), but may be missing, which by RFC 9110 accepts anything. ``Content-Type``
must be JSON when it is there. ``MCP-Protocol-Version`` may be missing on the legacy side (Gemini CLI never sends it).

Source: MCP 2025-11-25 "Transports", MCP 2026-07-28 "Streamable HTTP".
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mooring.nouns import Era
from mooring.wire.eras import (
    HEADER_MISMATCH,
    LEGACY_VERSIONS,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
    ModernMeta,
    modern_meta,
    unsupported,
)
from mooring.wire.jsonrpc import (
    EMPTY,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Answer,
    failure,
    fields,
    string,
)

Headers = Mapping[bytes, bytes]
"""Values by lowercase name."""

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
SESSION = b"mcp-session-id"

NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Method to the member of its params that the header ``Mcp-Name`` repeats."""
_LEGACY = frozenset(version.encode() for version in LEGACY_VERSIONS)
_MODERN = frozenset(version.encode() for version in MODERN_VERSIONS)
_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
_USUAL_META = 1024
"""Bytes of a ``_meta`` that may be remembered."""
_USUAL_ACCEPT = b"application/json, text/event-stream"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_PREFIX, _SUFFIX = "=?base64?", "?="


class Hosts:
    """The names this endpoint answers to; whatever else a browser was led to believe is refused (DNS rebinding)."""

    def __init__(self, listen: Iterable[tuple[str, int]], allowed: Iterable[str] = (), public_url: str = "") -> None:
        """``listen``: the addresses bound; ``allowed``: further ``name`` (any port) or ``name:port``."""
        exact: set[str] = set()
        for address, port in listen:
            own = () if address in _EVERYWHERE else (f"[{address}]" if ":" in address else address,)
            exact.update(f"{name}:{port}" for name in (*_LOOPBACK, *own))
            if port == 80:
                exact.update((*_LOOPBACK, *own))
        entries = [name.lower() for name in allowed]
        if public_url:
            entries.append(public_url.lower().partition("://")[2].partition("/")[0])
        exact.update(entries)
        self._exact = frozenset(name.encode() for name in exact if name)
        self._any_port = frozenset(name.encode() for name in entries if name and not _port(name.encode()))

    def know(self, host: bytes | None) -> bool:
        """Whether ``host``, a Host header, names this endpoint. A missing one does not."""
        if host in self._exact:
            return True
        if host is None:
            return False
        host = host.strip().lower()
        port = _port(host)
        return host in self._exact or (host[: len(host) - len(port)] if port else host) in self._any_port

    def trust(self, origin: bytes) -> bool:
        """Whether pages of ``origin`` may call: only those that this endpoint's own names could have served."""
        scheme, found, authority = origin.strip().lower().partition(b"://")
        return bool(found) and scheme in (b"http", b"https") and self.know(authority)


def _port(authority: bytes) -> bytes:
    """``:port`` at the end of an authority; empty when there is none (an IPv6 address has colons of its own)."""
    at = authority.rfind(b":")
    return authority[at:] if at >= 0 and authority[at + 1 :].isdigit() and not authority.endswith(b"]") else b""


def foreign(headers: Headers, hosts: Hosts) -> tuple[int, str] | None:
    """Status and reason when a request was meant for someone else, or comes from someone else's page."""
    if not hosts.know(headers.get(b"host")):
        return 421, "this Host is not served here; see allowed_hosts in the configuration"
    origin = headers.get(b"origin")
    if origin is not None and not hosts.trust(origin):
        return 403, "pages of this Origin may not call; see allowed_hosts in the configuration"
    return None


def unacceptable(headers: Headers) -> tuple[int, str] | None:
    """Status and reason when a POST cannot be answered or read because of its media types."""
    accept = headers.get(b"accept")
    if accept is not None and accept != _USUAL_ACCEPT:
        accept = accept.lower()
        if b"*/*" not in accept and not (_accepts(accept, b"application/json") and accept_events(headers)):
            return 406, "Accept must list both application/json and text/event-stream"
    kind = headers.get(b"content-type")
    if kind is not None and kind != b"application/json":
        kind = kind.partition(b";")[0].strip().lower()
        if kind != b"application/json":
            return 415, "Content-Type must be application/json"
    return None


def accept_events(headers: Headers) -> bool:
    """Whether the client takes an event stream."""
    accept = headers.get(b"accept")
    return accept is None or b"*/*" in accept or _accepts(accept.lower(), b"text/event-stream")


def _accepts(accept: bytes, kind: bytes) -> bool:
    return kind in accept or kind.partition(b"/")[0] + b"/*" in accept


def era_of(version: bytes | None) -> Era:
    """The era of a request by its ``MCP-Protocol-Version``: one of a handshake revision, or none, is legacy; all else,
    also what nobody knows, is for the modern side to answer or to refuse."""
    return "legacy" if version is None or version in _LEGACY else "modern"


def ladder(headers: Headers, method: str, params: bytes) -> ModernMeta | Answer:
    """The checks of a modern request, in order: required ``_meta``, headers that agree with the body, a version that
    is spoken here. The first that fails is the error to answer."""
    parts = _parts(params)
    raw = EMPTY if isinstance(parts.meta, UnsetType) else bytes(parts.meta)
    meta = _usual_meta(raw) if len(raw) <= _USUAL_META else _meta(raw)
    given = headers.get(VERSION, b"")
    if isinstance(meta, Answer):
        claimed = _claimed_version(raw)
        if claimed is not None and claimed.encode() != given:
            return _mismatch("MCP-Protocol-Version", "_meta")
        return meta if claimed is not None or given in _MODERN else unsupported(given.decode("latin-1"))
    if meta.version.encode() != given:
        return _mismatch("MCP-Protocol-Version", "_meta")
    return _disagreement(headers, method, parts) or meta


def _disagreement(headers: Headers, method: str, parts: _Parts) -> Answer | None:
    if headers.get(METHOD, b"") != method.encode("utf-8", "surrogatepass"):
        return _mismatch("Mcp-Method", "method")
    member = NAMED_BY.get(method)
    if member is None:
        return None
    if member == "taskId":
        if NAME not in headers:
            return None  # an extension's rule, which its clients may be older than
        raw = parts.task
    else:
        raw = parts.name if member == "name" else parts.uri
    if isinstance(raw, UnsetType):
        # Nothing to compare without a header either; the handler says what is missing.
        return _mismatch("Mcp-Name", f"params.{member}") if NAME in headers else None
    value = string(raw)
    if value is None:
        return failure(INVALID_PARAMS, f"params.{member} must be a string")
    return None if decode_value(headers.get(NAME)) == value else _mismatch("Mcp-Name", f"params.{member}")


def _mismatch(header: str, member: str) -> Answer:
    return failure(HEADER_MISMATCH, f"Header mismatch: {header} is missing, malformed, or not what {member} says")


class _Parts(msgspec.Struct, gc=False):
    """What of a request's params the headers repeat."""

    name: Raw | UnsetType = UNSET
    uri: Raw | UnsetType = UNSET
    task: Raw | UnsetType = msgspec.field(default=UNSET, name="taskId")
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_parts = msgspec.json.Decoder(_Parts).decode


def _parts(params: bytes) -> _Parts:
    try:
        return _decode_parts(params)
    except (msgspec.DecodeError, RecursionError):
        found = fields(params)  # also reads the valid JSON that msgspec rejects
        members = ("name", "uri", "taskId", "_meta")
        return _Parts(*(found.get(member, UNSET) for member in members))


def _meta(raw: bytes) -> ModernMeta | Answer:
    return modern_meta(b'{"_meta":' + raw + b"}")


_usual_meta = lru_cache(256)(_meta)
"""Clients say the same about themselves in every request."""


def _claimed_version(meta: bytes) -> str | None:
    return string(fields(meta).get(PROTOCOL_VERSION_KEY))


class _Code(msgspec.Struct, gc=False):
    code: int = 0


_code = msgspec.json.Decoder(_Code)


def status_of(answer: Answer) -> int:
    """The HTTP status of a modern response, whoever made the error."""
    if answer.error is None:
        return 200
    try:
        return _STATUS.get(_code.decode(answer.error).code, 200)
    except (msgspec.DecodeError, RecursionError):
        return 200


def encode_value(value: str) -> str:
    """``value`` as a header value: as it is, or in the base64 sentinel when it would not survive."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    return f"{_PREFIX}{binascii.b2a_base64(value.encode(), newline=False).decode()}{_SUFFIX}"


def decode_value(value: bytes | None) -> str | None:
    """The inverse of ``encode_value``; None for what is missing or malformed, so that it equals nothing."""
    if value is None or not value.isascii():
        return None
    text = value.decode()
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        return text
    payload = text[len(_PREFIX) : -len(_SUFFIX)].encode()
    try:
        decoded = binascii.a2b_base64(payload, strict_mode=True)
        return decoded.decode() if binascii.b2a_base64(decoded, newline=False) == payload else None
    except ValueError:
        return None
