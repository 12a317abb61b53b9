"""Starts fastmcp in the cheapest arrangement it offers: one connected client per server, each mounted as a proxy.

Started by the ``fastmcp`` peer as ``python fastmcp_shared.py PORT CONFIG`` in an environment that has fastmcp.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from fastmcp import Client, FastMCP
from fastmcp.server import create_proxy


async def main(port: int, config: str) -> None:
    """Connect to every server at once, then serve."""
    servers = json.loads(Path(config).read_text())["mcpServers"]
    clients = {name: Client({"mcpServers": {name: spec}}, mode="legacy") for name, spec in servers.items()}
    gateway = FastMCP("bench")
    async with contextlib.AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(client) for client in clients.values()))
        for name, client in clients.items():
            gateway.mount(create_proxy(client, name=name), namespace=name)
        await gateway.run_async(
            transport="http",
            host="127.0.0.1",
            port=port,
            show_banner=False,
            log_level="warning",
            json_response=True,
            uvicorn_config={"access_log": False},
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
