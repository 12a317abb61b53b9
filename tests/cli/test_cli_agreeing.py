"""``mooring call`` of a tool that a person has to agree to, with somebody at the terminal and without."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, daemon, server

LIMIT = 30.0
ROOM = {"a": {"mcp_servers": ["echo"], "registry": True, "policy": {"confirm": [{"tool": "counter"}]}}}
COUNT = ("call", "echo_counter", '{"note": "hi"}')
INDIRECT = ("call", "registry_exec", '{"tool_name": "mcp_echo_counter", "arguments": {"note": "hi"}}')


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with daemon(tmp_path, {"echo": server()}, ROOM) as started:
        yield started


async def at_terminal(running: Daemon, answer: str, *arguments: str) -> tuple[int, str, str]:
    """Run ``mooring`` with a terminal at stdin and stderr, and answer what it asks: exit code, stdout, terminal."""
    ours, theirs = pty.openpty()
    seen = bytearray()
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def readable() -> None:
        try:
            seen.extend(os.read(ours, 4096))
        except OSError:  # Linux says so when the other end is closed
            loop.remove_reader(ours)
        if b"[y/N]" in seen:
            asked.set()

    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mooring", *arguments),
            env=running.env,
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)
        loop.add_reader(ours, readable)
        async with asyncio.timeout(LIMIT):
            await asked.wait()
            os.write(ours, answer.encode() + b"\n")
            out, _ = await process.communicate()
        await wait_for(lambda: b"\n" in seen, LIMIT)
    finally:
        loop.remove_reader(ours)
        os.close(ours)
    return process.returncode or 0, out.decode(), seen.decode()


async def decisions(running: Daemon) -> list[tuple[str, str]]:
    """What the audit says of calls and answers."""
    rows: list[dict[str, Any]] = []

    async def written() -> bool:
        _, out, _ = await running.command("audit", "--json")
        rows[:] = [json.loads(line) for line in out.splitlines()]
        return any(row["event"] == "call.finished" for row in rows)

    await wait_for(written, LIMIT)
    wanted = [row for row in rows if row["event"] in ("call.finished", "dialogue.answered")]
    return [(row["event"], row.get("decision") or row["data"]["action"]) for row in wanted]


@pytest.mark.parametrize("command", [COUNT, ("exec", *COUNT[1:]), INDIRECT], ids=["call", "exec", "registry_exec"])
async def test_whoever_sits_at_the_terminal_is_asked_and_agrees(running: Daemon, command: tuple[str, ...]) -> None:
    code, out, seen = await at_terminal(running, "y", *command)
    assert (code, out) == (0, "1\n"), seen
    assert f"Allow this call of {command[1]} (server echo)?" in seen
    assert "echo_counter" in seen
    assert '{"note":"hi"}' in seen
    assert (await decisions(running))[-2:] == [("dialogue.answered", "accept"), ("call.finished", "confirmed")]
    result = await running.mooring.call("a", "echo_counter", {"note": "hi"})
    assert result["isError"], "an agreement is for one call"


async def test_whoever_does_not_agree_has_refused_it(running: Daemon) -> None:
    code, out, seen = await at_terminal(running, "n", *COUNT)
    assert (code, out) == (1, "")
    assert "did not agree" in seen
    assert ("call.finished", "confirmed") not in await decisions(running)
    assert (await running.mooring.call("a", "echo_counter", {"note": "hi"}, agreed=True))["content"][0]["text"] == "1"


@pytest.mark.parametrize("command", [COUNT, INDIRECT], ids=["call", "registry_exec"])
async def test_without_a_terminal_it_is_said_what_to_do(running: Daemon, command: tuple[str, ...]) -> None:
    code, out, err = await running.command(*command)
    assert (code, out) == (1, "")
    assert "In a terminal" in err
    assert "needs a person's agreement" in err
    code, out, err = await running.command(*command, "--json")
    assert (code, json.loads(out)["_meta"]["mooring/error"]["kind"]) == (1, "unconfirmed")


async def test_an_agreement_to_a_call_by_another_is_for_that_call(running: Daemon) -> None:
    """The call that ``registry_exec`` stands for is what was agreed to, once."""
    call, exec_ = running.mooring.call, "registry_exec"
    given = {"tool_name": "echo_counter", "arguments": {"note": "hi"}}
    assert (await call("a", exec_, given, agreed=True))["content"][0]["text"] == "1"
    for result in (await call("a", exec_, given), await call("a", "echo_counter", {"note": "hi"})):
        assert result["_meta"]["mooring/error"]["kind"] == "unconfirmed"
    assert (await running.mooring.exec("a", f"mcp_{exec_}", given, agreed=True))["content"][0]["text"] == "2"


async def test_an_agreement_that_came_to_nothing_is_forgotten(running: Daemon) -> None:
    """The call is refused for another reason: the next one is asked about again."""
    arguments = {"note": "hi"}
    for _ in range(2):
        refused = await running.mooring.call("a", "echo_nothing", arguments, agreed=True)
        assert refused["isError"]
    assert (await running.mooring.call("a", "echo_counter", arguments))["isError"]
