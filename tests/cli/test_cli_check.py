"""``mooring check``: the plan, before anything is started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from mooring.cli import configured
from mooring.config.home import Home
from mooring.nouns import Facts, Item, Listing
from mooring.relay.listings import Listings
from mooring.store.sqlite import SqliteStore
from mooring.testing.daemon import server, write_config

Run = Callable[..., Any]

CONFIG = """
[mcp_servers.notes]
command = "uvx"
args = ["notes-server", "--zone", "{tz}"]
env = { MODE = "fast", API_TOKEN = "in-plain-sight" }
secrets = { NOTES_KEY = { env = "NOTES_KEY_OF_TEST" } }
idle_timeout = "5m"
defaults = { tz = "UTC" }

[workspaces.a]
mcp_servers = ["notes"]
[workspaces.b]
mcp_servers = ["notes"]
[workspaces.c]
mcp_servers = ["notes"]
mcp.notes = { tz = "CET", api-key = "in-plain-sight" }
"""


def test_the_plan_is_printed_and_nothing_is_started(place: Path, run: Run, monkeypatch: Any) -> None:
    """R6: argv with flags, instance keys, who shares what, idle, dialogue, mounts; secrets masked; no daemon."""
    monkeypatch.setenv("NOTES_KEY_OF_TEST", "hunter2")
    file = place / "mooring.toml"
    file.write_text(CONFIG)
    result = run("check", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    shared, own = report["variants"]
    assert shared == {
        "id": "notes",
        "server": "notes",
        "kind": "process",
        "command": ["uvx", "notes-server", "--zone", "UTC"],
        "env": {"MODE": "fast", "API_TOKEN": "****", "NOTES_KEY": "<env NOTES_KEY_OF_TEST>"},
        "instance_keys": [ANY],
        "sharing": "shared",
        "shared_by": ["a", "b"],
        "idle_timeout": 300.0,
        "dialogue": ANY,
        "unavailable": "",
        "credentials": None,
        "confined": [],
    }
    assert own["command"] == ["uvx", "notes-server", "--zone", "CET", "--api-key", "****"]
    assert own["shared_by"] == ["c"]
    assert own["instance_keys"] != shared["instance_keys"]
    assert report["mounts"][0] == {
        "workspace": "a",
        "prefix": "notes",
        "server": "notes",
        "variant": "notes",
        "sharing": "shared",
    }
    assert (report["ok"], report["files"], report["problems"]) == (True, [str(file)], [])
    assert not (place / "run").exists()


def test_no_secret_value_is_printed(place: Path, run: Run, monkeypatch: Any) -> None:
    """R22, R6: neither referred nor literal values, in no form of output."""
    monkeypatch.setenv("NOTES_KEY_OF_TEST", "hunter2")
    (place / "mooring.toml").write_text(CONFIG)
    for words in (("check",), ("check", "--json"), ("server", "list"), ("server", "show", "notes"), ("doctor",)):
        output = run(*words).output
        assert output
        assert "hunter2" not in output
        assert "in-plain-sight" not in output


def test_a_missing_secret_is_said_before_anything_starts(place: Path, run: Run) -> None:
    """R22: required is an error with the place (exit 2), optional a warning."""
    (place / "mooring.toml").write_text(CONFIG)
    result = run("check", "--json")
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem == {
        "level": "error",
        "message": '"notes": secret NOTES_KEY: <env NOTES_KEY_OF_TEST> is missing; '
        "set the variable where Mooring is started",
        "path": "mcp_servers.notes.secrets.NOTES_KEY",
        "file": str(place / "mooring.toml"),
        "line": 6,
    }
    (place / "mooring.toml").write_text(CONFIG.replace('_TEST" }', '_TEST", optional = true }'))
    result = run("check", "--json")
    assert result.exit_code == 0
    assert [problem["level"] for problem in json.loads(result.stdout)["problems"]] == ["warning"]


def test_an_invalid_file_is_a_report_too(place: Path, run: Run) -> None:
    """Exit 2 with file, line, key path and what was meant, in both forms of output."""
    file = place / "other.toml"
    file.write_text('[mcp_servers.x]\ncomand = "uvx"\n')
    result = run("check", str(file), "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (2, False)
    (problem,) = report["problems"]
    assert (problem["level"], problem["file"]) == ("error", str(file))
    result = run("check", str(file))
    assert result.exit_code == 2
    assert f"{file}:" in result.stdout


def test_another_file_can_be_checked(place: Path, run: Run) -> None:
    file = place / "other.toml"
    file.write_text('[mcp_servers.x]\nurl = "https://example.com/mcp"\n')
    assert [row["id"] for row in json.loads(run("check", str(file), "--json").stdout)["variants"]] == ["x"]
    assert run("check", str(place / "nowhere.toml")).exit_code == 2


def test_piped_lines_say_which_table_they_are_of(place: Path, run: Run) -> None:
    """R6: grep-able: one line a row, no header, no decoration."""
    (place / "mooring.toml").write_text('[mcp_servers.x]\ncommand = "uvx"\n')
    lines = run("check").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["server", "instance", "mount"]


def test_without_a_configuration_there_is_nothing_wrong(run: Run) -> None:
    result = run("check")
    assert (result.exit_code, result.output) == (0, "")


async def test_names_that_a_client_changes_are_named_with_server_and_client(place: Path, run: Run) -> None:
    """R6: as information, since their tools are reached all the same."""
    write_config(place / "mooring.toml", {"a": server(), "b": server()}, {"w": {"mcp_servers": ["a", "b"]}})
    plan = configured.planned(configured.loaded())
    Home.locate().prepare()
    async with SqliteStore(Home.locate().store_file) as store:
        for name, tool in (("a", "short"), ("b", "l" * 50)):
            item = Item(tool, b'{"name":"%s"}' % tool.encode())
            facts = Facts("legacy", "2025-11-25", b'{"tools":{}}')
            await Listings(store).put(plan.variants[name], Listing(facts, tools=(item,)))
    result = await asyncio.to_thread(run, "check", "--json")
    (problem,) = json.loads(result.stdout)["problems"]
    assert (result.exit_code, problem["level"], problem["path"]) == (0, "info", "workspaces.w")
    assert problem["message"].startswith(f"Gemini CLI cuts the middle out of long names of b: b_{'l' * 50};")


async def test_clashing_names_of_listed_servers_are_errors(place: Path, run: Run) -> None:
    """A20, R6: known once the servers were listed; both tools are withdrawn."""
    write_config(
        place / "mooring.toml",
        {"a": server(), "b": server()},
        {"w": {"mcp_servers": ["a", "b"], "mcp": {"b": {"mount": {"prefix": "a_echo"}}}}},
    )
    facts = Facts("legacy", "2025-11-25", b'{"tools":{}}')
    plan = configured.planned(configured.loaded())
    Home.locate().prepare()
    async with SqliteStore(Home.locate().store_file) as store:
        for name, tool in (("a", "echo_x"), ("b", "x")):
            item = Item(tool, b'{"name":"%s"}' % tool.encode())
            await Listings(store).put(plan.variants[name], Listing(facts, tools=(item,)))
    result = await asyncio.to_thread(run, "check", "--json")
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["level"] == "error"
    assert "a_echo_x" in problem["message"]


IDENTITY = """
[mcp_servers.notes]
command = "uvx"
args = ["notes-server"]

[workspaces.a]
mcp_servers = ["notes"]
policy.deny = [{ tool = "erase" }]
[workspaces.b]
mcp_servers = ["notes"]

[identity.company]
issuer = "https://login.example.com"
scopes = ["mcp"]
[[identity.company.admit]]
workspace = "a"
claims = { groups = "docs*" }
[[identity.company.admit]]
workspace = "b"
claims = { groups = "docs*", sub = ["ada", "bob"] }
scopes = ["list"]
"""


def test_issuers_are_shown_with_whom_they_let_in_where(place: Path, run: Run) -> None:
    (place / "mooring.toml").write_text(IDENTITY)
    result = run("check", "--json")
    assert result.exit_code == 0, result.stderr
    (issuer,) = json.loads(result.stdout)["identity"]
    assert issuer["audience"] == [
        f"http://127.0.0.1:7420{path}" for path in ("", "/", "/mcp", "/w/a/mcp", "/w/b/mcp")
    ], "each address once"
    assert (issuer["jwks"], issuer["leeway"], issuer["scopes"]) == ("", 30.0, ["mcp"])
    assert issuer["admit"][1] == {
        "workspace": "b",
        "claims": {"groups": ["docs*"], "sub": ["ada", "bob"]},
        "scopes": ["list"],
        "tools": [],
        "key": "",
    }
    shown = run("check").stdout
    assert "by metadata" in shown
    assert "sub: ada or bob" in shown


def test_an_issuer_that_lets_nobody_in_is_reported(place: Path, run: Run) -> None:
    (place / "mooring.toml").write_text('[identity.company]\nissuer = "https://login.example.com"\n')
    result = run("check", "--json")
    (problem,) = json.loads(result.stdout)["problems"]
    assert (result.exit_code, problem["level"], problem["path"]) == (0, "warning", "identity.company")
    assert "lets nobody in" in problem["message"]


def test_what_somebody_with_certain_claims_may_do_is_shown(place: Path, run: Run) -> None:
    (place / "mooring.toml").write_text(IDENTITY)
    assert run("check", "--json").exit_code == 0
    asyncio.run(_listed(place))
    claims = ("--claim", "groups=docs-team", "--claim", "groups=x", "--claim", "scope=mcp")

    def calls(*more: str) -> dict[str, str]:
        result = run("check", "--as", *more, "--json")
        assert result.exit_code == 0, result.stderr
        return {row["name"]: row["call"] for row in json.loads(result.stdout)["access"]}

    assert calls("ada@company", *claims) == {"notes_erase": "no", "notes_read": "yes"}
    assert calls("ada@company", *claims, "-w", "b") == {"notes_erase": "no", "notes_read": "no"}
    for wrong, said in [
        (("ada@company", "--claim", "groups=docs"), "need the scope mcp; add: --claim scope=mcp"),
        (("eve@company", *claims, "-w", "b"), 'lets eve into "b" with these claims'),
        (("ada@company", "--claim", "scope=mcp"), "lets ada in with these claims"),
        (("ada@else", *claims), 'no issuer "else". Issuers: company.'),
    ]:
        result = run("check", "--as", *wrong)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


async def _listed(place: Path) -> None:
    """As if the servers of the configuration had been listed."""
    plan = configured.planned(configured.loaded())
    home = Home.locate()
    home.prepare()
    tools = tuple(Item(name, json.dumps({"name": name}).encode()) for name in ("erase", "read"))
    async with SqliteStore(home.store_file) as store:
        for variant in plan.variants.values():
            await Listings(store).put(variant, Listing(Facts("modern", "2026-07-28"), tools))
