"""The voice example of plugins, installed by writing it, and where its server runs in these tests."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from mooring.testing import containers, wait_for
from mooring.testing.daemon import Daemon
from mooring.testing.plugins import Site

PLUGIN = """
from pathlib import Path
from mooring.plugins import McpPlugin, McpServerSpec

class VoicePlugin(McpPlugin):
    name = "voice"
    version = "0.1.0"
    description = "Voice transcription via Whisper"

    def mcp_server_spec(self) -> McpServerSpec:
        return McpServerSpec(
            name="voice",
            command="python3",
            args=["-m", "mooring_plugin_voice.mcp"],
            env={},
            host_source=Path(__file__).parent,
        )
"""
SERVER = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("voice")

@server.tool()
def transcribe_voice(path: str) -> dict[str, str]:
    EXTRA
    return {"heard": path, "code": __file__, "path": os.environ["PYTHONPATH"], "extra": extra}

if __name__ == "__main__":
    if sys.argv[-1].isdigit():
        server.run("streamable-http", host="0.0.0.0", port=int(sys.argv[-1]))
    else:
        server.run("stdio")
"""
DISTRIBUTION = "mooring-plugin-voice"
OWN = "/of/the/image"
"""A PYTHONPATH that the image sets."""
BUILT = 500.0
"""Seconds to build an image, with what it needs from registries."""
INSIDE = "/workspace/plugins/voice"
LENT = "/lent"
"""Where a container has the libraries of this environment."""
HERE = f"{Path(sys.executable).resolve().parent}:/usr/bin"
"""A PATH on which this machine's Python is, in a container too."""


def installed(site: Site, extra: str = 'extra = ""', **spec: Any) -> Path:
    """The voice plugin; ``extra``: what its tool does besides."""
    more = "".join(f"            {name}={value!r},\n" for name, value in spec.items())
    source = PLUGIN.replace("            env={},\n", "            env={},\n" + more)
    if "port" in spec:
        source = source.replace('.mcp"]', '.mcp", "{port}"]')
    package = site.install(source, module="mooring_plugin_voice", attribute=":VoicePlugin", distribution=DISTRIBUTION)
    (package / "mcp.py").write_text(SERVER.replace("EXTRA", extra))
    return package


def table(engine: str) -> tuple[str, dict[str, Any]]:
    """An image without anything in it but a PYTHONPATH, and a table that lends the server this machine's Python."""
    image = "localhost/mooring-testing-path:1"
    change = ("--change", f"ENV PYTHONPATH={OWN}")
    containers.command(engine, "import", *change, "-", image, stdin=containers.empty())
    lent = containers.program("x")
    return image, {
        "plugin": "voice",
        "volumes": [*lent["volumes"], f"{sysconfig.get_path('purelib')}:{LENT}:ro"],
        "env": {"PATH": HERE, "PYTHONPATH": LENT, "HOME": "/tmp"},
    }


async def listed(daemon: Daemon, server: str = "voice") -> None:
    """Until the server was started once, in each of its variants, and says what it offers."""

    async def known() -> bool:
        rows = await daemon.rows(server)
        assert all(row.state != "backoff" for row in rows), [row.reason for row in rows]
        return all(row.tools for row in rows)

    await wait_for(known, BUILT, 0.05)
