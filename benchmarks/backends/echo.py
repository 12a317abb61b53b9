"""The cheapest MCP server Python can offer: stdio, no SDK, standard library only, so that a gateway's own cost shows.

Started as ``python -I -S echo.py [--tools N] [--delay SECONDS]``. Tools: ``echo(text)`` gives the text back,
``blob(size, tag)`` gives the tag and that many bytes; ``--tools`` adds others up to N. Ends with its stdin.
"""

import json
import os
import sys
import time

LARGEST = b"x" * 1_100_000


def options(arguments: list[str]) -> tuple[int, float]:
    """The number of tools and the seconds to sleep before the first read."""
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    return int(given.get("--tools", 2)), float(given.get("--delay", 0))


def schema(*names: str) -> dict:
    """An input schema with text properties, all required."""
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def filler(number: int) -> dict:
    """A tool of the usual size, about 550 bytes of JSON."""
    return {
        "name": f"collection_{number:03d}_search",
        "description": f"Searches collection {number} and returns the records that match, newest first. Use it when "
        "somebody asks about entries of this collection. An empty query matches every record of the collection.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words to look for; empty matches everything"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Most records to return"},
            },
            "required": ["query"],
        },
    }


def tools(count: int) -> bytes:
    """The result of ``tools/list`` as JSON."""
    own = [
        {"name": "echo", "description": "Gives the text back.", "inputSchema": schema("text")},
        {"name": "blob", "description": "Gives the tag and size bytes.", "inputSchema": schema("size", "tag")},
    ]
    return json.dumps({"tools": own + [filler(number) for number in range(count - len(own))]}).encode()


def initialize(params: dict) -> bytes:
    """The result of the handshake, in the version that was asked for."""
    facts = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bench-echo", "version": "1"}}
    return json.dumps({"protocolVersion": params["protocolVersion"], **facts}).encode()


def call(params: dict) -> bytes:
    """The result of ``tools/call`` as JSON."""
    given = params["arguments"]
    if params["name"] == "blob":
        text = b'"%b%b"' % (given["tag"].encode(), LARGEST[: int(given["size"])])
    else:
        text = json.dumps(given["text"]).encode()
    return b'{"content":[{"type":"text","text":%b}]}' % text


def answer(line: bytes, listing: bytes) -> bytes:
    """The response line to one message; empty for a notification."""
    message = json.loads(line)
    if "id" not in message:
        return b""
    number, method = json.dumps(message["id"]).encode(), message["method"]
    if method == "tools/call":
        result = call(message["params"])
    elif method == "tools/list":
        result = listing
    elif method == "initialize":
        result = initialize(message["params"])
    elif method == "ping":
        result = b"{}"
    else:
        return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}\n' % number
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (number, result)


def write(data: bytes) -> None:
    """All of it, to stdout."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    """Answer lines until stdin ends."""
    count, delay = options(sys.argv[1:])
    listing = tools(count)
    time.sleep(delay)
    rest = b""
    while data := os.read(0, 1 << 18):
        *lines, rest = (rest + data).split(b"\n")
        if out := b"".join([answer(line, listing) for line in lines if line]):
            write(out)


if __name__ == "__main__":
    main()
