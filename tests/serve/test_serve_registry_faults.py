"""Servers that misbehave while they are added, and afterwards: each failure says at which step, and what to do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from registry_kit import LIMIT, furnish, kind, registry, text, tools

from mooring.testing import StdioClient, echo, wait_for
from mooring.testing.daemon import Daemon, launched
from mooring.testing.plugins import Site
from raw_http_server import RawServer

NOWHERE = "http://127.0.0.1:1/mcp"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@asynccontextmanager
async def allowing(home: Path, *commands: Sequence[str], timeouts: str = "{}") -> AsyncGenerator[Daemon]:
    """A daemon in which agents may run these commands."""
    more = f"[catalog]\ncommands = {json.dumps([list(argv) for argv in commands])}\ntimeouts = {timeouts}\n"
    async with launched(furnish(home, NOWHERE, more=more)) as running:
        await running.mooring.catalog_refresh(["ours", "theirs"])
        yield running


async def launch(client: StdioClient, argv: Sequence[str], prefix: str = "it") -> dict[str, Any]:
    """``registry_launch_stdio`` with progress."""
    start = {"command": argv[0], "args": list(argv[1:]), "prefix": prefix}
    return await client.call("registry_launch_stdio", start, _meta={"progressToken": "p"})


def messages(client: StdioClient) -> list[str]:
    """What was told as progress."""
    heard = (note for note in client.notifications if note["method"] == "notifications/progress")
    return [note["params"]["message"] for note in heard]


@pytest.mark.parametrize(
    ("flags", "timeouts", "failure", "said"),
    [
        (["--never-answer"], '{ initialize = "1s" }', "timed_out", "initialize within 1 s"),
        (["--hang", "tools/list"], '{ discover = "1s" }', "timed_out", "list its tools within 1 s"),
        (["--start-delay", "600"], '{ start = "1s" }', "start_failed", "within 1 s; it was at the step: "),
        (["--crash-at-start"], "{}", "start_failed", "exited with code 1"),
    ],
    ids=["initialize", "discover", "start", "crash"],
)
async def test_a_server_that_does_not_get_ready_is_not_added(
    tmp_path: Path, flags: list[str], timeouts: str, failure: str, said: str
) -> None:
    """R36: the step and its limit are named, which the configuration sets; nothing is left."""
    argv = echo(*flags)
    async with allowing(tmp_path / "home", argv, timeouts=timeouts) as running, registry(running) as client:
        failed = await launch(client, argv)
        assert (kind(failed), said in text(failed)) == (failure, True), failed
        assert '"command:it" was not added' in text(failed)
        assert failed["_meta"]["mooring/error"]["phase"] in ("initialize", "discover")
        assert not await running.mooring.active()
        assert not await running.rows("command.it")
        assert await tools(client) == set()


def program(folder: Path, name: str, script: str) -> None:
    """A stand-in on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("script", "timeouts", "failure", "said"),
    [
        ("echo no such package >&2; exit 7", "{}", "pull_failed", "npx ended with code 7 and said:\nno such package"),
        (
            "echo getting it >&2; sleep 600",
            '{ pull = "8s" }',
            "start_failed",
            "within 8 s; it was at the step: resolve",
        ),
    ],
    ids=["fails", "hangs"],
)
async def test_a_package_that_cannot_be_had_is_a_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, timeouts: str, failure: str, said: str
) -> None:
    """R36: the installer's words are progress; while it is silent, progress says that it goes on."""
    program(tmp_path / "bin", "npx", script)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path / "bin"), os.environ["PATH"])))
    argv = ("npx", "-y", "acme-mcp")
    async with allowing(tmp_path / "home", argv, timeouts=timeouts) as running, registry(running) as client:
        failed = await launch(client, argv)
        assert (kind(failed), said in text(failed)) == (failure, True), failed
        assert failed["_meta"]["mooring/error"]["phase"] == "resolve"
        assert "resolve" in messages(client)
        if timeouts != "{}":
            assert "getting it" in messages(client)
            assert any(message.startswith("resolve, ") for message in messages(client))
        assert not await running.mooring.active()


async def test_a_tool_whose_name_is_taken_keeps_its_server_out(tmp_path: Path) -> None:
    """R33 R36: a_b_c is b_c of a and c of a_b; the free prefix that is proposed works."""
    one, other = echo("--tool", "b_c"), echo("--tool", "c")
    async with allowing(tmp_path / "home", one, other) as running, registry(running) as client:
        assert not kind(await launch(client, one, "a"))
        refused = await launch(client, other, "a_b")
        assert kind(refused) == "prefix_taken"
        assert "its tool c would be called a_b_c, as one of command.a is" in text(refused)
        assert 'prefix "a_b_2"' in text(refused)
        (mount,) = await running.mooring.active()
        assert mount.prefix == "a"
        assert not await running.rows("command.a_b")
        assert not kind(await launch(client, other, "a_b_2"))
        assert text(await client.call("registry_exec", {"tool_name": "a_b_2_c"})) == '{"tool":"c"}'


async def test_a_server_that_dies_in_a_call_is_named_and_the_next_call_finds_it_again(tmp_path: Path) -> None:
    """R36: exec on a dead server."""
    argv = echo("--crash-in-call")
    async with allowing(tmp_path / "home", argv) as running, registry(running) as client:
        assert not kind(await launch(client, argv))
        failed = await client.call("registry_exec", {"tool_name": "it_echo", "arguments": {}})
        assert kind(failed) == "crashed"
        assert "command.it" in text(failed)


async def test_a_server_that_was_killed_serves_the_next_call(tmp_path: Path) -> None:
    """R36: dead between two calls, which nobody needs to notice."""
    argv = echo()
    async with allowing(tmp_path / "home", argv) as running, registry(running) as client:
        assert not kind(await launch(client, argv))
        (mount,) = await running.mooring.active()
        assert mount.pid is not None
        os.kill(mount.pid, signal.SIGKILL)

        async def noticed() -> bool:
            (now,) = await running.mooring.active()
            return now.state != "ready"

        await wait_for(noticed, LIMIT)
        result = await client.call("registry_exec", {"tool_name": "it_echo", "arguments": {"a": 1}})
        assert kind(result) in ("", "backing_off")
        (now,) = await running.mooring.active()
        assert kind(result) or now.state == "ready"


async def test_a_mount_that_is_not_active_says_why(tmp_path: Path) -> None:
    """R36 R37: in exec, in ``registry_active`` and in what is offered."""
    async with RawServer("legacy") as far, launched(furnish(tmp_path / "home", far.url)) as running:
        await running.mooring.catalog_refresh(["ours"])
        await running.command("secret", "set", "secret.X-Token", stdin=b"hush-hush-1234\n")
        async with registry(running) as client:
            assert not kind(await client.call("registry_add", {"entry_id": "ours/secret"}))
            await running.command("secret", "remove", "secret.X-Token")
            await running.mooring.reload()
            refused = await client.call("registry_exec", {"tool_name": "secret_echo", "arguments": {}})
            (mount,) = (await client.call("registry_active"))["structuredContent"]["mounts"]
            assert "mooring secret set secret.X-Token" in text(refused)
            assert (mount["state"], "X-Token" in mount["reason"]) == ("stopped", True)


BROKEN = """
from mooring.plugins import hookimpl

class Plugin:
    @hookimpl
    def mooring_catalog_sources(self):
        raise RuntimeError("the shelf fell down")
"""


async def test_a_plugin_that_cannot_bring_its_sources_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28 R32: in both statuses, beside the sources that work."""
    site = Site(tmp_path / "site")
    site.install(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mooring.toml").write_text('[gateway]\nlisten = ["127.0.0.1:0"]\n')
    async with launched(tmp_path / "home") as running:
        code, out, err = await running.command("catalog", "status", "--json")
        assert code == 0, err
        (row,) = (row for row in json.loads(out) if row["kind"] == "plugin")
        assert (row["name"], row["state"]) == ("voice of mooring-voice", "failed")
        assert "the shelf fell down" in row["error"]
        async with registry(running) as client:
            assert "the shelf fell down" in text(await client.call("registry_status"))
