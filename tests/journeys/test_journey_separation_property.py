"""Two workspaces of a real daemon, in both eras, over HTTP and stdio: whatever one tries with all it may have guessed
of the other, it gets nothing, its neighbour's server hears nothing, and the neighbour notices nothing."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import secretive_server
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.http_client import HttpClient
from mooring.testing.speech import DIALOGUE
from mooring.testing.stdio_client import StdioClient
from secretive_server import hidden, listed, task

BOUND = 20.0
CHANNELS = ("http legacy", "http modern", "stdio legacy", "stdio modern")
Client = HttpClient | StdioClient
UPDATED = "notifications/resources/updated"


class Owner:
    """One who has secrets: a task, a parked call, a watched resource."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.modern = client.era == "modern"
        self.state = ""

    async def prepare(self) -> None:
        """Have a question open, where the era has such a thing."""
        await self.client.call(f"{self.prefix}_link")
        if self.modern:
            asked = await self.client.result("tools/call", self._guarded)
            assert asked["resultType"] == "input_required"
            self.state = asked["requestState"]

    async def goes_on(self) -> None:
        """Everything of theirs still works."""
        reading = await self.client.result("resources/read", {"uri": hidden(self.prefix)})
        assert reading["contents"][0]["text"] == "the secret"
        if self.state:
            responses = {"q1": {"action": "accept", "content": {}}}
            done = await self.client.result(
                "tools/call", {**self._guarded, "requestState": self.state, "inputResponses": responses}
            )
            assert done["content"][0]["text"] == "guarded"

    @property
    def _guarded(self) -> dict[str, Any]:
        return {"name": f"{self.prefix}_guarded", "arguments": {}}


class Stage:
    """A daemon, and a client of each workspace on every channel."""

    def __init__(self, running: Daemon, stack: AsyncExitStack, journals: list[Path]) -> None:
        self.running = running
        self._stack = stack
        self._journals = journals
        self.owners: dict[tuple[str, str], Owner] = {}
        self.strangers: dict[str, Client] = {}

    async def open(self) -> None:
        for channel in CHANNELS:
            for prefix in ("old", "new"):
                self.owners[channel, prefix] = Owner(await self.client("a", channel), prefix)
            self.strangers[channel] = await self.client("b", channel)

    async def client(self, workspace: str, channel: str) -> Client:
        transport, era = channel.split()
        common: dict[str, Any] = {"era": era, "capabilities": DIALOGUE, "timeout": BOUND}
        if transport == "http":
            client: Client = HttpClient(self.running.endpoint, token=await self.running.key(workspace), **common)
        else:
            shim = [sys.executable, "-m", "mooring", "stdio", "-w", workspace]
            client = StdioClient(shim, env=self.running.env, **common)
        await self._stack.enter_async_context(client)
        await client.open()
        return client

    def heard(self) -> list[str]:
        """What the secretive servers were asked, but for what Mooring asks by itself."""
        lines = [line for journal in self._journals for line in journal.read_text().splitlines()]
        return [line for line in lines if not line.startswith(("ping", "tools/list", "prompts/list", "resources/list"))]


@pytest.fixture(scope="module")
def runner() -> Generator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def stage(runner: asyncio.Runner) -> Generator[Stage]:
    with tempfile.TemporaryDirectory() as folder:
        stack = AsyncExitStack()
        journals = [Path(folder) / name for name in ("old", "new")]
        program = [str(secretive_server.__file__)]
        secretive = {
            journal.name: {
                "command": sys.executable,
                "args": [*program, str(journal), *(["--modern"] if journal.name == "new" else [])],
                "tools": {"confirm": ["guarded"]},
            }
            for journal in journals
        }
        home = Path(folder) / "home"
        home.mkdir()
        rooms = {"a": {"mcp_servers": ["old", "new", "shared"]}, "b": {"mcp_servers": ["shared"]}}

        async def up() -> Stage:
            running = await stack.enter_async_context(
                daemon(home, {**secretive, "shared": server("--changing")}, rooms)
            )
            made = Stage(running, stack, journals)
            await made.open()
            return made

        try:
            yield runner.run(up())
        finally:
            runner.run(stack.aclose())


NAMES = st.sampled_from(["old_link", "new_start", "old_guarded", "link", "grow", "old__link", "OLD_link", "a/old_link"])
URIS = st.sampled_from(
    [
        listed("old"),
        listed("new"),
        hidden("old"),
        hidden("new"),
        "secret://",
        listed("old") + "/",
        "SECRET://old/listed",
    ]
)
ATTEMPTS = st.one_of(
    st.tuples(st.just("tools/call"), st.fixed_dictionaries({"name": NAMES})),
    st.tuples(st.just("resume"), st.sampled_from(["accept", "decline"]).map(lambda action: {"action": action})),
    st.tuples(st.just("prompts/get"), st.just({"name": "old_confess"})),
    st.tuples(
        st.sampled_from(["resources/read", "resources/subscribe", "resources/unsubscribe"]),
        URIS.map(lambda uri: {"uri": uri}),
    ),
    st.tuples(
        st.sampled_from(["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"]),
        st.sampled_from([task("old"), task("new"), "", "task"]).map(lambda id: {"taskId": id}),
    ),
    st.tuples(st.just("tasks/list"), st.just({})),
    st.tuples(
        st.just("completion/complete"),
        URIS.map(lambda uri: {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "x", "value": ""}}),
    ),
    st.tuples(st.just("stream"), st.fixed_dictionaries({"event": st.sampled_from(["1", "0", "s0_1", "c" + "0" * 24])})),
    st.tuples(st.just("cancel"), st.fixed_dictionaries({"requestId": st.integers(0, 12)})),
)


async def attempt(stranger: Client, owner: Owner, method: str, params: dict[str, Any]) -> None:
    """Try; what names something of the owner's is refused. A URI or a task that nobody knows goes to the one server
    that the stranger has, whose answer is its own."""
    if method == "cancel":
        done = stranger.notify("notifications/cancelled", params)
        if asyncio.iscoroutine(done):
            await done
        return
    if method == "stream":
        await resumed(stranger, owner, params["event"])
        return
    if method == "resume":
        method = "tools/call"
        answered = {"q1": {"action": params["action"], "content": {}}}
        params = {**owner._guarded, "requestState": owner.state or "mooring-parked:x", "inputResponses": answered}
    message = await stranger.request(method, params)
    result = message.get("result")
    if method in ("tools/call", "prompts/get"):
        assert result is None or result.get("isError"), (method, params, message)
    assert "the secret" not in str(message)
    assert "resource_link" not in str(message)


async def resumed(stranger: Client, owner: Owner, event: str) -> None:
    """A stream of the owner's session, or one's own from an event of the owner's on."""
    if not isinstance(stranger, HttpClient):
        return
    session = owner.client.session if isinstance(owner.client, HttpClient) else None
    headers = {**stranger._own_headers(), "Accept": "text/event-stream", "Last-Event-ID": event}
    guessed = {**headers, "Mcp-Session-Id": session or "guessed", "MCP-Protocol-Version": "2025-11-25"}
    async with stranger.exchange("GET", b"", guessed) as reply:
        assert reply.status in (400, 404, 405)
        await reply.body()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(CHANNELS),
    st.sampled_from(["old", "new"]),
    st.sampled_from(CHANNELS),
    st.lists(ATTEMPTS, min_size=1, max_size=6),
)
def test_nothing_of_another_workspace_is_reached_on_any_channel(
    runner: asyncio.Runner,
    stage: Stage,
    mine: str,
    prefix: str,
    theirs: str,
    attempts: list[tuple[str, dict[str, Any]]],
) -> None:
    """R19 R24: names, URIs, tasks, request states, session and event ids, subscriptions, in both eras over HTTP and
    stdio."""

    async def played() -> None:
        async with asyncio.timeout(BOUND * 2):
            owner, stranger = stage.owners[mine, prefix], stage.strangers[theirs]
            await owner.prepare()
            before = stage.heard()
            for method, params in attempts:
                await attempt(stranger, owner, method, params)
            assert stage.heard() == before
            await owner.goes_on()

    runner.run(played())


@pytest.mark.parametrize("prefix", ["old", "new"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_what_is_announced_to_one_is_not_heard_by_the_other(
    runner: asyncio.Runner, stage: Stage, channel: str, prefix: str
) -> None:
    """R19: list changes and updates of a watched resource; a stranger that asks for them gets nothing of them."""

    async def played() -> None:
        async with asyncio.timeout(BOUND * 2), AsyncExitStack() as stack:
            owner, stranger = await stage.client("a", channel), await stage.client("b", channel)
            for client in (owner, stranger):
                await watching(client, listed(prefix), stack)
            touch, grow = f"{prefix}_touch", f"{prefix}_grow"
            await owner.call(touch)
            await owner.call(grow)
            await owner.heard("notifications/tools/list_changed")
            await owner.heard(UPDATED, lambda params: params["uri"] == listed(prefix))
            await stranger.call("shared_change", {"kind": "tools"})  # a sign of life, and of its own list
            await stranger.heard("notifications/tools/list_changed")
            told = [note for note in stranger.notifications if "acknowledged" not in note["method"]]
            assert {note["method"] for note in told} == {"notifications/tools/list_changed"}
            assert len(told) == 1
            assert "secret" not in str(told)

    runner.run(played())


async def watching(client: Client, uri: str, stack: AsyncExitStack) -> None:
    """Listen for everything, and watch the secret as far as one may."""
    wanted = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": [uri]}
    if client.era == "legacy":
        if isinstance(client, HttpClient):
            await stack.enter_async_context(client.listening())
        await client.request("resources/subscribe", {"uri": uri})
    elif isinstance(client, HttpClient):
        await stack.enter_async_context(client.listening(wanted))
        await client.heard("notifications/subscriptions/acknowledged")
    else:
        client.begin("subscriptions/listen", {"notifications": wanted})
        await client.heard("notifications/subscriptions/acknowledged")


def test_a_task_goes_to_who_was_given_it_and_to_nobody_else(runner: asyncio.Runner, stage: Stage) -> None:
    """R19: the owner's own era, since nobody could translate a task; a second client of the same workspace and key may
    ask for it, one of another workspace not, on no channel."""

    async def played() -> None:
        for era, prefix in (("legacy", "old"), ("modern", "new")):
            owner = await stage.client("a", f"http {era}")
            given = await owner.result("tools/call", {"name": f"{prefix}_start", "arguments": {}, "task": {}})
            assert task(prefix) in str(given)
            assert "result" in await owner.request("tasks/get", {"taskId": task(prefix)})
            before = stage.heard()
            for stranger in stage.strangers.values():
                for method in ("tasks/get", "tasks/result", "tasks/update", "tasks/cancel"):
                    assert "error" in await stranger.request(method, {"taskId": task(prefix)})
            assert stage.heard() == before

    runner.run(played())
