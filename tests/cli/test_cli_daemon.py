"""Verbs that need the daemon, as real processes in front of a real one."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from mooring.cli.env import merged
from mooring.testing import StdioClient, wait_for
from mooring.testing.daemon import Daemon, daemon, server, write_config
from mooring.testing.processes import alive

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
async def running(place: Path) -> AsyncGenerator[Daemon]:
    servers = {"e": server("--era", "legacy"), "lost": {"command": "no-such-program-here"}}
    async with daemon(place, servers) as started:
        yield started


async def succeeds(running: Daemon, *words: str, stdin: bytes = b"") -> Any:
    """Run a verb with ``--json``; its data."""
    code, out, err = await running.command(*words, "--json", stdin=stdin)
    assert code == 0, err
    return json.loads(out)


async def test_ps_and_tools_have_their_shapes(running: Daemon) -> None:
    """A22: status, golden shapes; what is missing is named on stderr."""
    tools = await succeeds(running, "tools")
    (echo,) = [tool for tool in tools if tool["name"] == "e_echo"]
    assert echo == {
        "name": "e_echo",
        "server": "e",
        "upstream": "echo",
        "description": ANY,
        "input_schema": ANY,
        "output_schema": None,
        "annotations": {},
    }
    rows = {row["server"]: row for row in await succeeds(running, "ps")}
    assert rows["e"] == {
        "server": "e",
        "variant": "e",
        "state": "ready",
        "scope": "",
        "reason": "",
        "pid": ANY,
        "container": None,
        "instance": ANY,
        "era": "legacy",
        "uptime": ANY,
        "idle": ANY,
        "leases": 0,
        "workspaces": ["w"],
        "tools": len(tools),
        "unlisted": "",
        "restarts": 0,
        "retry_at": None,
        "exit_code": None,
        "memory": ANY,
        "processes": ANY,
        "dialogue": ANY,
        "denied": [],
        "unapproved": 0,
        "last_error": "",
        "stderr": "",
    }
    assert "no-such-program-here" in rows["lost"]["last_error"]
    code, out, err = await running.command("tools", "--no-spawn")
    assert (code, out.splitlines()[0].split("\t")[:2]) == (0, ["e_echo", "e"])
    assert "not listed: lost" in err


async def test_call_prints_the_result_and_exits_as_the_tool_did(running: Daemon) -> None:
    """Exit 0, 1 when the tool failed, 2 for arguments that are none; errors on stderr."""
    result = await succeeds(running, "call", "e_echo", "-", stdin=b'{"text": "hi"}')
    assert result == {"content": [{"type": "text", "text": ANY}], "structuredContent": {"text": "hi"}}
    assert await running.command("call", "e_echo", '{"text":"hi"}') == (0, '{"text":"hi"}\n', "")
    assert await running.command("call", "e_error") == (1, "", "it went wrong\n")
    code, out, _ = await running.command("call", "e_error", "--json")
    assert (code, json.loads(out)["isError"]) == (1, True)
    code, out, err = await running.command("call", "e_unknown")
    assert (code, out, bool(err)) == (1, "", True)
    code, out, err = await running.command("call", "e_echo", "[1]")
    assert (code, out, "JSON object" in err) == (2, "", True)
    code, out, err = await running.command("call", "e_echo", "-w", "nobody")
    assert (code, 'no workspace "nobody"' in err) == (2, True)


async def test_keys_are_made_listed_rotated_and_revoked(running: Daemon) -> None:
    """A22: the value is shown once; the list never has it."""
    made = await succeeds(running, "key", "create", "w", "--name", "n", "--expires", "30d", "--tools", "e_*")
    assert made == {"key": ANY, "id": ANY, "workspace": "w"}
    (row,) = [row for row in await succeeds(running, "key", "list") if row["name"] == "n"]
    assert row == {
        "id": made["id"],
        "workspace": "w",
        "name": "n",
        "created_at": ANY,
        "expires_at": ANY,
        "scopes": ["call", "list"],
        "variant": None,
        "tools": ["e_*"],
        "revoked": False,
        "inert": "",
    }
    rotated = await succeeds(running, "key", "rotate", made["id"])
    assert (rotated["id"], rotated["key"] != made["key"]) == (made["id"], True)
    assert await running.command("key", "revoke", made["id"]) == (0, "", "")
    code, out, _ = await running.command("key", "list", "w")
    assert code == 0
    assert made["key"] not in out
    assert rotated["key"] not in out
    assert (await running.command("key", "revoke", "k_nothing"))[0] == 2
    assert (await running.command("key", "create", "w", "--expires", "soon"))[0] == 2


async def test_a_key_for_a_workspace_that_is_not_there_says_how_to_name_one(running: Daemon) -> None:
    """Where the workspace is an argument, it is not called -w; a misspelt one is no empty list."""
    code, out, err = await running.command("key", "create", "nobody")
    assert (code, out, "Name one: mooring key create WORKSPACE" in err) == (2, "", True)
    code, out, err = await running.command("key", "list", "nobody")
    assert (code, out, 'no workspace "nobody"' in err) == (2, "", True)


async def test_a_key_in_the_place_of_its_id_is_not_repeated(running: Daemon) -> None:
    """R22."""
    for verb in ("rotate", "revoke"):
        code, out, err = await running.command("key", verb, "mrg_abcdefgh")
        assert (code, out, "abcdefgh" in err, "mooring key list" in err) == (2, "", False, True)


async def test_arguments_that_are_not_utf_8_are_refused_in_words(running: Daemon) -> None:
    """On the command line and on stdin."""
    broken = b'{"x": "\xff"}'
    for words, stdin in (((os.fsdecode(broken),), b""), (("-",), broken)):
        code, out, err = await running.command("call", "e_echo", *words, stdin=stdin)
        assert (code, out, "not UTF-8" in err, "Traceback" in err) == (2, "", True, False)


async def test_an_approval_to_revoke_has_to_be_named(running: Daemon) -> None:
    code, out, err = await running.command("approve", "revoke")
    assert (code, out, "approve revoke ID" in err) == (2, "", True)


async def test_a_person_says_yes_or_no_to_what_an_agent_wants_to_run_or_is_told_how(place: Path) -> None:
    """With nobody at stdin it stays as it is."""
    async with daemon(place, {}, {"w": {"registry": True}}) as running:
        async with StdioClient([sys.executable, "-m", "mooring", "registry", "-w", "w"], env=running.env) as agent:
            await agent.open()
            wanted = {"command": "sleep", "args": ["600"], "prefix": "z"}
            assert (await agent.call("registry_launch_stdio", wanted))["isError"]
        (wish,) = await succeeds(running, "approve", "list")
        code, out, err = await running.command("approve", wish["id"])
        assert (code, "sleep 600" in out, "--yes" in err) == (2, True, True)
        code, _, err = await running.command("approve", wish["id"], stdin=b"n\n")
        assert (code, "--yes" in err) == (1, False)
        assert not (await succeeds(running, "approve", "list"))[0]["approved_at"]
        code, out, _ = await running.command("approve", wish["id"], stdin=b"y\n")
        assert (code, "Approved" in out) == (0, True)


async def test_env_gives_a_key_of_its_own_and_ends_the_one_before(running: Daemon) -> None:
    """R22: to a private file, atomically, next to what is there; then the key is printed nowhere."""
    first = await succeeds(running, "env")
    assert first == {"MOORING_URL": running.endpoint, "MOORING_API_KEY": ANY}
    file = running.home / "app.env"
    file.write_text("OTHER=1\nMOORING_API_KEY=old\n")
    made = await succeeds(running, "env", "-w", "w", "--file", str(file))
    assert made == {"file": str(file), "id": ANY, "workspace": "w"}
    other, key, url = file.read_text().splitlines()
    assert (other, url) == ("OTHER=1", f"MOORING_URL={running.endpoint}")
    assert key.startswith("MOORING_API_KEY=mrg_")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = [(row["id"], row["revoked"]) for row in await succeeds(running, "key", "list") if row["name"] == "env"]
    assert [id for id, revoked in keys if not revoked] == [made["id"]]
    assert len(keys) == 2
    code, out, err = await running.command("env", "--file", str(running.home / "nowhere" / "x"))
    assert (code, out, "there is no folder" in err) == (2, "", True)


def test_an_env_file_keeps_what_else_is_in_it() -> None:
    text = "# mine\nexport MOORING_URL=old\nMOORING_URL_2=x\n\nMOORING_URL=twice"
    assert merged(text, {"MOORING_URL": "new", "B": "2"}) == "# mine\nexport MOORING_URL=new\nMOORING_URL_2=x\n\nB=2\n"
    assert merged("", {"A": "1"}) == "A=1\n"
    assert merged("\ufeffA=0\n", {"A": "1"}) == "A=1\n"


async def test_logs_have_what_a_server_wrote(running: Daemon) -> None:
    """Plain, as JSON, and followed line by line until interrupted."""
    await running.command("call", "e_complain", '{"text": "one"}')
    assert await succeeds(running, "logs", "e") == ["one"]
    assert await running.command("logs", "e", "-n", "1") == (0, "one\n", "")
    assert (await running.command("logs", "e", "-n", "-1"))[0] == 2
    assert (await running.command("logs", "nobody"))[0] == 2
    follower = await _follow(running)
    try:
        assert json.loads(await follower.stdout.readline()) == "one"
        await running.command("call", "e_complain", '{"text": "two"}')
        assert json.loads(await follower.stdout.readline()) == "two"
        follower.send_signal(signal.SIGINT)
        assert await follower.wait() == 0
    finally:
        if follower.returncode is None:
            follower.kill()
            await follower.wait()


async def _follow(running: Daemon) -> Any:
    import asyncio
    import sys

    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", "logs", "e", "--follow", "--json"),
        env=running.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def test_reload_says_what_changed_and_refuses_what_is_wrong(running: Daemon) -> None:
    """A22: reload; exit 2 with file and key path when it is not valid, and nothing is changed."""
    file = running.home / "mooring.toml"
    write_config(file, {"e": server("--era", "legacy"), "f": server()})
    report = await succeeds(running, "reload")
    assert set(report) == {"applied", "added", "removed", "changed", "needs_restart", "error"}
    assert report["applied"]
    file.write_text("[gateway]\nidle = 1\n")
    code, out, err = await running.command("reload", "--json")
    assert (code, json.loads(out)["applied"]) == (2, False)
    assert "gateway.idle" in err
    assert {row["server"] for row in await succeeds(running, "ps")} == {"e", "f"}
    code, out, err = await running.command("doctor", "--json")
    wrong = [finding["check"] for finding in json.loads(out)["findings"] if finding["level"] == "error"]
    assert (code, wrong) == (1, ["daemon", "config"])


async def test_an_edit_reaches_the_running_daemon_before_the_verb_ends(running: Daemon) -> None:
    """A22: what was added can be used by the next command."""
    assert (await running.command("server", "add", "new", "--", *server()["args"]))[0] == 0
    assert "new" in {row["server"] for row in await succeeds(running, "ps")}
    assert (await running.command("server", "remove", "new"))[0] == 0
    assert "new" not in {row["server"] for row in await succeeds(running, "ps")}


async def test_restart_and_stop(running: Daemon) -> None:
    """Silent when piped; stop returns when the daemon has ended."""
    await running.command("call", "e_pid")
    assert await running.command("restart", "e") == (0, "", "")
    assert (await running.command("restart", "nobody"))[0] == 2
    assert await running.command("stop") == (0, "", "")
    assert await running.ended() == 0
    code, out, err = await running.command("stop")
    assert (code, out, "not running" in err) == (3, "", True)


def test_without_a_daemon_no_spawn_exits_3(place: Path, command: Command) -> None:
    """Exit 3, and how to start one."""
    for words in (("ps",), ("tools",), ("call", "x"), ("logs", "x"), ("key", "list"), ("env",), ("restart", "x")):
        done = command(*words, "--no-spawn")
        assert (done.returncode, done.stdout) == (3, ""), words
        assert "mooring up" in done.stderr
    assert command("reload").returncode == 3


async def test_a_verb_starts_the_daemon_it_needs(place: Path, command: Command) -> None:
    """A22: ``mooring tools`` on a fresh installation; the daemon outlives the verb until ``mooring stop``."""
    write_config(place / "mooring.toml", {"e": server()})
    done = command("tools", "--json")
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert "e_echo" in [tool["name"] for tool in json.loads(done.stdout)]
        pid = int((place / "run" / "daemon.pid").read_text())
        assert alive(pid)
    finally:
        assert command("stop").returncode == 0
    await wait_for(lambda: not alive(pid), 10)


def test_a_daemon_that_cannot_start_says_why(place: Path, command: Command) -> None:
    """Exit 3 with the daemon's own words, such as file and line of an invalid configuration."""
    (place / "mooring.toml").write_text("[gateway]\nidle = 1\n")
    done = command("ps")
    assert (done.returncode, done.stdout) == (3, "")
    assert "gateway.idle" in done.stderr


@pytest.mark.parametrize(
    ("folder", "advice"), [("file/home", "a folder that you may write"), ("x" * 110, "a shorter path")]
)
def test_a_home_that_cannot_be_used_is_said_in_words(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch, folder: str, advice: str
) -> None:
    """By the daemon itself, and by the verb that starts it."""
    (place / "file").touch()
    home = place / folder
    with suppress(NotADirectoryError):
        home.mkdir()
        (home / "mooring.toml").write_text('[gateway]\nlisten = ["127.0.0.1:0"]\n')
    monkeypatch.setenv("MOORING_HOME", str(home))
    for verb in ("up", "ps"):
        done = command(verb)
        assert (done.returncode != 0, done.stdout) == (True, "")
        assert "cannot be made" in done.stderr
        assert advice in done.stderr
        assert "Traceback" not in done.stderr


async def test_a_call_whose_server_lacks_its_program_exits_4(place: Path) -> None:
    """A22: a server that is listed already, and whose program has gone since."""
    program = place / "runs"
    program.write_text(f'#!/bin/sh\nexec {server()["command"]} "$@"\n')
    program.chmod(0o700)
    async with daemon(place, {"e": server(command=str(program), idle_timeout="200ms")}) as running:
        assert (await running.command("call", "e_echo", '{"a": 1}'))[0] == 0

        async def stopped() -> bool:
            return [row.state for row in await running.rows("e")] == ["stopped"]

        await wait_for(stopped, 10)
        program.unlink()
        told: list[str] = []
        while not any("e is not available" in err for err in told):  # it backs off, for longer each time
            code, out, err = await running.command("call", "e_echo", '{"a": 1}')
            assert (code, out, str(program) in err) == (4, "", True)
            told.append(err)
        assert ".;" not in "".join(told)
