"""Raw HTTP/1.1 for tests: keep-alive connections that keep every byte they received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

LINE_LIMIT = 1 << 27
"""Bytes of the longest line (an SSE event is one) the client reads."""


class Reply:
    """One response. ``raw`` is all that came for it so far, status line and chunk sizes included."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; of repeated ones the last."""
        self.raw = bytearray()
        self.complete = False
        self._reader = reader

    async def begin(self) -> None:
        """Read the head. Raises ConnectionError when the server closed instead."""
        line = await self._line()
        if not line:
            raise ConnectionError("the server closed the connection")
        self.status = int(line.split()[1])
        while (line := await self._line()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as the server sent it."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self._line()).split(b";")[0] or b"0", 16):
                yield (await self._exactly(size + 2))[:-2]
            await self._line()
        elif "content-length" in self.headers:
            yield await self._exactly(int(self.headers["content-length"]))
        elif self.status not in (202, 204):
            while data := await self._reader.read(1 << 16):
                self.raw += data
                yield data
        self.complete = True

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([data async for data in self.chunks()])

    async def events(self) -> AsyncIterator[dict[str, str]]:
        """Server-sent events: their fields; several ``data`` lines are joined by newlines."""
        rest = b""
        async for data in self.chunks():
            *lines, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
            for block in lines:
                event: dict[str, str] = {}
                for line in block.decode().split("\n"):
                    name, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    event[name] = f"{event[name]}\n{value}" if name == "data" and name in event else value
                yield event

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        self.raw += line
        return line

    async def _exactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self.raw += data
        return data


class Wire:
    """One TCP connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connect to the host and port of ``url`` (http only)."""
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port or 80, limit=LINE_LIMIT))

    @property
    def closed(self) -> bool:
        """Whether the server closed it and all was read."""
        return self.reader.at_eof()

    async def send(self, data: bytes) -> Reply:
        """Write raw bytes and read the head of the answer."""
        self.writer.write(data)
        await self.writer.drain()
        reply = Reply(self.reader)
        await reply.begin()
        return reply

    def close(self) -> None:
        """Close the connection at once."""
        self.writer.close()


def head(method: str, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A request as bytes; ``Host`` and ``Content-Length`` are added unless given."""
    parts = urlsplit(url)
    path = parts.path or "/"
    lines = {"Host": parts.netloc, **headers}
    if body or method == "POST":
        lines.setdefault("Content-Length", str(len(body)))
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    query = f"?{parts.query}" if parts.query else ""
    return f"{method} {path}{query} HTTP/1.1\r\n{text}\r\n".encode("latin-1") + body
