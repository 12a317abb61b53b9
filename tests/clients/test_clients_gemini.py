"""Gemini CLI with Mooring as its server."""

from __future__ import annotations

from mooring.testing.daemon import Daemon
from mooring.testing.model import Model
from real_clients.gemini import Gemini
from real_clients.place import Place, Reach


async def test_it_offers_its_model_the_tools_and_calls_one(
    place: Place, model: Model, way: Reach, gateway: Daemon
) -> None:
    """It names no protocol version after its handshake, and shows its model the text of a result."""
    events = await Gemini(place, way, model.url).ask("%call box_counter\n%call box_error")
    counter, error = (event for event in events if event["type"] == "tool_result")
    assert (counter["status"], counter["output"]) == ("success", "1")
    assert error["status"] == "error"
    assert {"mcp_mooring_box_echo", "mcp_mooring_box_counter"} <= set(model.turns[0].offered)
    assert model.turns[1].results == ["<untrusted_context>\n1\n</untrusted_context>"]
    assert "it went wrong" in model.turns[2].results[0]
    assert "Traceback" not in gateway.output


async def test_it_is_listed_as_connected(place: Place, way: Reach) -> None:
    assert "✓ mooring" in (await Gemini(place, way).mcp("list")).err
