"""The floor: HTTP and JSON of one call, answered at once, with no backend behind it.

Started as ``python floor.py PORT``; anything above its cost is relaying.
"""

import sys
from typing import Any

import msgspec
import uvloop
from http_server import Answer, serve

DECODE = msgspec.json.Decoder().decode
HELLO = (
    b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"floor","version":"1"},'
    b'"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}'
)


def handle(head: bytes, body: bytes, answer: Answer) -> None:
    """Echo the text of a call; any other request gets one answer that fits all."""
    message: dict[str, Any] = DECODE(body) if body else {}
    if "id" not in message:
        answer(b"", b"")
        return
    result = HELLO
    if message["method"] == "tools/call":
        text = msgspec.json.encode(message["params"]["arguments"]["text"])
        result = b'{"content":[{"type":"text","text":%b}]}' % text
    answer(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], result), b"")


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), handle))
