"""What holds for every agent, seen with the smallest one: a native agent whose model is a function."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic_ai.models.function import FunctionModel

import agent_story as story
import mooring
from agent_kinds import scripted
from mooring.agents.events import Finished, Text, ToolCall, ToolResult
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.agents.pool import AgentPool
from mooring.agents.tools import Context
from mooring.errors import ConfigError, LaunchMissing, MooringError
from mooring.testing import wait_for
from mooring.testing.daemon import server
from mooring.testing.http_client import HttpClient
from mooring.testing.model import Model
from mooring.testing.speech import Era

AGENT = {"type": "native", "model": "scripted"}


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@asynccontextmanager
async def opened(
    model: Model, config: dict[str, Any] | None = None, handler: Handler | None = None
) -> AsyncGenerator[AgentPool]:
    """The pool of a configuration."""
    config = config or story.config({"a": AGENT, "b": AGENT})
    async with scripted(model) as chat, mooring.open(config) as m, m.agents(handler, {"scripted": chat}) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORY_SECRET", story.SECRET)


def ruin(thing: str) -> str:
    """Ruins something"""
    return f"ruined {thing}"


def approving(verdict: Verdict, asked: list[Approval]) -> Handler:
    async def approve(approval: Approval) -> Verdict:
        asked.append(approval)
        return verdict

    return Handler(approve=approve)


async def test_events_come_as_they_happen_and_the_last_says_how_it_ended(model: Model) -> None:
    async with opened(model) as pool, pool.agent("a") as agent:
        async with aclosing(agent.stream('%call mine_echo {"x": 1}\n%say the end')) as stream:
            events = [event async for event in stream]
        assert all(event.agent == "a" for event in events)
        assert next(event.tool for event in events if isinstance(event, ToolCall)) == "mine_echo"
        first = next(event for event in events if isinstance(event, ToolResult))
        assert json.loads(first.text) == {"x": 1}
        assert "".join(event.text for event in events if isinstance(event, Text)).endswith("the end")
        assert isinstance(events[-1], Finished)
        assert events[-1].stop == "done"


@pytest.mark.parametrize(
    ("mode", "asked_for"),
    [("always", {"mine_echo", "own_ruin", "own_greet"}), ("never", set[str]()), ("per_tool", {"own_ruin"})],
)
async def test_calls_are_confirmed_in_one_place(model: Model, mode: str, asked_for: set[str]) -> None:
    """A31"""
    asked: list[Approval] = []
    config = story.config({"a": {**AGENT, "confirm": mode}})
    async with opened(model, config, approving("allow", asked)) as pool, pool.agent("a") as agent:
        await agent.tools.add(ruin, confirm=True)
        await agent.tools.add(story.greet)
        script = '%call mine_echo {"x": 1}\n%and own_ruin {"thing": "it"}\n%and own_greet {"name": "n"}\n%say ok'
        result = await agent.run(script)
        assert {approval.tool for approval in asked} == asked_for
        assert result.text == "ok"
        assert "ruined it" in " ".join(model.turns[-1].results)


async def test_configured_tools_are_confirmed(model: Model) -> None:
    """A31"""
    asked: list[Approval] = []
    config = story.config({"a": AGENT})
    config["mcp_servers"]["mine"] = {**server(), "tools": {"confirm": ["count*"]}}
    async with opened(model, config, approving("allow", asked)) as pool, pool.agent("a") as agent:
        await agent.run("%call mine_counter\n%call mine_echo\n%say ok")
    assert [(approval.tool, approval.agent) for approval in asked] == [("mine_counter", "a")]


async def test_a_skipped_call_is_not_made_and_the_run_goes_on(model: Model) -> None:
    """A31"""
    for handler in (approving("skip", []), None):
        config = story.config({"a": AGENT})
        async with opened(model, config, handler) as pool, pool.agent("a") as agent:
            await agent.tools.add(ruin, confirm=True)
            result = await agent.run('%call own_ruin {"thing": "x"}\n%say went on')
            assert (result.text, result.stop) == ("went on", "done")
            assert "not approved" in model.turns[-1].results[-1]


async def test_an_aborted_call_ends_the_run(model: Model) -> None:
    """A31"""
    async with opened(model, handler=approving("abort", [])) as pool, pool.agent("a") as agent:
        await agent.tools.add(ruin, confirm=True)
        result = await agent.run('%call own_ruin {"thing": "x"}\n%wait 5\n%say never')
        assert result.stop == "aborted"
        assert (await agent.run("%say again")).text == "again"


async def test_a_run_can_be_cancelled_and_the_next_one_works(model: Model) -> None:
    async with opened(model) as pool, pool.agent("a") as agent:
        running = asyncio.create_task(agent.run("%wait 20\n%say never"))
        await wait_for(lambda: model.turns)
        await agent.cancel()
        assert (await running).stop == "cancelled"
        assert (await agent.run("%say still here")).text == "still here"


async def test_leaving_a_stream_early_cancels_the_run(model: Model) -> None:
    async with opened(model) as pool, pool.agent("a") as agent:
        async with aclosing(agent.stream("%call mine_counter\n%wait 20\n%say never")) as events:
            async for event in events:
                if isinstance(event, ToolResult):
                    break
        assert (await agent.run("%say next")).text == "next"


async def test_a_failed_model_is_an_error_that_names_the_agent(model: Model) -> None:
    async with opened(model) as pool, pool.agent("a") as agent:
        with pytest.raises(MooringError, match='agent "a" failed'):
            await agent.run("%fail 500")
        assert (await agent.run("%say ok")).text == "ok"


async def test_tools_keep_their_state_and_are_refused_while_they_are_off(model: Model) -> None:
    """A32"""
    async with opened(model) as pool:
        agent = pool.agent("a")
        async with agent:
            await agent.tools.add(story.greet, story.later)
            await agent.disable("own_greet")
            await agent.disable("mine_counter")
            names = await agent.refresh_tools()
            assert "own_later" in names
            assert not {"own_greet", "mine_counter"} & set(names)
            for tool in ("own_greet", "mine_counter"):
                refused = await agent._seat.called(tool, {}, "1")
                assert refused["isError"]
            await agent.tools.remove("greet")
            await agent.tools.add(story.greet)
            assert "own_greet" not in await agent.refresh_tools()
        async with agent:
            assert not {"own_greet", "mine_counter"} & set(await agent.refresh_tools())
            await agent.enable("own_greet")
            await agent.enable("mine_counter")
            assert {"own_greet", "mine_counter"} <= set(await agent.refresh_tools())
            with pytest.raises(ConfigError, match="no tool"):
                await agent.disable("mine_nothing")


async def test_temporary_tools_last_as_long_as_their_block(model: Model) -> None:
    async with opened(model) as pool, pool.agent("a") as agent:
        async with agent.tools.temporary(story.greet):
            assert "own_greet" in await agent.refresh_tools()
            with pytest.raises(ConfigError, match="already"):
                await agent.tools.add(story.greet)
        assert "own_greet" not in await agent.refresh_tools()


async def test_arguments_are_validated_and_failures_are_results(model: Model) -> None:
    """A30"""

    async def fails(number: int) -> None:
        """Fails"""
        raise RuntimeError(f"no {number}")

    async with opened(model) as pool, pool.agent("a") as agent:
        await agent.tools.add(fails)
        wrong = await agent._seat.called("own_fails", {"number": "x"}, "1")
        assert wrong["isError"]
        assert "int" in wrong["content"][0]["text"]
        failed = await agent._seat.called("own_fails", {"number": 7}, "1")
        assert failed["content"][0]["text"] == "RuntimeError: no 7"


async def test_what_a_server_asks_reaches_the_handler_of_the_run(model: Model) -> None:
    """A18 A30"""
    asked: list[str] = []

    async def elicit(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async def name(context: Context) -> str:
        """Asks"""
        answer = await context.elicit("who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{answer['action']} {answer.get('content')}"

    config = story.config({"a": AGENT, "b": AGENT})
    config["mcp_servers"]["mine"] = {**server("--era", "modern")}
    config["mcp_servers"]["pooled"] = {**server("--era", "legacy"), "dialogue": "session"}
    async with opened(model, config, Handler(elicit=elicit, roots=("/tmp",))) as pool, pool.agent("a") as agent:
        await agent.tools.add(name)
        for tool in ("mine_elicit", "pooled_elicit", "own_name", "pooled_roots"):
            said = await agent._seat.called(tool, {}, "1")
            assert not said.get("isError"), said
            assert ("Ada" in str(said)) or ("file:///tmp" in str(said))
        assert len(asked) == 3
    async with opened(model, config) as pool, pool.agent("a") as agent:
        await agent.tools.add(name)
        assert "decline" in str(await agent._seat.called("own_name", {}, "1"))


async def test_the_model_of_a_native_agent_answers_sampling(model: Model) -> None:
    config = story.config({"a": AGENT})
    config["mcp_servers"]["mine"] = {**server("--era", "modern")}
    async with opened(model, config) as pool, pool.agent("a") as agent:
        said = await agent._seat.called("mine_sample", {}, "1")
        assert not said.get("isError"), said
        assert any("messages" in (request.body or {}) for request in model.requests)


async def test_a_session_has_the_same_configuration_and_nothing_of_the_others_connections(model: Model) -> None:
    """A33"""
    async with opened(model) as pool, pool.agent("a") as agent:
        await agent.add_server("spare")
        await agent.disable("mine_echo")
        await agent.tools.add(story.greet)
        child = await agent.session()
        async with child:
            assert child._seat.key.key != agent._seat.key.key
            names = set(await child.refresh_tools())
            assert {"spare_echo", "mine_counter"} <= names
            assert not {"mine_echo", "own_greet"} & names
            await child.remove_server("spare")
            assert "spare_echo" not in await child.refresh_tools()
            assert "spare_echo" in await agent.refresh_tools()
        assert (await agent.run("%call spare_counter\n%say ok")).text == "ok"


async def test_agents_beside_each_other_do_not_mix(model: Model) -> None:
    """A30"""
    config = story.config({"a": AGENT, "b": AGENT})
    async with opened(model, config) as pool, pool.agent("a") as a, pool.agent("b") as b:
        both = (a, b)
        for agent in both:
            await agent.tools.add(story.greet)
        script = '%call own_greet {"name": "n"}\n%call own_greet {"name": "n"}\n%say {}'
        results = await asyncio.gather(*(agent.run(script, deps=agent.name) for agent in both))
        assert [result.stop for result in results] == ["done", "done"]
        said = {text for turn in model.turns for text in turn.results}
        assert said == {f"hello n from {n}, deps {n}, call known" for n in ("a", "b")}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_endpoint_is_the_same_door(model: Model, era: Era) -> None:
    """A30 A31 A36: a program that calls over HTTP is confirmed, asked for and refused like one in this process."""
    asked: list[Approval] = []

    async def elicit(params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": "Ada"}}

    handler = Handler(approve=approving("skip", asked).approve, elicit=elicit)
    config = story.config({"a": AGENT})
    config["mcp_servers"]["mine"] = {**server("--era", "modern")}
    async with opened(model, config, handler) as pool, pool.agent("a") as agent:
        await agent.tools.add(ruin, confirm=True)
        await agent.tools.add(story.greet)
        url, key = await agent._seat.ground.endpoint(), agent._seat.key.key
        async with HttpClient(url, token=key, era=era) as client:
            if era == "legacy":
                await client.open()
            names = {tool["name"] for tool in (await client.result("tools/list"))["tools"]}
            assert {"mine_echo", "own_ruin", "own_greet"} <= names
            refused = await client.call("own_ruin", {"thing": "x"})
            assert refused["isError"]
            assert "not approved" in refused["content"][0]["text"]
            assert [(approval.tool, approval.arguments) for approval in asked] == [("own_ruin", {"thing": "x"})]
            assert "Ada" in str(await client.call("mine_elicit"))
            assert (await client.result("resources/list"))["resources"]
            assert (await client.result("prompts/list"))["prompts"]
            await agent.tools.remove("greet")
            gone = await client.call("own_greet", {"name": "x"})
            assert gone["isError"]
            assert "no such tool" in gone["content"][0]["text"]
            if era == "legacy":
                unknown = await client.call("nothing", {})
                assert unknown["content"] == gone["content"]


async def test_a_changed_list_is_told_to_open_sessions(model: Model) -> None:
    """A30"""
    async with opened(model) as pool, pool.agent("a") as agent:
        url, key = await agent._seat.ground.endpoint(), agent._seat.key.key
        async with HttpClient(url, token=key) as client:
            await client.open()
            async with client.listening():
                await agent.tools.add(story.greet)
                await wait_for(lambda: any("tools/list_changed" in str(note) for note in client.notifications))


async def test_the_endpoint_wants_the_agents_key_and_only_while_it_is_open(model: Model) -> None:
    """A30"""
    async with opened(model) as pool:
        async with pool.agent("a") as agent:
            url, key = await agent._seat.ground.endpoint(), agent._seat.key.key
            assert url.startswith("http://127.0.0.1:")
            async with HttpClient(url, token=key) as client:
                await client.open()
            for wrong in (None, "mrg_wrong"):
                assert await _status(url, wrong) == 401
            assert await _status(url, key, host="evil.example") == 421
        assert await _status(url, key) == 401


async def _status(url: str, token: str | None, host: str = "") -> int:
    import httpx2

    headers = {"Accept": "application/json, text/event-stream"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Host": host} if host else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.post(url, json=body, headers=headers)).status_code


async def test_a_team_gives_its_prompt_to_every_member(model: Model) -> None:
    config = story.config({"a": AGENT, "b": AGENT})
    config["teams"]["crew"]["members"] = ["a", "b"]
    config["agents"]["broken"] = {"type": "codex", "command": "/nowhere/codex"}
    config["teams"]["mixed"] = {"members": ["a", "broken"]}
    async with opened(model, config) as pool:
        results = await pool.team("crew").run("%call teamed_counter\n%say done")
        assert {name: (result.text, result.calls) for name, result in results.items()} == {
            "a": ("done", ("teamed_counter",)),
            "b": ("done", ("teamed_counter",)),
        }
        mixed = await pool.team("mixed").run("%say fine")
        assert mixed["a"].text == "fine"
        assert mixed["broken"].stop == "failed"
        assert "/nowhere/codex" in mixed["broken"].text


async def test_a_member_that_fails_in_a_way_of_its_own_ends_nobody_elses_run(model: Model) -> None:
    async def broken(*_: Any) -> AsyncGenerator[str]:
        raise RuntimeError("the model broke")
        yield ""

    config = story.config({"a": AGENT, "b": {"type": "native", "model": "broken"}})
    config["teams"]["crew"]["members"] = ["a", "b"]
    async with scripted(model) as chat, mooring.open(config) as m, asyncio.timeout(30):
        models = {"scripted": chat, "broken": FunctionModel(stream_function=broken)}
        async with m.agents(None, models) as pool:
            results = await pool.team("crew").run("%say fine")
    assert (results["a"].text, results["b"].stop, results["b"].text) == ("fine", "failed", "the model broke")


async def test_agents_and_definitions_can_be_added_while_it_runs(model: Model) -> None:
    """A23"""
    async with opened(model) as pool:
        agent = await pool.add_agent("late", {**AGENT, "mcp_servers": ["mine"]}, teams=("crew",))
        assert pool.team("crew").members == ("a", "late")
        async with agent:
            await agent.add_server("extra", server())
            names = set(await agent.refresh_tools())
            assert {"pooled_echo", "teamed_echo", "mine_echo", "extra_echo"} <= names
        with pytest.raises(ConfigError, match="unknown server"):
            await pool.add_server("nothing")
        with pytest.raises(ConfigError, match="already"):
            await pool.add_agent("late", AGENT)
        async with pool.agent("a") as a:
            assert "mine_echo" in await a.refresh_tools()


async def test_one_broken_server_hides_nobody_elses_tools(model: Model) -> None:
    """A32"""
    config = story.config({"a": AGENT})
    config["mcp_servers"]["pooled"] = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    async with opened(model, config) as pool, pool.agent("a") as agent:
        assert (await agent.run("%call mine_counter\n%say ok")).text == "ok"
        assert "pooled_echo" not in await agent.refresh_tools()


@pytest.mark.parametrize(
    ("kind", "library", "extra"),
    [
        ("native", "pydantic_ai", "native"),
        ("ag_ui", "ag_ui.core", "ag-ui"),
        ("claude_code", "claude_agent_sdk", "claude"),
        ("acp", "acp", "acp"),
    ],
)
async def test_a_missing_library_is_an_error_that_names_the_extra(
    kind: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for module in [name for name in sys.modules if name.startswith(f"mooring.agents.{kind}")]:
        monkeypatch.delitem(sys.modules, module)
    needed = {"native": {"model": "m"}, "ag_ui": {"url": "http://127.0.0.1:9"}, "acp": {"command": "x"}}
    async with mooring.open({"agents": {"a": {"type": kind, **needed.get(kind, {})}}}) as m, m.agents() as pool:
        with pytest.raises(LaunchMissing, match=rf"mooring\[{extra}\]"):
            async with pool.agent("a"):
                pass


async def test_functions_come_from_import_paths(model: Model) -> None:
    config = story.config({"a": {**AGENT, "tools": ["agent_story:greet", "agent_story:FUNCTIONS"]}})
    async with opened(model, config) as pool, pool.agent("a") as agent:
        assert {"own_greet", "own_later"} <= set(await agent.refresh_tools())
    config["agents"]["a"]["tools"] = ["agent_story:nothing"]
    async with opened(model, config) as pool:
        with pytest.raises(ConfigError, match="module:name"):
            async with pool.agent("a"):
                pass


def test_agents_are_not_loaded_before_they_are_wanted(tmp_path: Path) -> None:
    import subprocess

    code = "import mooring.serve.app, mooring.config.resolve, sys; print([m for m in sys.modules if '.agents' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


Run = Callable[..., Any]


async def test_the_command_prints_events_as_they_come(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same from the command line, with a model that the environment points to."""
    (tmp_path / "mooring.toml").write_text(
        '[agents.a]\ntype = "native"\nmodel = "openai-chat:scripted"\ntools = ["agent_story:later"]\n'
        '[agents.b]\ntype = "native"\nmodel = "openai-chat:scripted"\n[teams.t]\nmembers = ["a", "b"]\n'
    )
    monkeypatch.setenv("MOORING_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("PYTHONPATH", str(Path(story.__file__).parent))

    async def command(*arguments: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-m", "mooring", "agent", "run", *arguments]
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    code, out, err = await command("a", '%call own_later {"number": 1}\n%say well', "--json")
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events if event["event"] != "text"] == ["tool_call", "tool_result", "finished"]
    assert events[-1] == {"event": "finished", "agent": "a", "text": "well", "stop": "done"}
    code, out, err = await command("t", "%say both")
    assert (code, out.count("both")) == (0, 2), err
    code, out, err = await command("a", "%fail 400")
    assert code == 1
    assert 'agent "a" failed' in err
    code, out, err = await command("zz", "hi")
    assert (code, "Agents: a, b." in err) == (2, True)


def test_the_command_explains_itself() -> None:
    from mooring.cli.main import cli

    assert "NAME may be a team" in CliRunner().invoke(cli, ["agent", "run", "--help"]).output
