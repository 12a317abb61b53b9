"""A legacy client on a modern server that wants input: its ``input_required`` results become real requests to the
client, and the call is repeated with the answers, until it is complete. Used by ``relay.forward``.

Source: MCP 2026-07-28 "Multi round-trip requests"; MCP 2025-11-25 elicitation, sampling, roots.
"""

from __future__ import annotations

from mooring.relay.exchange import Exchange
from mooring.wire import eras, jsonrpc
from mooring.wire.connection import Connection
from mooring.wire.jsonrpc import Answer

MAX_ROUNDS = 20
"""Times that one call may ask before it is given up."""


async def completed(connection: Connection, method: str, params: bytes, exchange: Exchange) -> Answer:
    """The complete answer of a modern server, after all its questions were asked. ``params`` is complete for it."""
    answer = await connection.request(method, params, exchange)
    for _ in range(MAX_ROUNDS):
        if answer.result is None or eras.result_type(answer.result) != "input_required":
            return answer
        parts = jsonrpc.members(answer.result)
        responses: dict[str, bytes] = {}
        for name, question in jsonrpc.members(parts.get("inputRequests", jsonrpc.EMPTY)).items():
            reply = await _asked(question, exchange)
            if reply.result is None:
                return reply
            responses[name] = reply.result
        more = {"inputResponses": jsonrpc.build(responses)}
        if "requestState" in parts:
            more["requestState"] = bytes(parts["requestState"])
        answer = await connection.request(method, jsonrpc.replace(params, **more), exchange)
    return jsonrpc.failure(jsonrpc.INTERNAL_ERROR, f"the server asked for input {MAX_ROUNDS} times without an end")


async def _asked(question: bytes | jsonrpc.Raw, exchange: Exchange) -> Answer:
    parts = jsonrpc.members(question)
    method = jsonrpc.string(parts.get("method")) or ""
    return await exchange.ask(method, bytes(parts.get("params", jsonrpc.EMPTY)))
