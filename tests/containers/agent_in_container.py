"""Run inside a container: read an env file as an agent does, list the tools behind it and call one; prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from mooring.testing.http_client import HttpClient


async def main(file: str, tool: str) -> None:
    variables = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    async with HttpClient(variables["MOORING_URL"], token=variables["MOORING_API_KEY"], timeout=30) as client:
        await client.open()
        tools = [each["name"] for each in (await client.result("tools/list"))["tools"]]
        called = await client.call(tool, {"text": "from inside"})
    async with HttpClient(variables["MOORING_URL"], era="modern", timeout=30) as client, client.post(b"{}") as reply:
        await reply.body()
    found = {"tools": tools, "called": called.get("structuredContent"), "without a key": reply.status}
    sys.stdout.write(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
