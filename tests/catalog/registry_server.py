"""A registry that speaks the v0.1 API over real HTTP, page by page, and misbehaves on request.

async with RegistryServer(servers) as registry:
    ... registry.url ... registry.asked ... registry.breaks_at = 3
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

JSON = dict[str, Any]
META = "io.modelcontextprotocol.registry/official"


def listed(name: str, updated: str = "2026-01-01T00:00:00Z", status: str = "active", **more: Any) -> JSON:
    """One element of a listing."""
    server = {"name": name, "description": f"What {name} does", "version": "1.0.0", **more}
    meta = {"status": status, "publishedAt": "2025-10-01T00:00:00Z", "updatedAt": updated, "isLatest": True}
    return {"server": server, "_meta": {META: meta}}


class RegistryServer:
    """An async context manager. Servers keep the order in which they were given."""

    def __init__(self, servers: Iterable[JSON] = ()) -> None:
        self.servers = {item["server"]["name"]: item for item in servers}
        self.asked: list[dict[str, str]] = []
        """Parameters of each request."""
        self.breaks_at: int | None = None
        """The page, from 0, in the middle of which the connection is closed."""
        self.status = 200
        self.answer: bytes | None = None
        """What to answer instead of a page."""
        self.circles = False
        """The cursor is always the same."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def put(self, *items: JSON) -> None:
        """Add or replace."""
        self.servers |= {item["server"]["name"]: item for item in items}

    def remove(self, name: str, updated: str) -> None:
        """Mark as deleted, the way registries do."""
        meta = self.servers[name]["_meta"][META]
        meta |= {"status": "deleted", "updatedAt": updated}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ", 2)[1].decode()
                parts = urlsplit(target)
                asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.asked.append({"path": parts.path, **asked})
                body = self.answer if self.answer is not None else json.dumps(self._page(asked)).encode()
                size = len(body)
                if self.breaks_at == int(asked.get("cursor", "0")) // int(asked["limit"]):
                    body = body[: size // 2]
                start = f"HTTP/1.1 {self.status} .\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
                writer.write(start.encode() + body)
                await writer.drain()
                if len(body) < size:
                    break
        writer.close()

    def _page(self, asked: dict[str, str]) -> JSON:
        since = asked.get("updated_since", "")
        deleted = asked.get("include_deleted") == "true"
        there = [
            item
            for item in self.servers.values()
            if item["_meta"][META]["updatedAt"] >= since and (deleted or item["_meta"][META]["status"] != "deleted")
        ]
        start, size = int(asked.get("cursor", "0")), int(asked["limit"])
        metadata: JSON = {"count": len(there[start : start + size])}
        if self.circles or start + size < len(there):
            metadata["nextCursor"] = asked.get("cursor", "0") if self.circles and start else str(start + size)
        return {"servers": there[start : start + size], "metadata": metadata}
