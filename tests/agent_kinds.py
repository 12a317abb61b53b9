"""The agents that the tests can run, each as its table of a configuration: real programs with the scripted model."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from openai import AsyncOpenAI
from pydantic_ai import Agent as Pydantic
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mooring.testing import wait_for
from mooring.testing.model import Model, Recorded
from real_clients import claude_code, codex, gemini
from real_clients.place import Place
from real_clients.programs import program

Kind = Callable[[Path, Model], AbstractAsyncContextManager[dict[str, Any]]]
"""Makes what an agent needs in a folder."""


@asynccontextmanager
async def scripted(model: Model) -> AsyncGenerator[OpenAIChatModel]:
    """The scripted model as pydantic-ai has models."""
    async with AsyncOpenAI(base_url=f"{model.url}/v1", api_key="k", max_retries=0) as client:
        yield OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def serving(agent: Pydantic[Any, Any], tokens: list[str] | None = None, **given: Any) -> AsyncGenerator[str]:
    """The URL of an AG-UI server that runs an agent; ``tokens`` gets what it was sent in ``X-Token``, ``given`` is for
    the adapter."""

    async def run(request: Request) -> Response:
        if tokens is not None:
            tokens.append(request.headers.get("x-token", ""))
        return await AGUIAdapter.dispatch_request(request, agent=agent, **given)

    app = Starlette(routes=[Route("/", run, methods=["POST"])])
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        task = asyncio.create_task(server.serve([sock]))
        await wait_for(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def native(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """In this process; ``models`` has to bring its model."""
    yield {"type": "native", "model": "scripted", "prompt": "You are brief."}


@asynccontextmanager
async def ag_ui(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """A pydantic-ai server."""
    async with scripted(model) as chat, serving(Pydantic(chat)) as url:
        yield {"type": "ag_ui", "url": url}


@asynccontextmanager
async def claude(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """Claude Code without tools of its own."""
    place = Place(folder)
    env = {"HOME": str(place.home), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy"}
    yield {
        "type": "claude_code",
        "model": "claude-sonnet-4-5",
        "command": [*program(claude_code.NAME), "--tools", ""],
        "cwd": str(place.work),
        "env": {**claude_code.QUIET, **env},
    }


@asynccontextmanager
async def codex_app_server(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """Codex."""
    place = Place(folder)
    env = _codex_home(place, codex.configuration(model.url, {}))
    yield {"type": "codex", "command": program(codex.NAME), "cwd": str(place.work), "env": env}


def _codex_home(place: Place, text: str) -> dict[str, str]:
    place.write(".codex/config.toml", text)
    return {"HOME": str(place.home), "CODEX_HOME": str(place.home / ".codex"), "MODEL_KEY": "dummy"}


@asynccontextmanager
async def codex_acp(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """Codex behind the Agent Client Protocol; it tells of a call's server and tool apart, and resumes sessions."""
    place = Place(folder)
    # By itself it writes its whole environment into a file.
    text = codex.configuration(model.url, {}).replace("plugins = false", "plugins = false\nshell_snapshot = false")
    env = {**_codex_home(place, text), "NO_BROWSER": "1", "INITIAL_AGENT_MODE": "agent-full-access"}
    yield {"type": "acp", "command": program("Codex ACP"), "cwd": str(place.work), "env": env}


@asynccontextmanager
async def claude_acp(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """Claude Code behind the Agent Client Protocol; it resumes sessions."""
    place = Place(folder)
    env = {"HOME": str(place.home), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy"}
    chosen = {"ANTHROPIC_MODEL": "claude-sonnet-4-5", "ENABLE_TOOL_SEARCH": "false"}
    env = {**claude_code.QUIET, **env, **chosen}
    yield {"type": "acp", "command": program("Claude Agent"), "cwd": str(place.work), "env": env}


@asynccontextmanager
async def gemini_acp(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
    """Gemini CLI behind the Agent Client Protocol; it does not resume sessions."""
    place = Place(folder)
    place.write(".gemini/settings.json", json.dumps(gemini.QUIET))
    env = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_TELEMETRY_ENABLED": "false"}
    quiet = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true", "HOME": str(place.home)}
    command = [*program(gemini.NAME), "--acp", "-m", "gemini-2.5-flash"]
    yield {"type": "acp", "command": command, "cwd": str(place.work), "env": {**env, **quiet}}


class Talk(Model):
    """The scripted model, of whose turns those do not count in which codex-acp wanted a title for the conversation."""

    @property
    def turns(self) -> list[Recorded]:
        return [turn for turn in super().turns if "very short title" not in str(turn.body)]


PROGRAMS: tuple[Kind, ...] = (claude, codex_app_server, claude_acp, codex_acp, gemini_acp)
"""Agents with an MCP client of their own."""
KINDS: tuple[Kind, ...] = (native, ag_ui, *PROGRAMS)
