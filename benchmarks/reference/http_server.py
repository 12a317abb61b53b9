"""The HTTP half that both references share: POSTs on keep-alive connections, found by hand. Not a safe HTTP server.

Imported by the scripts next to it only.
"""

import asyncio
from collections.abc import Callable
from typing import cast

Answer = Callable[[bytes, bytes], None]
"""Called once with the JSON body (empty: 202, nothing to say) and further header lines."""
Handler = Callable[[bytes, bytes, Answer], None]
"""Called with the head in lower case, the body, and what to answer with."""


def header(head: bytes, name: bytes) -> bytes:
    """A header's value, empty when it is not there; ``name`` is lower case with the colon."""
    start = head.find(b"\r\n" + name)
    if start < 0:
        return b""
    start += 2 + len(name)
    return head[start : head.find(b"\r\n", start)].strip()


class Connection(asyncio.Protocol):
    """One client connection; one request at a time."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._input = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hand on every complete request."""
        data = self._input + data if self._input else data
        while (split := data.find(b"\r\n\r\n") + 4) > 3:
            head = data[: split - 2].lower()
            end = split + int(header(head, b"content-length:") or 0)
            if len(data) < end:
                break
            body, data = data[split:end], data[end:]
            self._handle(head, body, self._answer)
        self._input = data

    def _answer(self, body: bytes, extra: bytes = b"") -> None:
        if body:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
            self._transport.writelines((head % (extra, len(body)), body))
        else:
            self._transport.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")


async def serve(port: int, handle: Handler) -> None:
    """Answer on 127.0.0.1 until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(handle), "127.0.0.1", port)
    async with server:
        await server.serve_forever()
