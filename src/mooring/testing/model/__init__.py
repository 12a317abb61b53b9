"""A scripted language model: one port that speaks the wire formats of Anthropic, OpenAI and Gemini, and says what the
prompt tells it to say. For tests with real agents, offline.

    async with Model() as model:
        ...  # point a client at model.url, prompt it with: %call echo {"text": "hi"}
        assert "gw_echo" in model.requests[-1].offered

``python -m mooring.testing.model`` serves one and prints its address. ``docs/testing.md`` lists the directives.
"""

from __future__ import annotations

from mooring.testing.model.server import Model, Recorded
from mooring.testing.model.shapes import Tool

__all__ = ["Model", "Recorded", "Tool"]
