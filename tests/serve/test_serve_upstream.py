"""How servers are opened: eras, secrets, last words; with real processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import mooring
from mooring.facade import Mooring
from mooring.testing import wait_for
from mooring.testing.daemon import server

SECRET = "sk-very-secret-4711"


def room(**servers: Any) -> dict[str, Any]:
    return {"mcp_servers": servers}


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def row(m: Mooring, name: str) -> Any:
    return next(row for row in await m.ps() if row.server == name)


@pytest.mark.parametrize("era", ["legacy", "modern", "dual"])
async def test_a_server_of_any_era_answers(era: str) -> None:
    async with mooring.open(room(a=server("--era", era))) as m:
        assert text(await m.call("default", "a_echo", {"x": 1})) == '{"x":1}'
        expected = "legacy" if era == "legacy" else "modern"
        assert (await row(m, "a")).era == expected


async def test_a_server_that_dies_of_the_probe_is_started_again_and_never_probed_after() -> None:
    """A16: version negotiation, the hard way."""
    async with mooring.open(room(a=server("--era", "legacy", "--crash-on", "server/discover"))) as m:
        first = await m.call("default", "a_pid")
        assert "server/discover" not in (await m.call("default", "a_seen"))["structuredContent"]["methods"]
        app = m._control._app  # type: ignore[attr-defined]
        assert app.verdicts.get(app.plan.variants["a"]) == "legacy"
        await m.restart("a")
        assert text(await m.call("default", "a_pid")) != text(first)
        assert (await row(m, "a")).restarts == 0


async def test_a_secret_reaches_its_server_and_no_other_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R22, A6, invariant 1: not in stderr, logs, ps or errors."""
    monkeypatch.setenv("MY_TOKEN", SECRET)
    told = {"secrets": {"TOKEN": {"env": "MY_TOKEN"}}}
    crashing = server("--crash-in-call", **told)
    async with mooring.open(room(a=server(**told), b=crashing)) as m:
        assert (await m.call("default", "a_env"))["structuredContent"]["TOKEN"] == SECRET
        await m.call("default", "a_complain", {"text": f"cannot log in with {SECRET}!"})
        lines = await wait_for(lambda: m.logs("a"))
        assert lines == ["cannot log in with ****!"]
        crashed = await m.call("default", "b_pid", {"x": SECRET})
        assert "last words" in text(crashed)
        seen = repr((await m.ps(), await m.logs("b"), crashed, await m.status()))
        assert SECRET not in seen
        assert SECRET not in caplog.text


async def test_what_a_server_says_while_it_is_started_is_shown_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A6 R22: in JSON-RPC errors, in lists that fail, in stray lines that are cut."""
    monkeypatch.setenv("MY_TOKEN", SECRET)
    refuse = (
        "import json, os, sys\n"
        "token = os.environ['TOKEN']\n"
        "print('x' * 190 + token, flush=True)\n"
        "for line in sys.stdin:\n"
        "    id = json.loads(line).get('id')\n"
        "    error = {'code': -32601 if 'discover' in line else -32000, 'message': f'no access with {token}'}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': id, 'error': error}), flush=True)\n"
    )
    (tmp_path / "it.py").write_text(refuse)
    told = {"secrets": {"TOKEN": {"env": "MY_TOKEN"}}}
    async with mooring.open(room(a={"command": sys.executable, "args": [str(tmp_path / "it.py")], **told})) as m:
        refused = text(await m.call("default", "a_echo"))
        assert "no access with ****" in refused
        seen = repr((await m.ps(), await m.logs("a"), refused))
        assert SECRET[:8] not in seen


async def test_a_missing_secret_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: named, and reported before the start."""
    monkeypatch.delenv("NO_TOKEN", raising=False)
    async with mooring.open(room(a=server(secrets={"T": {"env": "NO_TOKEN"}}), b=server())) as m:
        found = await row(m, "a")
        assert found.state == "stopped"
        assert "NO_TOKEN" in found.reason
        assert text(await m.call("default", "b_echo")) == "{}"


async def test_last_words_of_a_failed_start_are_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A14, R12."""
    monkeypatch.setenv("MY_TOKEN", "cannot start")
    async with mooring.open(room(a=server("--crash-at-start", secrets={"T": {"env": "MY_TOKEN"}}))) as m:
        result = await m.call("default", "a_pid")
        assert result["isError"]
        assert "last words" in text(result)
        assert "cannot start" not in text(result)
        assert "cannot start" not in repr(await m.ps())


async def test_what_a_server_prints_beside_the_protocol_is_found_in_its_log() -> None:
    """A15: stray lines are skipped, and shown to its author."""
    async with mooring.open(room(a=server("--garbage"))) as m:
        await m.call("default", "a_pid")
        assert any("[stdout" in line and "Server is ready!" in line for line in await m.logs("a"))


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found on Linux only")
async def test_ps_counts_processes_and_memory_of_what_runs() -> None:
    """R41: what a server started counts as its own; nothing is counted where nothing runs."""
    async with mooring.open(room(a=server("--spawn-grandchild"), b=server())) as m:
        await m.call("default", "a_pid")
        await wait_for(lambda: _counted(m, "a"))
        ran, asleep = await row(m, "a"), await row(m, "b")
        assert ran.processes == 3
        assert 1_000_000 < ran.memory < 200_000_000
        if asleep.pid is None:
            assert (asleep.processes, asleep.memory) == (None, None)


async def _counted(m: Mooring, name: str) -> bool:
    return (await row(m, name)).processes == 3


async def test_logs_are_followed_line_by_line() -> None:
    import asyncio

    async with mooring.open(room(a=server())) as m:
        heard: list[Any] = []
        await m.call("default", "a_complain", {"text": "one"})
        await wait_for(lambda: m.logs("a"))
        following = asyncio.ensure_future(m.logs("a", follow=True, heard=lambda *said: heard.append(said)))
        await wait_for(lambda: heard)
        await m.call("default", "a_complain", {"text": "two"})
        await wait_for(lambda: len(heard) == 2)
        following.cancel()
        assert heard == [("line", "one"), ("line", "two")]
        assert await m.logs("a", lines=1) == ["two"]
