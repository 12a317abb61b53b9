"""Run inside a container: read an env file as an agent does, list the tools behind it and call some; prints JSON.

``FILE URL KEY TOOL...``: ``URL`` and ``KEY`` are names of the file's variables."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from mooring.testing import speech
from mooring.testing.http_client import HttpClient


async def main(file: str, url: str, key: str, *names: str) -> None:
    variables = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    async with HttpClient(variables[url], token=variables[key], timeout=60) as client:
        await client.open()
        tools = [each["name"] for each in (await client.result("tools/list"))["tools"]]
        called = {name: await client.call(name, {"text": "from inside"}) for name in names}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": speech.hello(speech.NEWEST["legacy"], {})}
    async with HttpClient(variables[url], timeout=60) as client, client.post(json.dumps(hello).encode()) as reply:
        await reply.body()
    found = {"tools": tools, "called": called, "without a key": reply.status}
    sys.stdout.write(json.dumps(found))


asyncio.run(main(*sys.argv[1:]))
