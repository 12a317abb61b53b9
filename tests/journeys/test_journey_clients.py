"""The MCP SDK's client against a real daemon: both eras, both fronts, servers of every era."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, daemon, server

Front = Literal["http", "stdio"]
LIMIT = 30.0
"""Seconds for one whole test."""
VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
ERAS = ("legacy", "modern", "dual")

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Daemon]:
    """One daemon with a server of every era, each alone in a workspace of its name; ``ask-X`` may ask its client."""
    servers = {era: server("--era", era, "--changing") for era in ERAS}
    servers |= {f"ask-{era}": server("--era", era, dialogue="session") for era in ERAS}
    workspaces = {name: {"mcp_servers": [name], "prefix": ""} for name in servers}
    workspaces |= {"prefixed": {"mcp_servers": [*ERAS]}}
    async with daemon(tmp_path_factory.mktemp("gateway"), servers, workspaces) as running:
        yield running


@asynccontextmanager
async def connected(running: Daemon, workspace: str, mode: str, front: Front, **more: Any) -> AsyncGenerator[Client]:
    """The SDK's client, talking with a workspace through one of the two fronts."""
    if front == "stdio":
        shim = ["-m", "mooring", "stdio", "-w", workspace]
        target = StdioServerParameters(command=sys.executable, args=shim, env=running.env)
        async with Client(target, mode=mode, **more) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {await running.key(workspace)}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=LIMIT) as http,
        Client(streamable_http_client(running.endpoint, http_client=http), mode=mode, **more) as client,
    ):
        yield client


async def seen(client: Client) -> dict[str, Any]:
    """What the echo server has received so far."""
    return (await client.call_tool("seen", {})).structured_content


@pytest.fixture(params=["http", "stdio"])
def front(request: pytest.FixtureRequest) -> Front:
    return request.param


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_everything_is_listed_called_read_got_and_completed(
    gateway: Daemon, era: str, mode: str, front: Front
) -> None:
    """R27, A16: all request kinds, from clients of either era to servers of either era."""
    async with asyncio.timeout(LIMIT), connected(gateway, era, mode, front) as client:
        assert client.protocol_version == VERSIONS[mode]
        assert client.server_info.name == "mooring"
        tools = (await client.list_tools()).tools
        assert {"echo", "vendor", "sleep"} <= {tool.name for tool in tools}
        assert "test://static-text" in {it.uri for it in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates
        assert [it.uri_template for it in templates] == ["test://template/{id}/data"]
        assert {it.name for it in (await client.list_prompts()).prompts} >= {"simple", "greeting"}
        result = await client.call_tool("echo", {"text": "hi", "n": [1, None]})
        assert result.structured_content == {"text": "hi", "n": [1, None]}
        assert (await client.call_tool("error", {})).is_error
        read = (await client.read_resource("test://static-text")).contents[0]
        assert read.text == "a static text"
        assert (await client.read_resource("test://template/7/data")).contents[0].text == '{"id":"7"}'
        prompt = await client.get_prompt("greeting", {"name": "Ann"})
        assert prompt.messages[0].content.text == "Greet Ann (plain)"
        reference = types.PromptReference(type="ref/prompt", name="greeting")
        names = await client.complete(reference, {"name": "name", "value": "al"})
        assert names.completion.values == ["alice", "albert"]
        template = types.ResourceTemplateReference(type="ref/resource", uri="test://template/{id}/data")
        assert (await client.complete(template, {"name": "id", "value": "1"})).completion.values == ["1", "13"]


async def test_progress_and_log_messages_reach_the_caller(gateway: Daemon, era: str, mode: str, front: Front) -> None:
    """A18: what a server reports during a call comes out at its caller, across eras too."""
    said: list[Any] = []
    steps: list[float] = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        said.append((params.level, params.data))

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    more = {"logging_callback": logged, "log_level": "info"}
    async with asyncio.timeout(LIMIT), connected(gateway, era, mode, front, **more) as client:
        if mode == "legacy":
            await client.set_logging_level("info")
        await client.call_tool("sleep", {"seconds": 0.04}, progress_callback=progressed)
        assert steps == [1, 2, 3, 4]
        await client.call_tool("log", {"text": "quiet", "level": "debug"})
        await client.call_tool("log", {"text": "hello", "level": "warning"})
        await wait_for(lambda: said)
        assert said == [("warning", "hello")]


async def test_a_cancelled_call_is_cancelled_at_the_server(gateway: Daemon, era: str, mode: str, front: Front) -> None:
    """R27, A15: and the connection stays usable."""
    begun = asyncio.Event()

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with asyncio.timeout(LIMIT), connected(gateway, era, mode, front) as client:
        before = len((await seen(client))["cancelled"])
        call = client.call_tool("sleep", {"seconds": 600, "steps": 60000}, progress_callback=progressed)
        task = asyncio.create_task(call)
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async def cancelled() -> bool:
            return len((await seen(client))["cancelled"]) > before

        await wait_for(cancelled, 10)


async def test_a_changed_list_is_announced(gateway: Daemon, era: str, mode: str, front: Front) -> None:
    """A16, R35: on the GET stream, the legacy pipe, and on subscriptions/listen; the new tool is listed then."""
    told = asyncio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with asyncio.timeout(LIMIT), connected(gateway, era, mode, front, message_handler=heard) as client:
        if mode == "legacy":
            added = (await client.call_tool("change", {})).content[0].text
            await told.wait()
        else:
            async with client.listen(tools_list_changed=True) as changes:
                assert changes.honored.tools_list_changed
                added = (await client.call_tool("change", {})).content[0].text
                await anext(changes)
        assert added in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_subscribed_resource_is_announced(gateway: Daemon, era: str, mode: str, front: Front) -> None:
    """R35: subscriptions cross the eras."""
    uri = "test://watched-resource"
    told = asyncio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and str(message.params.uri) == uri:
            told.set()

    async with asyncio.timeout(LIMIT), connected(gateway, era, mode, front, message_handler=heard) as client:
        if mode == "legacy":
            await client.subscribe_resource(uri)
            await client.call_tool("touch", {})
            await told.wait()
        else:
            async with client.listen(resource_subscriptions=[uri]) as changes:
                await client.call_tool("touch", {})
                assert (await anext(changes)).uri == uri


async def elicited(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": params.message})


async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
    asked = params.messages[0].content.text
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text=asked), model="m")


async def rooted(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp", name="tmp")])


ANSWERS = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": rooted}


@pytest.mark.parametrize("workspace", ["ask-legacy", "ask-modern", "ask-dual", "modern"])
async def test_a_server_asks_its_client(gateway: Daemon, mode: str, workspace: str, front: Front) -> None:
    """A18: elicitation, sampling and roots, from servers of every era that may ask, a shared modern one among them; a
    modern server checks that its requestState came back unchanged."""
    async with asyncio.timeout(LIMIT), connected(gateway, workspace, mode, front, **ANSWERS) as client:
        asked = await client.call_tool("elicit", {"message": "who?"})
        assert asked.structured_content == {"action": "accept", "content": {"name": "who?"}}
        sample = await client.call_tool("sample", {"prompt": "say"})
        assert sample.structured_content["content"]["text"] == "say"
        roots = await client.call_tool("roots", {})
        assert roots.structured_content["roots"][0]["uri"].rstrip("/") == "file:///tmp"


async def test_a_shared_legacy_server_asks_nobody(gateway: Daemon, mode: str, front: Front) -> None:
    """A18: it is told of no client's capabilities, so the call fails in its own words, and the next one works."""
    async with asyncio.timeout(LIMIT), connected(gateway, "legacy", mode, front, **ANSWERS) as client:
        with pytest.raises(MCPError, match="did not declare elicitation"):
            await client.call_tool("elicit", {})
        assert (await client.call_tool("echo", {"a": 1})).structured_content == {"a": 1}


async def test_names_are_prefixed_for_a_workspace_of_several_servers(gateway: Daemon, mode: str, front: Front) -> None:
    """A20, R35: tools and prompts of three servers side by side, each reaching its own."""
    async with asyncio.timeout(LIMIT), connected(gateway, "prefixed", mode, front) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        for era in ERAS:
            assert {f"{era}_echo", f"{era}_pid"} <= tools
            assert f"{era}_greeting" in prompts
            got = await client.get_prompt(f"{era}_greeting", {"name": era})
            assert got.messages[0].content.text == f"Greet {era} (plain)"
        pids = {(await client.call_tool(f"{era}_pid", {})).content[0].text for era in ERAS}
        assert len(pids) == 3
