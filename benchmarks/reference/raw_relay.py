"""The reference: how little an MCP relay can cost in Python. No SDK, no policy, no restarts, no limits.

Started as ``python raw_relay.py PORT CONFIG``, where CONFIG is a JSON file of the usual ``mcpServers`` form. It starts
every server, checks a bearer token, keeps sessions, routes ``<server>_<tool>``, gives calls its own ids, and passes
answers on as bytes. It is what Mooring's figures are divided by, never a thing to use.
"""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop
from http_server import Answer, header, serve

TOKEN = b"bearer bench"
DECODE = msgspec.json.Decoder().decode
ENCODE = msgspec.json.Encoder().encode
FRONT = b'{"jsonrpc":"2.0","id":'
Done = Callable[[bytes], None]
"""Called with what follows the id in a response line: `` "result":{...}}``."""


class Server:
    """One child on stdio; its pipes are read and written without a layer between."""

    def __init__(self, argv: list[str]) -> None:
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdin
        assert self._child.stdout
        self._stdin, self._stdout = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._stdout, False)
        asyncio.get_running_loop().add_reader(self._stdout, self._readable)
        self._waiting: dict[int, Done] = {}
        self._next = 0
        self._parts: list[bytes] = []

    def send(self, method: bytes, params: bytes, done: Done) -> None:
        """One request; ``done`` gets the rest of its answer. Requests of a benchmark fit into the pipe."""
        self._next += 1
        self._waiting[self._next] = done
        self.write(b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (self._next, method, params))

    def write(self, line: bytes) -> None:
        """One message."""
        os.write(self._stdin, line)

    async def ask(self, method: bytes, params: bytes) -> Any:
        """One request, its decoded result."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.send(method, params, answered.set_result)
        return DECODE(b"{" + await asyncio.wait_for(answered, 60))["result"]

    def _readable(self) -> None:
        try:
            data = os.read(self._stdout, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._stdout)
            return
        *lines, rest = data.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts = []
        if rest:
            self._parts.append(rest)
        for line in lines:
            comma = line.index(b",", len(FRONT))
            self._waiting.pop(int(line[len(FRONT) : comma]))(line[comma + 1 :])


class Relay:
    """Routes requests to servers."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self._servers = servers
        self._sessions: set[bytes] = set()
        self._tools = b"[]"

    async def open(self) -> None:
        """Shake hands with every server at once and keep their tools, prefixed, as bytes."""
        listed = await asyncio.gather(*(self._list(name) for name in self._servers))
        self._tools = ENCODE([tool for tools in listed for tool in tools])

    async def _list(self, name: str) -> list[dict[str, Any]]:
        server = self._servers[name]
        client = b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"relay","version":"1"}}'
        await server.ask(b"initialize", client)
        server.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        tools = (await server.ask(b"tools/list", b"{}"))["tools"]
        return [{**tool, "name": f"{name}_{tool['name']}"} for tool in tools]

    def handle(self, head: bytes, body: bytes, answer: Answer) -> None:
        """One HTTP request."""
        if header(head, b"authorization:") != TOKEN:
            raise PermissionError("The reference relay only knows the benchmark's token.")
        message: dict[str, Any] = DECODE(body) if body else {}
        if "id" not in message:
            answer(b"", b"")
            return
        number, method = ENCODE(message["id"]), message["method"]
        modern = b"\r\nmcp-method:" in head
        if method == "initialize":
            self._initialize(number, answer)
        elif not modern and header(head, b"mcp-session-id:") not in self._sessions:
            answer(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32001,"message":"No such session"}}' % number, b"")
        elif method == "tools/call":
            self._call(number, message["params"], modern, answer)
        else:
            answer(FRONT + b'%b,"result":{"tools":%b}}' % (number, self._tools), b"")

    def _initialize(self, number: bytes, answer: Answer) -> None:
        session = uuid.uuid4().hex.encode()
        self._sessions.add(session)
        result = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"r","version":"1"}}'
        answer(FRONT + b'%b,"result":%b}' % (number, result), b"Mcp-Session-Id: %b\r\n" % session)

    def _call(self, number: bytes, params: dict[str, Any], modern: bool, answer: Answer) -> None:
        prefix, _, params["name"] = params["name"].partition("_")
        if modern:
            del params["_meta"]

        def done(rest: bytes) -> None:
            if modern:
                rest = b'"result":{"resultType":"complete",' + rest[len(b'"result":{') :]
            answer(b"%b%b,%b" % (FRONT, number, rest), b"")

        self._servers[prefix].send(b"tools/call", ENCODE(params), done)


async def main(port: int, config: str) -> None:
    """Listen while the servers start."""
    with open(config) as file:
        specs = json.load(file)["mcpServers"]
    relay = Relay({name: Server([spec["command"], *spec["args"]]) for name, spec in specs.items()})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(port, relay.handle))
        tasks.create_task(relay.open())


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
