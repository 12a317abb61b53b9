"""Mooring inside another program: ``mooring.open`` with real servers and with functions."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import mooring
from mooring.errors import ConfigError, MooringError, UpstreamProtocol
from mooring.relay.refusals import ERROR_KEY
from mooring.testing import wait_for
from mooring.testing.daemon import server, write_config
from mooring.testing.processes import alive, descendants

CONFIG: dict[str, Any] = {
    "mcp_servers": {"echo": server(), "old": server("--era", "legacy", "--without", "prompts")},
    "workspaces": {"w": {"mcp_servers": ["old", "echo"]}, "v": {"mcp_servers": ["echo"]}},
}


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_tools_come_in_configuration_order_with_their_schema_and_can_be_called() -> None:
    """A17, A24: fit to be registered in any host."""
    async with mooring.open(CONFIG) as m:
        tools = await m.tools("w")
        assert [tool.server for tool in tools] == sorted((tool.server for tool in tools), reverse=True)
        echo = next(tool for tool in tools if tool.name == "echo_echo")
        assert echo.input_schema == {"type": "object"}
        assert echo.description.startswith("Answers its arguments")
        assert repr(echo) == "Tool('echo_echo')"
        result = await echo.call(n=2**63, none=None, nested={"a": [1.5]})
        assert result["structuredContent"] == {"n": 2**63, "none": None, "nested": {"a": [1.5]}}


async def test_results_and_errors_are_what_the_server_said() -> None:
    async with mooring.open(CONFIG) as m:
        assert (await m.call("v", "echo_error"))["isError"] is True
        vendor = await m.call("v", "echo_vendor")
        assert vendor["content"][0]["x-vendor"]["long"] == 123456789012345678901234567890
        assert vendor["content"][1]["payload"] == [100.0, "\ud800"]
        assert (await m.call("v", "echo_echo", {"x": "\ud800"}))["structuredContent"] == {"x": "\ud800"}
        with pytest.raises(UpstreamProtocol, match="an error of its own") as caught:
            await m.call("v", "echo_rpc_error", {"code": -32099})
        assert caught.value.details == {"code": -32099, "data": {"vendor": [1, 2]}}
        assert (await m.call("v", "old_echo"))["_meta"][ERROR_KEY]["kind"] == "refused"
        with pytest.raises(ConfigError, match='no workspace "x"'):
            await m.call("x", "echo_echo")


async def test_calls_run_side_by_side_and_progress_reaches_its_own_caller() -> None:
    """A15, A18."""
    async with mooring.open(CONFIG) as m:
        heard: dict[int, list[Any]] = {n: [] for n in range(8)}

        async def one(n: int) -> str:
            arguments = {"seconds": 0.2, "steps": n + 1}
            return text(await m.call("w", "echo_sleep", arguments, lambda what, data: heard[n].append((what, data))))

        async with asyncio.timeout(5):
            assert await asyncio.gather(*(one(n) for n in heard)) == ["slept 0.2"] * 8
        assert {n: len(said) for n, said in heard.items()} == {n: n + 1 for n in heard}
        assert all(said[-1][1]["progress"] == n + 1 for n, said in heard.items())


async def test_two_workspaces_share_one_process_and_none_is_left_at_the_end() -> None:
    """R7, R15, A12, A13."""
    before = descendants(os.getpid())
    async with mooring.open(CONFIG) as m:
        pids = {text(await m.call(workspace, "echo_pid")) for workspace in ("w", "v")}
        assert len(pids) == 1
        (row,) = [row for row in await m.ps() if row.server == "echo"]
        assert (str(row.pid), row.workspaces, row.state, row.leases) == (*pids, ("w", "v"), "ready", 0)
        started = descendants(os.getpid()) - before
        assert int(*pids) in started
    await wait_for(lambda: not any(alive(pid) for pid in started))


async def test_what_belongs_to_a_session_lasts_from_call_to_call() -> None:
    config = {"mcp_servers": {"echo": server(sharing="session", idle_timeout=0)}}
    async with mooring.open(config | {"workspaces": {"w": {"mcp_servers": ["echo"]}}}) as m:
        counts = [text(await m.call("w", "echo_counter")) for _ in range(3)]
        assert counts == ["1", "2", "3"]
        assert len([row for row in await m.ps() if row.state == "ready"]) == 1


async def test_a_call_does_not_wait_for_servers_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 9."""
    monkeypatch.setattr("mooring.relay.first_look.PATIENCE", 40.0)
    slow = {"mcp_servers": {"echo": server(), "slow": server("--never-answer")}}
    async with mooring.open(slow | {"workspaces": {"w": {"mcp_servers": ["*"]}}}) as m:
        began = asyncio.get_running_loop().time()
        await m.call("w", "echo_pid")
        assert asyncio.get_running_loop().time() - began < 20


async def test_it_runs_on_the_standard_loop_of_a_host_program(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(f"[mcp_servers.echo]\ncommand = {server()['command']!r}\nargs = {server()['args']!r}\n")

    async def use() -> str:
        async with mooring.open(file) as m:
            return text(await m.call("default", "echo_echo", {"x": 1}))

    found: list[str] = []

    def host() -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            found.append(runner.run(use()))

    thread = threading.Thread(target=host)
    thread.start()
    await asyncio.to_thread(thread.join, 20)
    assert found == ['{"x":1}']


@pytest.mark.parametrize(
    "config",
    [
        {"nonsense": 1},
        {"mcp_servers": {"a": {"command": None}}},
        {"mcp_servers": {"a": {"command": "x", "args": [Path("y")]}}},
        {"mcp_servers": {"a": {"command": 5}}},
    ],
)
async def test_a_wrong_configuration_is_a_config_error(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        async with mooring.open(config):
            pass


async def test_an_exception_in_the_block_ends_it_and_its_servers() -> None:
    before = descendants(os.getpid())

    async def use() -> None:
        async with mooring.open(CONFIG) as m:
            await m.call("w", "echo_pid")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await use()
    await wait_for(lambda: not any(alive(pid) for pid in descendants(os.getpid()) - before))


class Point(msgspec.Struct):
    x: int
    y: int = 0


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Both of them."""
    return a + b


async def move(point: Point, to: Literal["left", "right"]) -> Point:
    """Moves."""
    await asyncio.sleep(0)
    return Point(point.x + (1 if to == "right" else -1), point.y)


def broken() -> None:
    raise RuntimeError("it broke")


def odd() -> object:
    return object()


def says() -> str:
    return "plain"


async def test_functions_are_tools_like_any_other() -> None:
    async with mooring.open(CONFIG) as m:
        await m.add_server("my-own", functions=[add, move, broken, odd, says], workspaces=["v"])
        tools = {tool.name: tool for tool in await m.tools("v") if tool.server == "my-own"}
        assert list(tools) == [f"my_own_{name}" for name in ("add", "move", "broken", "odd", "says")]
        assert tools["my_own_add"].description == "Adds two numbers.\n\nBoth of them."
        schema = tools["my_own_add"].input_schema
        assert (schema["required"], schema["properties"]["b"]) == (["a"], {"type": "integer", "default": 2})
        assert text(await tools["my_own_add"].call(a=5)) == "7"
        moved = await tools["my_own_move"].call(point={"x": 1}, to="right")
        assert moved["structuredContent"] == {"x": 2, "y": 0}
        assert text(await tools["my_own_says"].call()) == "plain"
        assert text(await tools["my_own_broken"].call()) == "RuntimeError: it broke"
        for name, arguments in (("add", {"a": "x"}), ("add", {}), ("add", {"a": 1, "c": 1}), ("odd", {})):
            assert (await tools[f"my_own_{name}"].call(**arguments))["isError"]
        assert not [tool for tool in await m.tools("w") if tool.server == "my-own"]


async def test_functions_outlive_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text("[workspaces.w]\n")
    async with mooring.open(file) as m:
        await m.add_server("mine", functions=[add])
        file.write_text("[workspaces.w]\n[workspaces.v]\n")
        assert (await m.reload()).added == ("workspace v",)
        for workspace in ("w", "v"):
            assert [tool.name for tool in await m.tools(workspace)] == ["mine_add"]
        file.write_text("nonsense")
        report = await m.reload()
        assert not report.applied
        assert str(file) in report.error
        with pytest.raises(ConfigError):
            await m.add_server("more", functions=[says])
        file.write_text("[workspaces.w]\n")
        await m.reload()
        assert [tool.name for tool in await m.tools("w")] == ["mine_add"]


async def test_what_is_known_of_definitions_that_are_gone_goes_at_a_reload(tmp_path: Path) -> None:
    """A daemon runs for months, and a secret that changes is another definition each time."""
    file = tmp_path / "mooring.toml"

    def write(number: int) -> None:
        write_config(file, {"echo": server("--tools", str(number))})

    write(1)
    async with mooring.open(file) as m, asyncio.timeout(60):
        app = m._control._app
        for number in range(2, 5):
            await app.looks.done()
            app.logs.add("echo", "said")
            write(number)
            assert (await m.reload()).applied
            assert "echo_echo" in [tool.name for tool in await m.tools("w")]
        assert len(app.listings._known) <= 2
        assert len(app.verdicts._known) <= 2
        assert app.logs.last("echo", 1) == ["said"]
        file.write_text("[workspaces.w]\n")
        await m.reload()
        assert (app.listings._known, app.listings._latest, app.verdicts._known) == ({}, {}, {})
        assert app.logs.last("echo", 1) == []
        assert (app.pins._last, app.metrics._mounts) == ({}, set())


def _star(*args: int) -> None: ...
def _unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _strange(x: threading.Lock) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("name", "functions", "workspaces", "message"),
    [
        ("echo", [add], None, "already"),
        ("My Own", [add], None, "cannot be a name"),
        ("mine", [add], ["nobody"], 'no workspace "nobody"'),
        ("mine", [add, add], None, "called 'add'"),
        ("mine", [_star], None, "cannot be described"),
        ("mine", [_unknown], None, "cannot be described"),
        ("mine", [_strange], None, "cannot be described"),
        ("mine", [max], None, "cannot be described"),
    ],
)
async def test_functions_that_cannot_be_added_are_refused_and_leave_nothing(
    name: str, functions: list[Any], workspaces: list[str] | None, message: str
) -> None:
    async with mooring.open({"mcp_servers": {"echo": server(enabled=False)}}) as m:
        with pytest.raises(ConfigError, match=message):
            await m.add_server(name, functions=functions, workspaces=workspaces)
        await m.add_server("mine", functions=[add])
        assert [tool.name for tool in await m.tools("default")] == ["mine_add"]


async def test_every_error_is_a_mooring_error() -> None:
    async with mooring.open({}) as m:
        for asked in (m.restart("x"), m.logs("x"), m.key_rotate("k"), m.tools("x")):
            with pytest.raises(MooringError):
                await asked
