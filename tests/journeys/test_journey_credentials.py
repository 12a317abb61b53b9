"""Servers that take credentials, from configuration to tool; and that no secret is found where it does not belong."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import smcp, wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.processes import alive

Start = Callable[..., Awaitable[Daemon]]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def asking(*flags: str, **members: Any) -> dict[str, Any]:
    """An ``[mcp_servers.X]`` table for a server that asks for credentials."""
    command, *args = smcp(*flags)
    return {"command": command, "args": args, "timeouts": {"close": "2s"}, **members}


def kept(folder: Path, name: str, value: str) -> dict[str, str]:
    """A reference to a file that holds the value."""
    file = folder / name
    file.touch(0o600)
    file.write_text(value, "utf-8")
    return {"file": str(file)}


async def told(running: Daemon, tool: str, **arguments: Any) -> dict[str, Any]:
    return await running.mooring.call("w", tool, arguments)


def text(result: dict[str, Any]) -> str:
    assert result["isError"]
    return result["content"][0]["text"]


@pytest.mark.parametrize("mode", ["text", "binary"])
async def test_credentials_reach_the_server_before_its_first_message(start: Start, tmp_path: Path, mode: str) -> None:
    """A1 A2 A4 A6: with an empty table too; which keys were sent is in the log, their values are not."""
    credentials = {"DB_PASS": kept(tmp_path, "pass", 'päss"\nword'), "BLOB": kept(tmp_path, "blob", "b" * 100_000)}
    running = await start(
        {
            "ledger": asking("--mode", mode, "--early", "--pause", "0.001", credentials=credentials),
            "empty": asking("--mode", mode, credentials={}),
            "plain": server(),
        }
    )
    given = (await told(running, "ledger_credentials"))["structuredContent"]
    assert given == {"DB_PASS": 'päss"\nword', "BLOB": "b" * 100_000}
    assert (await told(running, "empty_credentials"))["structuredContent"] == {}
    assert (await told(running, "plain_echo", x=1))["structuredContent"] == {"x": 1}
    assert "credentials.sent server=ledger" in running.output
    assert "DB_PASS" in running.output
    assert "bbbb" not in running.output
    assert "credentials.sent server=plain" not in running.output


async def test_a_rotated_credential_is_another_instance(start: Start, tmp_path: Path) -> None:
    """A1 A21: the new value makes a new process, the old one drains."""
    credentials = {"KEY": kept(tmp_path, "key", "old-value")}
    running = await start({"ledger": asking(credentials=credentials)})
    assert (await told(running, "ledger_credentials"))["structuredContent"] == {"KEY": "old-value"}
    before = (await running.rows("ledger"))[0].pid
    assert before
    kept(tmp_path, "key", "new-value")
    assert "ledger" in (await running.mooring.reload()).changed
    assert (await told(running, "ledger_credentials"))["structuredContent"] == {"KEY": "new-value"}
    assert {row.pid for row in await running.rows("ledger")} - {None, before}
    await wait_for(lambda: not alive(before), 20)


async def test_equal_servers_with_different_credentials_are_two(start: Start, tmp_path: Path) -> None:
    """A21: the same command registered twice."""
    running = await start(
        {name: asking(credentials={"KEY": kept(tmp_path, name, name)}) for name in ("first", "second")}
    )
    for name in ("first", "second"):
        assert (await told(running, f"{name}_credentials"))["structuredContent"] == {"KEY": name}
    assert len({(await running.rows(name))[0].pid for name in ("first", "second")}) == 2


async def test_the_wrong_kind_of_server_is_named_and_hurts_nobody(start: Start) -> None:
    """A5 A11: plain as SMCP, SMCP as plain, noise before +READY; the others answer meanwhile."""
    limits = {"ready": "1s", "close": "1s"}
    running = await start(
        {
            "silent": server(credentials={}, timeouts=limits),
            "smcp": asking(),
            "noisy": asking("--trouble", "banner", credentials={}),
            "refusing": asking("--refuse", "account is locked", credentials={}),
            "good": server(),
        }
    )
    assert (await told(running, "good_echo", x=1))["structuredContent"] == {"x": 1}

    async def reason(name: str) -> str:
        rows = await running.rows(name)
        return rows[0].reason if rows[0].state == "backoff" and rows[0].pid is None else ""

    silent, mistaken, noisy, refusing = [
        await wait_for(partial(reason, name), 30) for name in ("silent", "smcp", "noisy", "refusing")
    ]
    assert "did not say +READY within 1 s (timeouts.ready); a plain MCP server waits for its client" in silent
    assert '"smcp" asks for credentials (+READY): it is an SMCP server' in mistaken
    assert "credentials = {}" in mistaken
    assert "printed Welcome to the ledger 2.0! before +READY" in noisy
    assert "refused its credentials: account is locked" in refusing
    assert "account is locked" in text(await told(running, "refusing_echo"))


async def test_a_server_that_waits_for_its_credentials_is_at_that_step(start: Start) -> None:
    """A3: ps names the step and the process."""
    running = await start({"slow": asking("--trouble", "mute", credentials={})})

    async def waiting() -> bool:
        rows = await running.rows("slow")
        return rows[0].reason == "credentials" and rows[0].pid is not None

    async def failed() -> bool:
        return (await running.rows("slow"))[0].state == "backoff"

    await wait_for(waiting, 30)  # at its first look
    await wait_for(failed, 30)
    assert "did not answer its credentials within 5 s (timeouts.credentials)" in (await running.rows("slow"))[0].reason


async def test_servers_of_an_smcp_config_work_once_they_are_imported(start: Start, tmp_path: Path) -> None:
    """A1 A10: also one without credentials."""
    running = await start({})
    command, *args = smcp("--mode", "text")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "smcp_config": [
                    {"name": "ledger", "command": command, "args": args, "credentials": {"DB_PASS": "imported"}},
                    {"name": "bare", "command": command, "args": args},
                ]
            }
        )
    )
    code, _, errors = await running.command("import", str(tmp_path / "config.json"), "--write")
    assert (code, errors) == (0, "")
    assert "imported" not in (running.home / "mooring.toml").read_text()
    await running.mooring.reload()
    assert (await told(running, "ledger_credentials"))["structuredContent"] == {"DB_PASS": "imported"}
    assert (await told(running, "bare_credentials"))["structuredContent"] == {}


RAW_LOG = """
import logging
logging.basicConfig(filename={file!r}, level=1, format="%(name)s %(message)s %(args)s")
logging.Logger.setLevel = lambda self, level: None
"""
"""Everything that is logged at any level by anyone, before any redaction."""


def holders(*values: str) -> dict[str, set[int]]:
    """Whose environment or command line has one of these values."""
    found: dict[str, set[int]] = {"environ": set(), "cmdline": set()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for place, pids in found.items():
            try:
                content = (entry / place).read_bytes()
            except OSError:
                continue
            if any(value.encode() in content for value in values):
                pids.add(int(entry.name))
    return found


@pytest.mark.slow
async def test_no_secret_is_found_anywhere_but_where_it_belongs(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6 R22 A3, invariant 1: in no environment, command line, log, state file, error, list or last word; servers that
    repeat what they were told included."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(RAW_LOG.format(file=str(tmp_path / "raw.log")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    credential, ordinary = (f"sk-{secrets.token_hex(16)}" for _ in range(2))
    long = "".join(secrets.token_hex(16) for _ in range(3200))
    (tmp_path / "vault").mkdir()
    given = {"KEY": kept(tmp_path / "vault", "credential", credential), "BLOB": kept(tmp_path / "vault", "blob", long)}
    token = {"TOKEN": kept(tmp_path / "vault", "token", ordinary)}
    crash = "import os, sys; sys.exit(f'cannot start with {dict(os.environ)}')"
    servers = {
        "ledger": asking(credentials=given),
        "gossip": asking("--trouble", "gossip", credentials=given),
        "failing": asking("--trouble", "gossip", "--crash-on", "initialize", "--era", "legacy", credentials=given),
        "echoing": asking("--trouble", "echo", credentials=given),
        "dying": asking("--trouble", "exit-after", credentials=given),
        "refusing": asking("--refuse", "I do not like $KEY, nor $BLOB", credentials=given),
        "mute": asking("--trouble", "mute", credentials=given, timeouts={"credentials": "10s", "close": "1s"}),
        "plain": server(secrets=token),
        "broken": {"command": sys.executable, "args": ["-c", crash], "secrets": token},
    }
    running = await start(servers)
    seen: list[str] = []

    def look() -> None:
        found = holders(credential, long[:64])
        assert found == {"environ": set(), "cmdline": set()}
        found = holders(ordinary)
        assert found["cmdline"] == set()
        for pid in found["environ"]:
            with suppress(FileNotFoundError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                assert "mooring.testing.echo" in command or "cannot start with" in command

    async def holding() -> bool:
        return (await running.rows("mute"))[0].reason == "credentials"

    await wait_for(holding, 30)  # at its first look; it has them and says nothing
    look()
    assert (await told(running, "ledger_credentials"))["structuredContent"] == {"KEY": credential, "BLOB": long}
    assert (await told(running, "plain_env"))["structuredContent"]["TOKEN"] == ordinary
    plain = (await running.rows("plain"))[0].pid
    assert ordinary.encode() in Path(f"/proc/{plain}/environ").read_bytes()
    look()
    for name in servers:
        result = await told(running, f"{name}_crash", code=3)
        seen.append(json.dumps(result))
        if name not in ("ledger", "gossip", "plain"):
            assert f"{name}" in text(result)
    look()
    for words in (
        ["ps", "--json"],
        ["ps"],
        ["check", "--json"],
        ["check", "--probe", "--json"],
        ["doctor", "--json"],
        ["tools", "--json"],
        ["server", "show", "ledger", "--json"],
        ["server", "show", "plain"],
        *(["logs", name, "-n", "1000"] for name in servers),
        *(["call", f"{name}_echo", "{}"] for name in ("refusing", "broken")),
        *(["server", "test", name] for name in ("gossip", "echoing", "dying", "broken")),
    ):
        seen += (str(words), *map(str, await running.command(*words)))
    shown = "\n".join(seen)
    assert "****" in shown  # there was something to hide
    assert "credentials.sent" in (tmp_path / "raw.log").read_text("utf-8", "replace")
    files = [file for root in (running.home, tmp_path) for file in root.rglob("*") if file.is_file()]
    for file in files:
        if file.parent.name != "vault":
            shown += f"\n{file}:\n" + file.read_bytes().decode("utf-8", "replace")
    leaks = [shown[max(0, at - 300) : at + 60] for at in _places(shown, credential, ordinary, long)]
    assert leaks == []


def _places(shown: str, *values: str) -> list[int]:
    """Where a good part of a value begins to be seen."""
    parts = [value[start : start + 16] for value in values for start in range(0, len(value) - 15, 16)]
    return [shown.index(part) for part in parts if part in shown]
