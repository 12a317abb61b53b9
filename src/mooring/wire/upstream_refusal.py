"""What an HTTP status says where a JSON-RPC message was expected. Pure.

Used by ``wire.http_upstream`` and ``wire.sse_upstream``.

Source: MCP 2026-07-28 "Streamable HTTP: Backward Compatibility"; MCP 2025-11-25 "Transports: Session Management".
"""

from __future__ import annotations

from mooring.errors import Busy, Crashed, MooringError, Unavailable, UpstreamProtocol
from mooring.wire.jsonrpc import Answer, fields, string

LOGIN = (401, 403, 407)
AWAY = (502, 503, 504)
"""Somebody answers for a server that is not there (yet)."""
OLD_TRANSPORT = (400, 404, 405)
"""What a server of the HTTP+SSE transport says to a POST."""
_LEGACY_CODES = range(-32019, -31999)
"""JSON-RPC codes that a modern server must not use."""


def refusal(name: str, method: str, status: int, location: str = "") -> MooringError:
    """The error for a request that was answered with ``status`` and no message. ``location``: of a redirect."""
    what = f"{name} answered {method} with HTTP {status}"
    if status in LOGIN:
        message = f'{what}: it wants a login; set auth = "oauth", or check the token in its auth or headers'
        return Unavailable(message, server=name, phase="call", http=status)
    if status == 429 or status in AWAY:
        return Busy(f"{what}; try again later", server=name, phase="call", http=status)
    if 200 <= status < 300:
        what += " and no message"
    elif location:
        what += f", a redirect to {location}; if that is the server you mean, make it the url"
    return UpstreamProtocol(what, server=name, phase="call", http=status)


def status_of(error: MooringError) -> int:
    """The HTTP status behind an error; 0 when there was none."""
    return error.details.get("http", 0)


def suggests_legacy(status: int) -> bool:
    """Whether a server that says this to the modern probe may still speak the legacy era."""
    return status not in LOGIN and status != 429 and (status < 500 or status in (500, 501))


def passing(status: int) -> bool:
    """Whether the same request may be answered otherwise a little later."""
    return status == 429 or status >= 500


def not_there(error: MooringError) -> bool:
    """Whether the failure is that of a server which is still starting: nobody listens, or somebody answers for it."""
    return isinstance(error, Crashed) or status_of(error) in AWAY


def forgotten(status: int, answer: Answer | None) -> bool:
    """Whether this is how a server refuses a session that it does not know. The specification says 404; servers built
    after the example of the TypeScript SDK say 400 and mention the session."""
    if status == 404:
        return True
    message = string(fields(answer.error).get("message")) if answer is not None and answer.error else None
    return status == 400 and "session" in (message or "").lower()


def outdated(status: int, answer: Answer | None) -> bool:
    """Whether a server that used to be modern refuses like one that is not, or like no MCP server at all."""
    if status not in OLD_TRANSPORT:
        return False
    return answer is None or answer.error is None or code_of(answer) in _LEGACY_CODES


def code_of(answer: Answer) -> int:
    """The code of an error; 0 where there is none."""
    code = bytes(fields(answer.error).get("code", b"0")) if answer.error is not None else b"0"
    return int(code) if code.lstrip(b"-").isdigit() and len(code) < 12 else 0
