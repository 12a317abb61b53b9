"""The MCP Inspector without its window."""

from __future__ import annotations

from typing import Any

from real_clients.place import Place, Reach
from real_clients.programs import program

NAME = "MCP Inspector"


class Inspector:
    """The program, talking in one way and one era (legacy, modern, or auto)."""

    def __init__(self, place: Place, way: Reach, era: str) -> None:
        if way.url:
            target = [way.url, "--transport", "http", "--header", f"Authorization: Bearer {way.key}"]
        else:
            env = [word for name, value in way.env.items() for word in ("-e", f"{name}={value}")]
            target = ["--transport", "stdio", *env, *way.command]
        self._argv = [*program(NAME), "--cli", *target, "--protocol-era", era]
        self._place = place

    async def ask(self, method: str, *arguments: str) -> dict[str, Any]:
        """The result of one request."""
        return (await self._place.run([*self._argv, "--method", method, *arguments])).data
