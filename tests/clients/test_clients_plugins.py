"""An agent calls the tool of a plugin."""

from __future__ import annotations

import sys
from pathlib import Path

from mooring.testing.daemon import daemon
from mooring.testing.model import Model
from mooring.testing.plugins import Site
from real_clients.claude_code import ClaudeCode
from real_clients.place import Place, reach

PLUGIN = f"""
from mooring.plugins import McpPlugin, McpServerSpec

class Plugin(McpPlugin):
    def mcp_server_spec(self):
        return McpServerSpec(name="voice", command={sys.executable!r}, args=["-m", "mooring.testing.echo"])
"""


async def test_r30_claude_code_calls_the_tool_of_a_plugin(
    site: Site, tmp_path: Path, place: Place, model: Model
) -> None:
    """R30: it runs end to end."""
    site.install(PLUGIN)
    home = tmp_path / "mooring"
    home.mkdir()
    async with daemon(home, {}, plugins={"run": "host"}) as running:
        way = await reach(running, "http")
        said = await ClaudeCode(place, model.url).ask(way, '%call voice_echo {"text": "ahoy"}')
        assert said["result"] == 'got:\n{"text":"ahoy"}'
        assert "mcp__mooring__voice_echo" in model.turns[0].offered
        site.remove("mooring-voice")
        assert "voice" in (await running.mooring.reload()).removed
        said = await ClaudeCode(place, model.url).ask(way, '%call voice_echo {"text": "ahoy"}')
        assert '{"text":"ahoy"}' not in said["result"]
