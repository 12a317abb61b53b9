"""The registry: servers are added, used, set up and removed while the daemon runs, and every way to fail says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from registry_kit import LIMIT, furnish, kind, registry, text, tools

from mooring.testing import StdioClient, echo, wait_for
from mooring.testing.daemon import Daemon, launched
from mooring.testing.speech import Era
from raw_http_server import Exchange, RawServer

TOOLS = (
    *("find", "list", "get_docs", "add", "exec", "remove", "active", "config_set", "status", "refresh", "launch_stdio"),
)


@pytest.fixture
async def far() -> AsyncGenerator[RawServer]:
    async with RawServer("legacy") as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, far: RawServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return furnish(tmp_path / "home", far.url)


@asynccontextmanager
async def up(home: Path) -> AsyncGenerator[Daemon]:
    """A daemon that has read its own sources."""
    async with launched(home) as running:
        await running.mooring.catalog_refresh(["ours", "theirs"])
        yield running


@pytest.fixture
async def running(home: Path) -> AsyncGenerator[Daemon]:
    async with up(home) as running:
        yield running


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_is_added_used_and_removed(running: Daemon, era: Era) -> None:
    """R34 R35: the texts of each step; tools appear under their prefix with schema and description, and go."""
    async with registry(running, era) as client:
        listed = (await client.result("tools/list"))["tools"]
        assert {tool["name"] for tool in listed} == {f"registry_{name}" for name in TOOLS}
        hints = {tool["name"]: tool["annotations"] for tool in listed}
        assert hints["registry_find"]["readOnlyHint"] is True
        assert hints["registry_remove"]["destructiveHint"] is True

        found = await client.call("registry_find", {"query": "far", "sources": ["ours"]})
        assert [row["id"] for row in found["structuredContent"]["results"]] == ["ours/far"]

        added = await client.call("registry_add", {"entry_id": "ours/far", "prefix": "so_far"})
        assert text(added) == "Successfully activated: far\nTools: so_far_echo"
        if era == "legacy":
            await client.heard("notifications/tools/list_changed")
        shown = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert shown["so_far_echo"]["inputSchema"] == {"type": "object"}

        for name in ("so_far_echo", "mcp_so_far_echo"):
            result = await client.call("registry_exec", {"tool_name": name, "arguments": {"a": [1, None]}})
            assert result["structuredContent"] == {"a": [1, None]}
        assert (await client.call("so_far_echo", {"b": 2}))["structuredContent"] == {"b": 2}

        (mount,) = (await client.call("registry_active"))["structuredContent"]["mounts"]
        assert (mount["entry_id"], mount["prefix"], mount["state"]) == ("ours/far", "so_far", "ready")
        assert (mount["container_id"], mount["tools"]) == (None, ["echo"])

        removed = await client.call("registry_remove", {"entry_id": "so_far"})
        assert text(removed) == "Successfully deactivated: far"
        assert await tools(client) == set()
        assert not await running.mooring.active()


async def test_what_a_tool_answers_comes_back_as_it_is(running: Daemon, far: RawServer) -> None:
    """R34: all blocks, ``isError`` and ``structuredContent``, and members that nobody knows."""
    whole = {
        "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}],
        "isError": True,
        "structuredContent": {"n": 123456789012345678901234567890},
        "vendor": [1.0],
    }

    async def odd(it: Exchange, arguments: Any) -> Any:
        return whole

    far.tools["odd"] = odd
    async with registry(running) as client:
        await client.call("registry_add", {"entry_id": "ours/far"})
        assert await client.call("registry_exec", {"tool_name": "far_odd", "arguments": {}}) == whole


async def test_each_failure_of_an_add_has_a_kind_of_its_own_and_leaves_nothing(
    running: Daemon, far: RawServer, home: Path
) -> None:
    """R36: each says what to do, and nothing is active afterwards."""
    async with registry(running) as client:

        async def add(entry_id: str, **more: Any) -> dict[str, Any]:
            return await client.call("registry_add", {"entry_id": entry_id, **more})

        failures = {
            "unknown_entry": await add("ours/fat"),
            "missing_input": await add("ours/secret"),
            "needs_approval": await add("theirs/odd"),
            "config": await add("ours/far", settings={"nothing": 1}),
        }
        assert {name: kind(result) for name, result in failures.items()} == {name: name for name in failures}
        assert "Did you mean ours/far" in text(failures["unknown_entry"])
        assert "mooring secret set secret.X-Token" in text(failures["missing_input"])
        assert "mooring approve a_" in text(failures["needs_approval"])
        assert kind(await add("ours/far", editor="emacs")) == "config"
        assert kind(await add("ours/far", prefix="Up-Per")) == "config"
        assert kind(await add("ours/far", prefix="registry")) == "prefix_taken"
        assert kind(await client.call("registry_add", {"id": "ours/far"})) == "config"
        assert kind(await client.call("registry_exec", {"tool_name": "far_echo"})) == "refused"
        assert kind(await client.call("registry_remove", {"entry_id": "far"})) == "not_active"

        await far.stop()
        gone = await add("ours/far")
        assert kind(gone) in ("start_failed", "unavailable")
        assert '"ours/far" was not added' in text(gone)
        assert not await running.mooring.active()
        assert not await running.rows("ours.far")
        assert await tools(client) == set()

        await far.start()
        assert not kind(await add("ours/far"))
        again = await add("ours/far", prefix="other")
        assert (kind(again), "remove it first" in text(again)) == ("already_active", True)
        taken = await add("ours/free", prefix="far")
        assert (kind(taken), 'prefix "far_2"' in text(taken)) == ("prefix_taken", True)

        await far.stop()
        for row in await running.rows("ours.far"):
            assert row.state == "ready" or row.scope.startswith("look:")  # that one may be leaving
        dead = await client.call("registry_exec", {"tool_name": "far_echo"})
        assert kind(dead) in ("crashed", "unavailable", "start_failed", "backing_off")


async def test_an_add_that_is_cancelled_ends_what_it_began(tmp_path: Path) -> None:
    """R36: whoever gives up ends what was begun."""
    furnish(tmp_path / "home", "http://127.0.0.1:1/mcp", more='[catalog]\ncommands = [["sleep", "600"]]\n')
    async with up(tmp_path / "home") as running, registry(running) as client:
        _, adding = client.begin("tools/call", call("registry_launch_stdio", command="sleep", args=["600"], prefix="z"))

        await wait_for(lambda: servers(running, "600"), LIMIT)
        client.notify("notifications/cancelled", {"requestId": 1 + 1})
        await wait_for(lambda: not servers(running, "600"), LIMIT)
        assert not await running.mooring.active()
        adding.cancel()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def servers(running: Daemon, word: str) -> list[psutil.Process]:
    """Processes below the daemon that have ``word`` among their arguments."""
    found: list[psutil.Process] = []
    for process in psutil.Process(running.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if word in process.cmdline():
                found.append(process)
    return found


async def test_settings_that_are_missing_are_asked_for(running: Daemon, far: RawServer) -> None:
    """R33: by elicitation where the client can, else by name with what to do."""
    async with registry(running) as client:
        refused = await client.call("registry_add", {"entry_id": "ours/asking"})
        assert kind(refused) == "missing_input"
        assert 'settings {"team": ...}' in text(refused)
    for era in ("legacy", "modern"):
        async with registry(running, era, capabilities={"elicitation": {"form": {}}}) as client:
            client.answers["elicitation/create"] = {"action": "accept", "content": {"team": "tea"}}
            assert not kind(await client.call("registry_add", {"entry_id": "ours/asking"}))
            assert far.seen[-1].path.endswith("?team=tea")
            await client.call("registry_remove", {"entry_id": "asking"})
            client.answers["elicitation/create"] = {"action": "decline"}
            assert kind(await client.call("registry_add", {"entry_id": "ours/asking"})) == "missing_input"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_form_asks_for_settings_and_never_for_secrets(running: Daemon, far: RawServer, era: Era) -> None:
    """R33: a secret is named with what to run, in form and answer; a client without forms is asked nothing."""
    adding = {"entry_id": "ours/both"}
    async with registry(running, era, capabilities={"elicitation": {"url": {}}}) as client:
        refused = await client.call("registry_add", adding)
        assert (kind(refused), forms(client)) == ("missing_input", [])
        assert "team: Your team (such as red). Give settings" in text(refused)
    async with registry(running, era, capabilities={"elicitation": {}}) as client:
        client.answers["elicitation/create"] = {"action": "accept", "content": {"team": "tea"}}
        refused = await client.call("registry_add", adding)
        (form,) = forms(client)
        assert list(form["requestedSchema"]["properties"]) == ["team"]
        assert form["requestedSchema"]["properties"]["team"]["description"] == "Your team. Such as red"
        assert "mooring secret set both.X-Token" in form["message"]
        assert kind(refused) == "missing_input"
        assert "mooring secret set both.X-Token" in text(refused)
        assert 'settings {"team":"tea"}' in text(refused)
        await running.command("secret", "set", "both.X-Token", stdin=b"hush-hush-1234\n")
        assert not kind(await client.call("registry_add", {**adding, "settings": {"team": "tea"}}))
        assert far.seen[-1].path.endswith("?team=tea")


def forms(client: StdioClient) -> list[dict[str, Any]]:
    """What the client was asked to show, in whichever era."""
    results = [json.loads(line).get("result", {}) for line in client.received]
    asked = [request for result in results for request in result.get("inputRequests", {}).values()]
    return [message["params"] for message in (*client.asked, *asked)]


async def test_settings_come_before_an_approval(running: Daemon) -> None:
    """R33: what a person approves is complete, so that it is what then runs."""
    async with registry(running) as client:
        assert kind(await client.call("registry_add", {"entry_id": "theirs/curious"})) == "missing_input"
        adding = {"entry_id": "theirs/curious", "settings": {"team": "tea"}}
        assert kind(await client.call("registry_add", adding)) == "needs_approval"
        (row,) = await running.mooring.approvals()
        assert row.command[0].endswith("?team=tea")
        await running.mooring.approve(row.id)
        assert not kind(await client.call("registry_add", adding))


async def test_a_secret_comes_from_the_store_and_is_shown_nowhere(running: Daemon, far: RawServer, home: Path) -> None:
    """R33 R38."""
    code, _, err = await running.command("secret", "set", "secret.X-Token", stdin=b"hush-hush-1234\n")
    assert code == 0, err
    async with registry(running) as client:
        added = await client.call("registry_add", {"entry_id": "ours/secret"})
        assert not kind(added), added
        assert far.last("tools/list").headers["x-token"] == "hush-hush-1234"
        (mount,) = (await client.call("registry_active"))["structuredContent"]["mounts"]
        assert mount["environment"] == {"X-Token": "<store secret.X-Token>"}
        assert all(b"hush-hush" not in line for line in client.received)
    assert "hush-hush" not in running.output
    assert b"hush-hush" not in b"".join(file.read_bytes() for file in home.rglob("mooring.db*"))


async def test_variables_can_be_set_and_take_effect(tmp_path: Path) -> None:
    """R25 R38: kept, checked and masked; the server is started anew with them. Commands wait for approval."""
    argv = echo("--era", "legacy")
    allowed = json.dumps([list(argv)])
    home = furnish(tmp_path / "home", "http://127.0.0.1:1/mcp", more=f"[catalog]\ncommands = {allowed}\n")
    async with up(home) as running:
        async with registry(running) as client:
            start = {"command": argv[0], "args": argv[1:], "prefix": "it"}
            assert not kind(await client.call("registry_launch_stdio", start))
            before = text(await client.call("it_pid"))
            refused = await client.call("registry_config_set", {"entry_id": "it", "environment": {"COLOUR": "r3d"}})
            assert kind(refused) == "needs_approval"  # with a variable it is another command
            (row,) = await running.mooring.approvals()
            assert row.command == tuple(argv)
            assert "variable COLOUR=r3d" in row.reach
            await running.mooring.approve(row.id)
            done = await client.call("registry_config_set", {"entry_id": "it", "environment": {"COLOUR": "r3d"}})
            assert not kind(done), done
            assert done["structuredContent"]["environment"] == {"COLOUR": "****"}
            assert text(await client.call("it_pid")) != before
            assert "r3d" in text(await client.call("it_env", {"name": "COLOUR"}))
        await running.mooring.approval_revoke(row.id)
        assert not await running.mooring.active()
    async with up(home) as running:
        assert not await running.mooring.active()


async def test_headers_of_a_remote_can_be_set_by_their_names_only(running: Daemon, far: RawServer) -> None:
    """R38: keys are checked against what the entry declares."""
    async with registry(running) as client:
        await client.call("registry_add", {"entry_id": "ours/free"})
        assert far.last("tools/list").headers["x-colour"] == "red"
        wrong = await client.call("registry_config_set", {"entry_id": "free", "environment": {"COLOR": "blue"}})
        assert (kind(wrong), "X-Colour" in text(wrong)) == ("config", True)
        await client.call("registry_config_set", {"entry_id": "free", "environment": {"X-Colour": "blue"}})
        await client.call("free_echo")
        assert far.last("tools/call").headers["x-colour"] == "blue"


async def test_after_a_restart_what_was_added_serves_again_or_says_why_not(home: Path, far: RawServer) -> None:
    """R37: without any call from outside, also after ``kill -9``; and a prefix that the configuration took waits."""
    async with up(home) as running:
        await running.mooring.add("default", "ours/far")
        running.process.send_signal(signal.SIGKILL)
        await running.ended()
    async with up(home) as running:

        async def asleep() -> bool:  # a look that was cut off is made up for
            (mount,) = await running.mooring.active()
            assert mount.tools == ("echo",)
            return (mount.state, mount.reason) == ("stopped", "asleep; the next call starts it")

        await wait_for(asleep, 10)
        result = await running.mooring.exec("default", "far_echo", {"a": 1})
        assert result["structuredContent"] == {"a": 1}
        written = (home / "mooring.toml").read_text()
        (home / "mooring.toml").write_text(f'{written}[mcp_servers.far]\nurl = "{far.url}"\n')
        await running.mooring.reload()
        (mount,) = await running.mooring.active()
        assert (mount.state, mount.reason) == ("stopped", 'the prefix "far" belongs to far')
        await running.mooring.remove("default", "ours/far")
        (home / "mooring.toml").write_text(written)


@pytest.mark.parametrize("moment", ["add", "remove"])
async def test_a_killed_daemon_leaves_no_half_mount(home: Path, tmp_path: Path, moment: str) -> None:
    """R34 R37: killed while a server starts, or while one ends that does not want to. Both last until the kill, since
    the limits of these steps are longer than the test."""
    stubborn = ["--ignore-term", "--ignore-eof"] if moment == "remove" else ["--start-delay", "600"]
    argv = [*echo(*stubborn)]
    (home / "mooring.toml").write_text(
        (home / "mooring.toml").read_text() + f"[catalog]\ncommands = {json.dumps([argv])}\n"
        'timeouts = { start = "10m", initialize = "10m", close = "10m" }\n'
    )
    start = {"command": argv[0], "args": argv[1:], "prefix": "it"}
    async with up(home) as running, registry(running) as client:
        if moment == "add":
            client.begin("tools/call", call("registry_launch_stdio", **start))
            await wait_for(lambda: servers(running, argv[-1]), LIMIT)
        else:
            assert not kind(await client.call("registry_launch_stdio", start))
            client.begin("tools/call", call("registry_remove", entry_id="it"))
            await wait_for(lambda: nothing_active(running), LIMIT)
        there = servers(running, argv[-1])
        assert there
        running.process.send_signal(signal.SIGKILL)
        await running.ended()
        await wait_for(lambda: not any(process.is_running() for process in there), LIMIT)
    async with up(home) as running:
        assert not await running.mooring.active()


async def nothing_active(running: Daemon) -> bool:
    return not await running.mooring.active()


async def test_an_editor_is_told_once_and_what_else_it_has_stays(running: Daemon, tmp_path: Path) -> None:
    """R40: ``editor="zed"``; written again it changes nothing."""
    file = tmp_path / "user" / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  // mine\n  "theme": "One"\n}\n')
    async with registry(running) as client:
        added = await client.call("registry_add", {"entry_id": "ours/far", "editor": "zed"})
        assert f"Mooring is in {file} now." in text(added)
        written = file.read_text()
        assert '// mine\n  "theme": "One"' in written
        assert '"mooring"' in written
        await client.call("registry_remove", {"entry_id": "ours/far"})
        added = await client.call("registry_add", {"entry_id": "ours/far", "editor": "zed"})
        assert "already" in text(added)
        assert file.read_text() == written


async def test_what_a_key_may_not_call_it_may_not_execute(running: Daemon) -> None:
    """R23 R34: the inner call is what is checked, as if it came by itself."""
    await running.mooring.add("default", "ours/far")
    key = (await running.mooring.key_create("default", tools=["registry_*"])).key
    from mooring.testing import HttpClient

    async with HttpClient(running.endpoint, token=key, timeout=LIMIT) as client:
        await client.open()
        assert kind(await client.call("registry_exec", {"tool_name": "far_echo"})) == "refused"
        assert not kind(await client.call("registry_exec", {"tool_name": "registry_status"}))
        twice = {"tool_name": "registry_exec", "arguments": {"tool_name": "far_echo"}}
        assert kind(await client.call("registry_exec", twice)) == "config"


async def test_the_registry_is_offered_only_where_it_is_wanted(tmp_path: Path, far: RawServer) -> None:
    """R39: and the stdio process says how to turn it on."""
    rooms = "[workspaces.a]\nregistry = true\n[workspaces.b]\n"
    async with up(furnish(tmp_path / "home", far.url, more=rooms)) as running:
        assert {tool.name for tool in await running.mooring.tools("a")} == {f"registry_{name}" for name in TOOLS}
        assert not await running.mooring.tools("b")
        code, _, err = await running.command("registry", "-w", "b")
        assert (code, "registry = true" in err.replace("\n", " ")) == (2, True)
        await running.mooring.add("b", "ours/far")  # a person may, wherever
        assert {tool.name for tool in await running.mooring.tools("b")} == {"far_echo"}
        assert not await running.mooring.active("a")


async def test_the_stdio_process_opens_nothing_once_it_is_attached(running: Daemon, tmp_path: Path) -> None:
    """R34: from the attach line on it only relays between its pipes and the control socket."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (as root on Debian: apt-get install strace)")
    trace = tmp_path / "trace.txt"
    argv = [strace, "-f", "-qq", "-s", "100", "-o", str(trace), sys.executable, "-m", "mooring", "registry"]
    async with StdioClient(argv, env=running.env, timeout=LIMIT) as client:
        await client.open()
        await client.call("registry_add", {"entry_id": "ours/far"})
        await client.call("registry_exec", {"tool_name": "far_echo"})
        await client.close_stdin()
    lines = trace.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if '{\\"attach\\"' in line)
    calls = ("open(", "openat(", "openat2(", "socket(", "connect(", "execve(")
    assert [line for line in lines[at + 1 :] if any(f" {name}" in line for name in calls)] == []
    assert any("AF_UNIX" in line for line in lines[:at])


async def test_an_entry_that_nothing_here_can_start_says_what_is_possible(
    running: Daemon, monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    """R36 R39: without a container engine all else works."""
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    async with up(furnish(tmp_path / "bare", "http://127.0.0.1:1/mcp")) as bare, registry(bare) as client:
        refused = await client.call("registry_add", {"entry_id": "docker/sqlite"})
        assert (kind(refused), "Possible here:" in text(refused)) == ("not_launchable", True)
        assert not kind(await client.call("registry_find", {"query": "sqlite"}))
        assert not kind(await client.call("registry_get_docs", {"entry_id": "docker/sqlite"}))
        assert not kind(await client.call("registry_status"))


async def test_the_rest_of_the_tools_answer(running: Daemon) -> None:
    """R31 R41: lists, docs, status and refresh, with sources and filters that are wrong."""
    async with registry(running) as client:
        listed = await client.call("registry_list", {"source": "ours", "limit": 2})
        assert len(listed["structuredContent"]["results"]) == 2
        every = await client.call("registry_list", {"source": "all", "limit": 100})
        assert len(every["structuredContent"]["results"]) > 50
        wrong = await client.call("registry_find", {"query": "x", "sources": ["mine"]})
        assert (kind(wrong), "ours" in text(wrong)) == ("config", True)
        docs = await client.call("registry_get_docs", {"entry_id": "OURS/secret"})
        assert "Needs: X-Token" in text(docs)
        status = await client.call("registry_status")
        assert {"ours", "theirs", "starter"} <= {row["name"] for row in status["structuredContent"]["sources"]}
        refreshed = await client.call("registry_refresh", {"source": "ours"})
        assert [row["name"] for row in refreshed["structuredContent"]["sources"]] == ["ours"]
        assert kind(await client.call("registry_refresh", {"source": "nobody"})) == "config"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_rules_of_a_workspace_hold_for_what_is_executed(tmp_path: Path, far: RawServer, era: Era) -> None:
    """R23 R34: a tool that is denied is denied by any way, and one that a person has to agree to asks by any way."""
    deny, confirm = '[{ server = "ours.far", tool = "echo" }]', '[{ tool = "odd" }]'
    rules = f"[workspaces.default]\nregistry = true\npolicy = {{ deny = {deny}, confirm = {confirm} }}\n"

    async def odd(it: Exchange, arguments: Any) -> Any:
        return {"content": [{"type": "text", "text": "done"}]}

    far.tools["odd"] = odd
    async with up(furnish(tmp_path / "home", far.url, more=rules)) as running:
        await running.mooring.add("default", "ours/far")
        async with registry(running, era, capabilities={"elicitation": {"form": {}}}) as client:
            assert kind(await client.call("registry_exec", {"tool_name": "far_echo"})) == "refused"
            client.answers["elicitation/create"] = {"action": "decline"}
            assert kind(await client.call("registry_exec", {"tool_name": "far_odd"})) == "declined"
            client.answers["elicitation/create"] = {"action": "accept", "content": {}}
            assert text(await client.call("registry_exec", {"tool_name": "far_odd"})) == "done"
        assert far.methods().count("tools/call") == 1
