"""A raw MCP server of the legacy era for containers: on stdio, or with ``--port N`` over HTTP. Standard library only.

Tools: ``echo`` answers its arguments; ``look`` runs Python code and answers what it assigned to ``found``.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "look")]


def answer(message: dict) -> dict | None:
    """The response to a message; None to a notification."""
    if "id" not in message:
        return None
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "probe", "version": "1"},
            }
        case "tools/list":
            result = {"tools": TOOLS}
        case "ping":
            result = {}
        case "tools/call":
            result = called(params["name"], params.get("arguments", {}))
        case _:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def called(name: str, arguments: dict) -> dict:
    if name == "look":
        scope: dict = {}
        try:
            exec(arguments["code"], scope)
        except Exception as error:
            return {"isError": True, "content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}]}
        arguments = {"found": scope["found"]}
    text = json.dumps(arguments)
    return {"content": [{"type": "text", "text": text}], "structuredContent": arguments}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        reply = answer(json.loads(body))
        data = b"" if reply is None else json.dumps(reply).encode()
        self.send_response(202 if reply is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        sys.stderr.write("answered\n")


def main() -> None:
    if "--port" in sys.argv:
        port = int(sys.argv[sys.argv.index("--port") + 1])
        ThreadingHTTPServer(("0.0.0.0", port), Handler).serve_forever()
    for line in sys.stdin:
        reply = answer(json.loads(line))
        if reply is not None:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


main()
