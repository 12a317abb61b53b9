"""How servers are opened: eras, secrets, last words; with real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mooring
from mooring.config.logins import LoginPlace
from mooring.config.plan import Variant
from mooring.config.plan_servers import Launch, Remote, SecretRef
from mooring.config.secrets import Secrets
from mooring.facade import Mooring
from mooring.observe.redact import Redactor
from mooring.serve import reload
from mooring.serve.upstream import Place, Upstream
from mooring.testing import wait_for
from mooring.testing.daemon import server, write_config

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


async def test_a_secret_that_cannot_be_had_keeps_no_other_server_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 9: such as from a keyring that waits for its password."""
    monkeypatch.setenv("MY_TOKEN", SECRET)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    go, fetch_all = threading.Event(), Secrets.fetch_all

    def slow(secrets: Secrets, launch: Launch) -> dict[str, str]:
        if "bad" in getattr(launch, "argv", ()):
            go.wait(60)
        return fetch_all(secrets, launch)

    monkeypatch.setattr(Secrets, "fetch_all", slow)
    told = {"secrets": {"TOKEN": {"env": "MY_TOKEN"}}}
    servers = {"bad": server("--name", "bad", timeouts={"look_up": "1s"}, **told), "good": server(**told)}
    try:
        async with mooring.open(room(**servers)) as m, asyncio.timeout(30):
            failed = await m.call("default", "bad_echo")
            assert "timeouts.look_up sets the limit" in text(failed)
            assert (await m.call("default", "good_env"))["structuredContent"]["TOKEN"] == SECRET
    finally:
        go.set()


def test_a_secret_that_cannot_be_had_keeps_no_process_from_ending() -> None:
    """Invariant 4"""
    script = """
import asyncio, time
import mooring
from mooring.config.secrets import Secrets
Secrets.fetch_all = lambda secrets, launch: time.sleep(600)

async def main():
    secret = {"secrets": {"T": {"env": "PATH"}}, "timeouts": {"look_up": "100ms"}}
    async with mooring.open({"mcp_servers": {"a": {"command": "true", **secret}}}) as m:
        print((await m.call("default", "a_x"))["isError"])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n")


async def test_a_configuration_that_cannot_be_read_holds_nothing_up_for_good(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    monkeypatch.setattr(reload, "READ_LIMIT", 0.2)
    file, go, fingerprint = tmp_path / "mooring.toml", threading.Event(), Secrets.fingerprint
    write_config(file, {"a": server(secrets={"TOKEN": {"env": "MY_TOKEN"}})})
    go.set()

    def slow(secrets: Secrets, ref: SecretRef) -> str | None:
        go.wait(60)
        return fingerprint(secrets, ref)

    monkeypatch.setattr(Secrets, "fingerprint", slow)
    async with mooring.open(file) as m, asyncio.timeout(30):
        go.clear()
        try:
            report = await m.reload()
            assert (report.applied, "within 0.2 s" in report.error) == (False, True)
        finally:
            go.set()
        assert (await m.reload()).applied


async def test_a_keyring_that_hangs_at_a_login_holds_up_nobody_else() -> None:
    """It may wait for a person for hours, and be asked at every call."""
    go_on, reads = threading.Event(), 0

    class Hanging(LoginPlace):
        def read(self) -> bytes | None:
            nonlocal reads
            reads += 1
            go_on.wait()
            return b"login"

    try:
        for _ in range(40):  # more than there are threads for all
            place = Place(Hanging("/none", "name", lambda: None), "about")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await place.read()
        async with asyncio.timeout(20):
            await asyncio.to_thread(lambda: None)
        assert reads == 1
    finally:
        go_on.set()


async def test_conversations_of_one_variant_renew_their_login_in_turn() -> None:
    class Source:
        def login(self, variant: str) -> LoginPlace:
            return LoginPlace("/none", variant, lambda: None)

    upstream = Upstream(None, None, None, None, Redactor(), Source())  # type: ignore[arg-type]
    url = "https://far.example/mcp"
    variants = [Variant(id, "far", "{}", "d", Remote(url, auth="oauth")) for id in ("far", "far", "far-1")]
    one, same, other = [await upstream._auth(variant, url) for variant in variants]
    assert one is not None
    assert same is not None
    assert other is not None
    assert one._turn is same._turn is not other._turn
