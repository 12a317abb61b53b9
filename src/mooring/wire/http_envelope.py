"""One JSON-RPC message out of an HTTP body, or the refusal to answer instead.

Used by ``wire.http_front`` (modern) and ``wire.http_legacy``. Pure.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from mooring.wire import headers as rules
from mooring.wire import jsonrpc
from mooring.wire.http_messages import JSON, Reply, Request, problem
from mooring.wire.jsonrpc import INVALID_REQUEST, BadFrame, Envelope, failure


def rejection(status: int, code: int, message: str, headers: bytes = b"") -> Reply:
    """A refusal without an id to answer: a JSON-RPC error that has none, as both revisions allow."""
    return bare(status, failure(code, message), headers)


def bare(status: int, answer: jsonrpc.Answer, headers: bytes = b"") -> Reply:
    """An error answer as a message without an id."""
    return Reply(status, b'{"jsonrpc":"2.0","error":%b}' % (answer.error or b"null"), JSON + headers)


def read(request: Request) -> tuple[Envelope, bytes] | Reply:
    """The one message of a POST, with its params as JSON."""
    wrong = rules.unacceptable(request.headers)
    if wrong is not None:
        return problem(*wrong)
    try:
        return take(request.body)
    except BadFrame as error:
        return rejection(400, error.code, str(error))


def take(frame: bytes) -> tuple[Envelope, bytes]:
    """A message and its params (``{}`` when there are none). Raises BadFrame, also for what the types leave open."""
    message = jsonrpc.decode(frame)
    if message.jsonrpc != "2.0":
        raise BadFrame('jsonrpc must be "2.0"', INVALID_REQUEST)
    if message.id is None and message.method is not UNSET:
        raise BadFrame("id must be a string or an integer", INVALID_REQUEST)
    if isinstance(message.params, UnsetType):
        return message, jsonrpc.EMPTY
    params = bytes(message.params)
    if not params.startswith(b"{"):
        raise BadFrame("params must be an object", INVALID_REQUEST)
    return message, params


def raw_id_of(message: Envelope) -> bytes:
    """The id as JSON; any size of integer."""
    return b"%d" % message.id if isinstance(message.id, int) else jsonrpc.text(message.id)


class _Cancelled(msgspec.Struct):
    requestId: int | str | None = None


def cancelled_id(params: bytes) -> int | str | None:
    """Which request a ``notifications/cancelled`` is about."""
    try:
        return msgspec.json.decode(params, type=_Cancelled).requestId
    except (msgspec.DecodeError, RecursionError):
        return None
