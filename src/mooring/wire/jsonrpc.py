"""JSON-RPC 2.0 frames: bytes to envelope and back. Pure.

The envelope is decoded, payloads stay raw: ``params``, ``result`` and ``error`` are the very bytes the peer wrote, so
nothing is lost that Mooring does not know (30-digit integers, lone surrogates, fields of later revisions). Editing one
member of a payload rebuilds only the object that holds it, from its raw members. What msgspec refuses, such as lone
surrogates, goes through ``wire.lenient``, which is loaded for the first of its kind.

Source: JSON-RPC 2.0; MCP 2025-11-25 and 2026-07-28 "Messages".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

EMPTY = b"{}"
_NULL = Raw(b"null")
_NO_MESSAGE = "neither a request, a notification nor a response"
_USUAL = 64
"""Characters of a member's name that is worth remembering; anybody may send longer ones."""


class Envelope(msgspec.Struct, gc=False):
    """One frame. ``id`` with ``method`` is a request, ``method`` alone a notification, ``id`` alone a response."""

    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    jsonrpc: str = ""


class Answer(msgspec.Struct, gc=False):
    """The payload of a response: exactly one of ``result`` and ``error`` holds raw JSON, the other is None."""

    result: bytes | None = None
    error: bytes | None = None


class BadFrame(ValueError):
    """A frame is not a JSON-RPC message. ``code`` is the JSON-RPC error to answer, ``id`` the raw id if known."""

    def __init__(self, message: str, code: int = PARSE_ERROR, raw_id: bytes = b"null") -> None:
        super().__init__(message)
        self.code = code
        self.raw_id = raw_id


class BadResponse(BadFrame):
    """A frame says which request it answers, ``id``, and then nothing, or two things: ``has`` says which."""

    def __init__(self, id: int | str | None, has: str) -> None:
        super().__init__(_NO_MESSAGE, INVALID_REQUEST)
        self.id = id
        self.has = has


_envelope = msgspec.json.Decoder(Envelope)
_members = msgspec.json.Decoder(dict[str, Raw])
_string = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


def decode(frame: bytes | bytearray | memoryview) -> Envelope:
    """One frame as an envelope whose payload members are raw.

    Raises BadFrame when the bytes are not UTF-8, not JSON, nested too deep, or not a JSON-RPC message, and BadResponse
    when it is known at least what they answer.
    """
    try:
        if not isinstance(frame, bytes):
            frame = bytes(frame)
        if not frame.isascii():
            frame.decode("utf-8")
        message = _decode_envelope(frame)
    except msgspec.ValidationError as error:
        raise BadFrame(f"not a JSON-RPC message: {error}", INVALID_REQUEST) from None
    except UnicodeDecodeError:
        raise BadFrame("not UTF-8") from None
    except ValueError as error:
        raise BadFrame(f"not JSON: {error}") from None
    except RecursionError:
        raise BadFrame("nested too deep") from None
    if message.method is UNSET and (message.id is UNSET or (message.result is UNSET) is (message.error is UNSET)):
        _drop_null(message)
    return message


def _drop_null(message: Envelope) -> None:
    """A response that has both members, one of them null, as JSON-RPC 1.0 had it, has the other one. Raises BadFrame
    for all else."""
    if message.id is UNSET:
        raise BadFrame(_NO_MESSAGE, INVALID_REQUEST)
    if message.result is UNSET:
        raise BadResponse(message.id, "neither a result nor an error")
    if (message.result == _NULL) is (message.error == _NULL):
        raise BadResponse(message.id, "both a result and an error")
    if message.error == _NULL:
        message.error = UNSET
    else:
        message.result = UNSET


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """The members of a raw JSON object, each raw. Raises BadFrame when it is not an object."""
    try:
        return _members.decode(raw)
    except msgspec.ValidationError:
        raise BadFrame("an object was expected", INVALID_PARAMS) from None
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise BadFrame("nested too deep", INVALID_PARAMS) from None
    from mooring.wire import lenient

    try:
        return lenient.members(bytes(raw))
    except ValueError:
        raise BadFrame("an object was expected", INVALID_PARAMS) from None
    except RecursionError:
        raise BadFrame("nested too deep", INVALID_PARAMS) from None


_DECIDING = ("name", "arguments", "uri", "ref", "type", "taskId", "task", "requestState", "inputResponses", "_meta")
_EXACT = frozenset(_DECIDING)
_FOLDED = frozenset(name.casefold() for name in _DECIDING)


def decisive(raw: bytes | Raw) -> dict[str, Raw]:
    """``members`` of an object by which it is decided who may do what. Raises BadFrame also when one of them is called
    like one that counts but for the case of its letters: there are readers, such as Go's ``encoding/json``, that take
    it for that one, and so would act on something else than what was decided about."""
    parts = members(raw)
    if not parts.keys() <= _EXACT:
        for name in parts.keys() - _EXACT:
            if name.casefold() in _FOLDED:
                raise BadFrame(f"a member is called {name[:_USUAL]!r}: names are told apart by case", INVALID_PARAMS)
    return parts


def fields(raw: bytes | Raw | None) -> dict[str, Raw]:
    """Like ``members``, for an object that need not be there: none when ``raw`` is absent or no object."""
    try:
        return members(raw or EMPTY)
    except BadFrame:
        return {}


def _decode_envelope(frame: bytes) -> Envelope:
    try:
        return _envelope.decode(frame)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        from mooring.wire import lenient

        parts = lenient.members(frame)
    head = {key: msgspec.json.decode(value) for key, value in parts.items() if key in ("id", "method", "jsonrpc")}
    message = msgspec.convert(head, Envelope)
    message.params = parts.get("params", UNSET)
    message.result = parts.get("result", UNSET)
    message.error = parts.get("error", UNSET)
    return message


def build(parts: Mapping[str, bytes | Raw]) -> bytes:
    """A JSON object from raw members, in the order given."""
    if not parts:
        return EMPTY
    pieces: list[bytes | Raw] = [b"{"]
    for key, value in parts.items():
        pieces += (_known_name(key) if len(key) <= _USUAL else _name(key), value, b",")
    pieces[-1] = b"}"
    return b"".join(pieces)  # the only copy, as a value may be megabytes


def _name(key: str) -> bytes:
    """A member's name and its colon."""
    return text(key) + b":"


_known_name = lru_cache(1024)(_name)


def replace(raw: bytes | Raw, **changes: bytes | None) -> bytes:
    """The object ``raw`` with members replaced, added at the end, or (None) left out; all others as they were."""
    parts: dict[str, bytes | Raw] = dict(members(raw))
    for key, value in changes.items():
        if value is None:
            parts.pop(key, None)
        else:
            parts[key] = value
    return build(parts)


def text(value: Any) -> bytes:
    """Any Python value as JSON bytes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        from mooring.wire import lenient

        return lenient.text(value)


def value(raw: bytes | Raw) -> Any:
    """The Python value of any valid JSON, lone surrogates included. Raises ValueError."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        from mooring.wire import lenient

        return lenient.value(bytes(raw))


def string(raw: bytes | Raw | None) -> str | None:
    """The Python string of a raw JSON string; None when it is absent or anything else."""
    if raw is None:
        return None
    try:
        return _string.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return None


def own_number(id: object) -> int:
    """The number of a request of ours whose ``id`` comes back; peers may write it as a string. 0 for all else."""
    if isinstance(id, int):
        return id
    return int(id) if isinstance(id, str) and id.isdecimal() and len(id) < 20 else 0


def request(raw_id: bytes, method: str, params: bytes | Raw | None) -> bytes:
    """A request frame (no newline). ``raw_id`` is JSON."""
    tail = b"" if params is None else b',"params":' + bytes(params)
    return b"".join((b'{"jsonrpc":"2.0","id":', raw_id, b',"method":', text(method), tail, b"}"))


def notification(method: str, params: bytes | Raw | None = None) -> bytes:
    """A notification frame (no newline)."""
    tail = b"" if params is None else b',"params":' + bytes(params)
    return b'{"jsonrpc":"2.0","method":' + text(method) + tail + b"}"


def response(raw_id: bytes, answer: Answer) -> bytes:
    """The response frame for a request whose id is ``raw_id`` (JSON)."""
    kind, payload = (b',"result":', answer.result or EMPTY) if answer.error is None else (b',"error":', answer.error)
    return b"".join((b'{"jsonrpc":"2.0","id":', raw_id, kind, payload, b"}"))


def failure(code: int, message: str, data: Any = None) -> Answer:
    """An error answer."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return Answer(error=text(body))
