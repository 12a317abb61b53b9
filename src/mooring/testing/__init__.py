"""The public test kit: MCP servers that behave, and misbehave, on purpose, and raw clients that look at the wire.

Used by Mooring's own tests and by authors of plugins. Nothing in the product imports it.

    argv = echo("--era", "legacy", "--tools", "100")      # a server to start
    async with StdioClient(argv) as client:               # and a client that hides nothing
        await client.open()
        answer = await client.call("echo", {"text": "hi"})
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mooring.testing.http_client import HttpClient as HttpClient
    from mooring.testing.stdio_client import StdioClient as StdioClient
    from mooring.testing.waiting import wait_for as wait_for

_HOMES = {"StdioClient": "stdio_client", "HttpClient": "http_client", "wait_for": "waiting"}
__all__ = ["HttpClient", "StdioClient", "echo", "smcp", "wait_for"]


def echo(*flags: str) -> list[str]:
    """The command line of an echo server with these flags (see ``docs/testing.md``)."""
    return [sys.executable, "-m", "mooring.testing.echo", *flags]


def smcp(*flags: str) -> list[str]:
    """The command line of an echo server that takes credentials by the SMCP handshake, with these flags."""
    return [sys.executable, "-m", "mooring.testing.smcp", *flags]


def __getattr__(name: str) -> Any:
    """Import the clients on first use: the servers start without them."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"mooring.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'mooring.testing' has no attribute {name!r}")
