"""An agent of the Agent Client Protocol that can do little: it takes commands only, cannot resume, and answers a prompt
with what it was given. A double for agents that lack what the real ones here have."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import acp
from acp.schema import AgentCapabilities, InitializeResponse, McpCapabilities, NewSessionResponse, PromptResponse


class Poor(acp.Agent):
    """One session."""

    def __init__(self) -> None:
        self._given: list[dict[str, Any]] = []
        self._client: Any = None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=1,
            agent_capabilities=AgentCapabilities(mcp_capabilities=McpCapabilities(http=False, sse=False)),
        )

    async def new_session(self, cwd: str, mcp_servers: Any, **kwargs: Any) -> NewSessionResponse:
        self._given = [server.model_dump(by_alias=True, exclude_none=True) for server in mcp_servers]
        return NewSessionResponse(session_id="one")

    async def prompt(self, prompt: Any, session_id: str, **kwargs: Any) -> PromptResponse:
        if prompt[0].text == "die":
            raise SystemExit(3)
        said = acp.update_agent_message(acp.text_block(json.dumps(self._given)))
        await self._client.session_update(session_id=session_id, update=said)
        return PromptResponse(stop_reason="refusal" if prompt[0].text == "refuse" else "end_turn")

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Nothing runs."""


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Poor()))
