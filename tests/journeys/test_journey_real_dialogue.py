"""The reference server "everything" asks its user through Mooring: on each transport, clients of both eras."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from test_journey_real_servers import PATH, SLOW, program, text, warmed

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon
from mooring.testing.speech import DIALOGUE, Era

pytestmark = [pytest.mark.network, pytest.mark.timeout(400)]

Start = Callable[..., Awaitable[Daemon]]
ARGS = ["-y", "@modelcontextprotocol/server-everything"]
ASKING = ("it_trigger-elicitation-request", "it_trigger-sampling-request", "it_get-roots-list")
PATIENCE = 60.0
"""Seconds a server of Node's has to start."""


@pytest.fixture(scope="module")
def npx() -> str:
    """npx, with the server in its cache."""
    command = program("npx")
    warmed([command, *ARGS], "server-everything")
    return command


@asynccontextmanager
async def listening(npx: str, transport: str) -> AsyncGenerator[str]:
    """The server on HTTP, started by somebody else than Mooring; its origin."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(npx, *ARGS, transport),
        env={**os.environ, "PATH": PATH, "PORT": str(port)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )

    def answers() -> bool:
        assert process.returncode is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await wait_for(answers, PATIENCE)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.fixture(params=["stdio", "port", "url", "sse"])
async def definition(request: pytest.FixtureRequest, npx: str) -> AsyncGenerator[dict[str, Any]]:
    """``[mcp_servers.it]``. What asks over a process needs one for each session; a remote needs to be told nothing."""
    own: dict[str, Any] = {"command": npx, "dialogue": "session", **SLOW}
    match request.param:
        case "stdio":
            yield {**own, "args": ARGS, "env": {"PATH": PATH}}
        case "port":
            yield {**own, "args": [*ARGS, "streamableHttp"], "port": 3001, "env": {"PATH": PATH, "PORT": "{port}"}}
        case "url":
            async with listening(npx, "streamableHttp") as origin:
                yield {"url": f"{origin}/mcp"}
        case _:
            async with listening(npx, "sse") as origin:
                yield {"url": f"{origin}/sse", "transport": "sse"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_its_questions_are_answered(start: Start, definition: dict[str, Any], era: Era) -> None:
    """A18, R27: elicitation, sampling and roots. It offers the tools that ask to a client that can answer only; they
    are listed before anybody called anything."""
    running = await start({"it": definition})
    async with await running.client("w", era, capabilities=DIALOGUE, timeout=PATIENCE) as client:
        await client.open()
        client.answers["elicitation/create"] = {"action": "accept", "content": {"name": "Ann", "check": True}}

        async def asking() -> bool:
            return set(ASKING) <= {tool["name"] for tool in (await client.result("tools/list"))["tools"]}

        await wait_for(asking, PATIENCE)
        elicited, sampled, rooted = [text(await client.call(name, {"prompt": "hi"})) for name in ASKING]
        assert "Name: Ann" in elicited
        assert "sampled" in sampled
        assert "file:///tmp" in rooted
    async with await running.client("w", era, timeout=PATIENCE) as plain:  # what it is offered less changes nothing
        await plain.open()
        assert "ahoy" in text(await plain.call("it_echo", {"message": "ahoy"}))
        assert set(ASKING) <= {tool["name"] for tool in (await plain.result("tools/list"))["tools"]}
    assert "Traceback" not in running.output


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_its_progress_and_both_forms_of_a_result_arrive(
    start: Start, definition: dict[str, Any], era: Era
) -> None:
    """R27"""
    running = await start({"it": definition})
    async with await running.client("w", era, timeout=PATIENCE) as client:
        await client.open()
        token = {"_meta": {"progressToken": "t"}}

        async def finished() -> bool:  # a cold start takes longer than a call waits for the list of its server
            arguments = {"duration": 0.1, "steps": 2}
            done = await client.call("it_trigger-long-running-operation", arguments, **token)
            return not done.get("isError")

        await wait_for(finished, PATIENCE)
        steps = [note["params"] for note in client.notifications if note["method"] == "notifications/progress"]
        told = [(step["progressToken"], step["progress"], step["total"]) for step in steps]
        assert told == [("t", 1, 2), ("t", 2, 2)]
        weather = await client.call("it_get-structured-content", {"location": "Chicago"})
        assert weather["structuredContent"]["temperature"] == 36
        assert '"temperature":36' in text(weather)
