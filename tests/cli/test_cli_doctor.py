"""``mooring doctor``: what is wrong, and what to do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.cli import examination
from mooring.testing.authorization import AuthorizationServer
from mooring.testing.daemon import daemon, server
from mooring.testing.signing import Signer

Run = Callable[..., Any]


def findings(result: Any) -> dict[str, dict[str, Any]]:
    """By check; of several with one name the worst."""
    found: dict[str, dict[str, Any]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        assert set(finding) == {"check", "level", "message", "advice"}
        worse = ("ok", "warning", "error").index
        kept = found.setdefault(finding["check"], finding)
        if worse(finding["level"]) > worse(kept["level"]):
            found[finding["check"]] = finding
    return found


def test_a_fresh_installation_is_well(place: Path, run: Run) -> None:
    """Nothing is started, nothing is made; exit 0."""
    result = run("doctor", "--json")
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)
    assert {check: finding["level"] for check, finding in findings(result).items()} == {
        "home": "ok",
        "daemon": "ok",
        "keyring": "ok",
        "config": "ok",
    }
    assert list(place.iterdir()) == []
    assert run("doctor").stdout.startswith("home\tok\t")


def test_each_server_that_cannot_start_is_named_with_the_reason(place: Path, run: Run) -> None:
    """A22, R22: exit 1; missing programs and secrets; what is switched off is left alone."""
    (place / "mooring.toml").write_text(
        '[mcp_servers.a]\ncommand = "no-such-program-here"\n'
        '[mcp_servers.b]\ncommand = "sh"\nsecrets = { T = { store = "t" } }\n'
        '[mcp_servers.c]\ncommand = "no-such-program-here"\nenabled = false\n'
        '[mcp_servers.d]\ncommand = "sh"\n'
    )
    result = run("doctor", "--json")
    assert result.exit_code == 1
    found = findings(result)
    assert "install it" in found["server a"]["message"]
    assert "<store t> is missing; run: mooring secret set t" in found["server b"]["message"]
    assert found["server d"]["level"] == "ok"
    assert "server c" not in found


def test_folders_and_files_that_others_may_use_are_wrong(place: Path, run: Run) -> None:
    run("secret", "set", "t", stdin="hunter2")
    (place / "state" / "secrets.json").chmod(0o644)
    found = findings(run("doctor", "--json"))
    assert found["home"]["advice"] == f"Run: chmod 600 {place / 'state' / 'secrets.json'}"
    (place / "state" / "secrets.json").chmod(0o600)
    place.chmod(0o755)
    assert findings(run("doctor", "--json"))["home"]["level"] == "warning"
    place.chmod(0o777)
    result = run("doctor", "--json")
    assert (result.exit_code, findings(result)["home"]["advice"]) == (1, f"Run: chmod 700 {place}")


@pytest.mark.parametrize("home", ["file/home", "nowhere/home"])
def test_a_home_that_cannot_be_made_is_wrong(home: str, place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").touch()
    (place / "nowhere").symlink_to(place / "absent")
    monkeypatch.setenv("MOORING_HOME", str(place / home))
    result = run("doctor", "--json")
    found = findings(result)["home"]
    assert (result.exit_code, found["level"]) == (1, "error")
    assert f"{(place / home).parent} is not a folder that you can write" in found["message"]
    assert found["advice"] == "Set MOORING_HOME to a folder that you may write."


def test_an_invalid_configuration_is_wrong(place: Path, run: Run) -> None:
    (place / "mooring.toml").write_text("[gateway]\nidle = 1\n")
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert "gateway.idle" in findings(result)["config"]["message"]


def test_a_daemon_that_holds_its_socket_and_says_nothing_is_wrong(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: no answer is an answer too."""
    monkeypatch.setattr(examination, "LIMIT", 0.3)
    (place / "run").mkdir()
    (place / "run" / "daemon.pid").write_text(f"{os.getpid()}\n")
    found = findings(run("doctor", "--json"))
    assert f"process {os.getpid()}" in found["daemon"]["message"]
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place / "run" / "control.sock"))
        silent.listen()
        found = findings(run("doctor", "--json"))
    assert (found["daemon"]["level"], "does not answer" in found["daemon"]["message"]) == ("error", True)


async def test_the_running_daemon_and_its_endpoint_are_seen(place: Path) -> None:
    """A22: which pid, which version, and whether the endpoint answers."""
    async with daemon(place, {"e": server()}) as running:
        code, out, _ = await running.command("doctor", "--json")
        report = json.loads(out)
        messages = {finding["check"]: finding["message"] for finding in report["findings"]}
        assert (code, report["ok"]) == (0, True)
        assert f"pid {running.process.pid}" in messages["daemon"]
        assert messages["endpoint"] == f"{running.endpoint} answers"


async def test_an_issuer_whose_keys_cannot_be_had_is_named_with_the_reason(place: Path, run: Run) -> None:
    async with AuthorizationServer() as guardian:
        guardian.signer = Signer()
        (place / "mooring.toml").write_text(f'[identity.company]\nissuer = "{guardian.issuer}"\n')
        found = findings(await asyncio.to_thread(run, "doctor", "--json"))["identity company"]
        assert (found["level"], found["message"]) == ("ok", f"{guardian.issuer} publishes 1 key")
        guardian.place = "/nowhere"
        found = findings(await asyncio.to_thread(run, "doctor", "--json"))["identity company"]
        assert (found["level"], "publishes no metadata" in found["message"]) == ("error", True)
