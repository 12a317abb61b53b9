"""The MCP Inspector with Mooring as its server, in each era: it shows all that it is sent."""

from __future__ import annotations

import pytest

from mooring.testing import StdioClient, echo
from mooring.testing.daemon import Daemon
from real_clients.inspector import Inspector
from real_clients.place import Place, Reach

UNKNOWN = "x-vendor"
"""A member that the Inspector does not know, hence drops."""


@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
async def test_it_lists_and_calls_tools(place: Place, gateway: Daemon, way: Reach, era: str) -> None:
    """R26: it finds nothing wrong, and what is listed and answered is what the server says, but for the prefix."""
    inspector = Inspector(place, way, era)
    async with StdioClient(echo("--changing")) as direct:
        await direct.open()
        own = (await direct.result("tools/list"))["tools"]
    listed = (await inspector.ask("tools/list", "--strict"))["tools"]
    expected = [{**tool, "name": f"box_{tool['name']}"} for tool in own]
    assert listed == [{key: value for key, value in tool.items() if key != UNKNOWN} for tool in expected]
    counted = await inspector.ask("tools/call", "--tool-name", "box_counter")
    assert (counted["content"], counted["structuredContent"]) == ([{"type": "text", "text": "1"}], {"count": 1})
    echoed = await inspector.ask("tools/call", "--tool-name", "box_echo", "--tool-arg", "text=ahoy")
    assert echoed["structuredContent"] == {"text": "ahoy"}
    assert "Traceback" not in gateway.output
