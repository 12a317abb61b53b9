"""How a client of either era cancels a call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mooring.testing import HttpClient, StdioClient


async def cancelled(client: HttpClient | StdioClient, params: dict[str, Any]) -> None:
    """Begin a call and cancel it once it has reported something."""
    if isinstance(client, StdioClient):
        number, _ = client.begin("tools/call", params)
        await client.heard("notifications/progress")
        client.notify("notifications/cancelled", {"requestId": number})
    elif client.era == "modern":
        task = asyncio.create_task(client.request("tools/call", params))
        await client.heard("notifications/progress")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        frame = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params}
        async with asyncio.timeout(20), client.post(json.dumps(frame).encode()) as reply:
            await anext(reply.events())
            assert await client.notify("notifications/cancelled", {"requestId": "mine"}) == 202
            assert b'"id":"mine"' not in await reply.body()
