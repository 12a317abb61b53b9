"""``mooring check --probe``: SMCP servers are asked which credentials they know; real processes, no daemon."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.cli import probing
from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Timeouts
from mooring.serve.starter import kind
from mooring.testing import smcp
from mooring.testing.daemon import write_config

Run = Callable[..., Any]
SECRET = "sk-probe-4711"


def asked(*flags: str, **members: Any) -> dict[str, Any]:
    command, *args = smcp(*flags)
    return {"command": command, "args": args, **members}


def env(*names: str) -> dict[str, Any]:
    return {name: {"env": name} for name in names}


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB_PASS", "DB_USR", "TOKEN"):
        monkeypatch.setenv(name, SECRET)


def test_the_configured_keys_are_compared_with_those_the_server_knows(place: Path, run: Run, values: None) -> None:
    """A9: what is missing is an error with its place, what is unknown a warning with a guess."""
    flags = ("--require", "DB_HOST", "--require", "DB_PASS", "--accept", "DB_USER", "--accept", "LOG_LEVEL")
    ledger = asked(*flags, credentials=env("DB_PASS", "DB_USR"))
    write_config(place / "mooring.toml", {"ledger": ledger, "good": asked(credentials={})})
    result = run("check", "--probe", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (2, False)
    probes = {row["server"]: row for row in report["probes"]}
    assert probes["ledger"] == {
        "variant": "ledger",
        "server": "ledger",
        "required": {"DB_HOST": "needed", "DB_PASS": "needed"},
        "optional": {"DB_USER": "useful", "LOG_LEVEL": "useful"},
        "missing": ["DB_HOST"],
        "unknown": ["DB_USR"],
        "error": "",
    }
    assert (probes["good"]["missing"], probes["good"]["unknown"], probes["good"]["error"]) == ([], [], "")
    said = {problem["path"]: (problem["level"], problem["message"]) for problem in report["problems"]}
    assert said == {
        "mcp_servers.ledger.credentials": ("error", '"ledger" needs the credential DB_HOST (needed)'),
        "mcp_servers.ledger.credentials.DB_USR": (
            "warning",
            '"ledger" knows no credential DB_USR (did you mean "DB_USER"?)',
        ),
    }
    assert all(problem["line"] for problem in report["problems"])
    assert SECRET not in result.output
    text = run("check", "--probe")
    assert text.exit_code == 2
    assert "probe\tledger\tDB_HOST, DB_PASS\tDB_USER, LOG_LEVEL\tDB_HOST\tDB_USR" in text.stdout
    assert SECRET not in text.output
    assert run("check").exit_code == 0
    assert not (place / "run").exists()


def test_credentials_are_shown_as_references_and_an_smcp_server_without_any_as_one(
    place: Path, run: Run, values: None
) -> None:
    """A1 A6"""
    write_config(
        place / "mooring.toml", {"a": asked(credentials=env("DB_PASS")), "b": asked(credentials={}), "c": asked()}
    )
    result = run("check", "--json")
    rows = {row["server"]: row["credentials"] for row in json.loads(result.stdout)["variants"]}
    assert rows == {"a": {"DB_PASS": "<env DB_PASS>"}, "b": {}, "c": None}
    lines = {line.split("\t")[1]: line.split("\t")[5] for line in run("check").stdout.splitlines() if "server" in line}
    assert lines == {"a": "DB_PASS=<env DB_PASS>", "b": "none", "c": ""}


def test_what_is_asked_gets_no_secret_and_is_gone_afterwards(
    place: Path, run: Run, values: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6 A7 A9: neither credentials nor secrets; the daemon's own environment neither."""
    monkeypatch.setenv("UNRELATED", SECRET)
    code = f"import json, os, sys; open({str(tmp_path / 'seen')!r}, 'w').write(repr([sys.argv, dict(os.environ)]))"
    write_config(
        place / "mooring.toml",
        {
            "curious": {
                "command": sys.executable,
                "args": ["-c", f"{code}; print(json.dumps({{'required': {{}}}}, indent=2))"],
                "env": {"PLAIN": "here"},
                "secrets": env("TOKEN"),
                "credentials": env("DB_PASS"),
            }
        },
    )
    result = run("check", "--probe", "--json")
    assert json.loads(result.stdout)["probes"][0]["unknown"] == ["DB_PASS"]
    seen = (tmp_path / "seen").read_text()
    assert "'--credentials-schema'" in seen
    assert "'PLAIN': 'here'" in seen
    assert SECRET not in seen


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print('+READY', flush=True); input()", "it does not know --credentials-schema; it said: Traceback"),
        ("print('hello')", "it printed no schema for --credentials-schema"),
        ("print('{\"required\": [1]}')", "it printed no schema"),
        ("import sys; sys.exit('no database')", "it printed no schema for --credentials-schema; it said: no database"),
        ("import time; time.sleep(600)", "it did not answer --credentials-schema within 0.5 s (timeouts.ready)"),
        ("while True: print('x' * 65536)", "it printed no schema"),
    ],
)
def test_a_server_that_does_not_answer_is_a_warning(place: Path, run: Run, code: str, says: str) -> None:
    """A9: bounded, and nothing else suffers."""
    limits = {"ready": 0.5 if "600" in code else 20, "close": 0.4}
    silent = {"command": sys.executable, "args": ["-c", code], "credentials": {}, "timeouts": limits}
    write_config(place / "mooring.toml", {"silent": silent, "good": asked(credentials={})})
    began = time.monotonic()
    result = run("check", "--probe", "--json")
    assert time.monotonic() - began < 20
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    rows = {row["server"]: row["error"] for row in report["probes"]}
    assert rows["good"] == ""
    assert rows["silent"].startswith(says)
    (problem,) = report["problems"]
    assert (problem["level"], problem["path"]) == ("warning", "mcp_servers.silent.credentials")
    assert problem["message"].startswith(f'"silent" was not compared: {says}')


def test_a_missing_program_is_a_warning_of_the_probe(place: Path, run: Run) -> None:
    write_config(place / "mooring.toml", {"none": {"command": "no-such-smcp-server", "credentials": {}}})
    report = json.loads(run("check", "--probe", "--json").stdout)
    assert '"no-such-smcp-server" was not found' in report["probes"][0]["error"]


def test_only_enabled_smcp_servers_are_asked(place: Path, run: Run) -> None:
    """Also those with a missing secret: the keys can be compared."""
    servers = {
        "plain": asked(),
        "off": asked(credentials={}, enabled=False),
        "poor": asked("--require", "A", credentials=env("NO_SUCH_VARIABLE")),
    }
    write_config(place / "mooring.toml", servers)
    report = json.loads(run("check", "--probe", "--json").stdout)
    assert [row["server"] for row in report["probes"]] == ["poor"]
    assert report["probes"][0]["missing"] == ["A"]


def test_variants_of_one_server_say_the_same_once(place: Path, run: Run) -> None:
    servers = {"s": asked("--require", "A", credentials={})}
    spaces = {"a": {"mcp_servers": ["s"]}, "b": {"mcp_servers": ["s"], "mcp": {"s": {"name": "other"}}}}
    write_config(place / "mooring.toml", servers, spaces)
    report = json.loads(run("check", "--probe", "--json").stdout)
    assert [row["missing"] for row in report["probes"]] == [["A"], ["A"]]
    assert len(report["problems"]) == 1


async def test_what_cannot_be_got_in_time_is_a_warning_too() -> None:
    """It used to end the whole check without a word."""

    class Slow:
        kinds = ("process",)

        async def prepare(self, *_: object) -> None:
            await asyncio.get_running_loop().create_future()

        def launch(self, *_: object) -> None:
            raise AssertionError("there is nothing to launch")

    variant = Variant("v", "v", "{}", "", Process(("x",)), timeouts=Timeouts(pull=0.01))
    launchers: Any = {kind(variant): Slow()}
    row = await probing._probe(variant, launchers, asyncio.Semaphore(1))
    assert row.error == "it could not be got within 0.01 s (timeouts.pull)"
