"""``mooring server``: files edited, servers tried, without a daemon."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.cli import adding, trial
from mooring.config.schema import Config, Workspace
from mooring.config.schema_agents import Grant
from mooring.config.schema_servers import CommandServer
from mooring.errors import ConfigError
from mooring.testing import echo

Run = Callable[..., Any]


def listed(run: Run) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(run("server", "list", "--json").stdout)}


def test_a_server_is_added_listed_switched_and_removed(place: Path, run: Run) -> None:
    """A22: add, list, disable, enable, remove; silent when piped; comments and mode stay."""
    file = place / "mooring.toml"
    file.write_text("# mine\n[gateway]\nidle_timeout = 5 # short\n")
    file.chmod(0o600)
    result = run("server", "add", "time", "--env", "MODE=x", "--", "uvx", "mcp-server-time", "--local-timezone", "UTC")
    assert (result.exit_code, result.output) == (0, "")
    assert listed(run) == {
        "time": {
            "name": "time",
            "kind": "command",
            "enabled": True,
            "runs": ["uvx", "mcp-server-time", "--local-timezone", "UTC"],
            "workspaces": ["default"],
            "file": str(file),
            "line": 5,
        }
    }
    assert run("server", "disable", "time").exit_code == 0
    assert listed(run)["time"]["enabled"] is False
    assert run("server", "enable", "time").exit_code == 0
    assert listed(run)["time"]["enabled"] is True
    assert run("server", "remove", "time").exit_code == 0
    assert listed(run) == {}
    assert file.read_text().startswith("# mine\n[gateway]\nidle_timeout = 5 # short\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_remotes_containers_and_secrets_can_be_added(place: Path, run: Run) -> None:
    """A22, R22: secrets are named, never inlined."""
    assert run("server", "add", "r", "--url", "https://example.com/mcp").exit_code == 0
    assert (
        run("server", "add", "c", "--image", "img:1", "--secret", "A", "--secret", "B=env:BEE", "--", "-v").exit_code
        == 0
    )
    rows = listed(run)
    assert (rows["r"]["kind"], rows["c"]["kind"], rows["c"]["runs"]) == ("url", "image", ["img:1", "-v"])
    shown = json.loads(run("server", "show", "c", "--json").stdout)
    assert shown["definition"]["secrets"] == {"A": {"store": "A"}, "B": {"env": "BEE"}}


def test_show_masks_and_says_what_it_becomes(place: Path, run: Run) -> None:
    """A22: show is masked; the golden shape."""
    file = place / "mooring.toml"
    file.write_text('[mcp_servers.x]\ncommand = "run"\nargs = ["--token=abc"]\nenv = { PASSWORD = "abc" }\n')
    shown = json.loads(run("server", "show", "x", "--json").stdout)
    (variant,) = shown.pop("variants")
    assert shown == {
        "name": "x",
        "kind": "command",
        "enabled": True,
        "file": str(file),
        "line": 1,
        "definition": {"command": "run", "args": ["--token=****"], "env": {"PASSWORD": "****"}},
    }
    assert (variant["command"], variant["env"]) == (["run", "--token=****"], {"PASSWORD": "****"})
    assert 'env = {PASSWORD = "****"}' in run("server", "show", "x").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "x", "--", "again"),
        ("add", "list", "--", "uvx"),
        ("add", "Bad Name", "--", "uvx"),
        ("add", "y", "-w", "nobody", "--", "uvx"),
        ("add", "y"),
        ("add", "y", "--url", "https://a", "--image", "b"),
        ("add", "y", "--url", "ftp://a"),
        ("add", "y", "--env", "NOVALUE", "--", "uvx"),
        ("add", "y", "--secret", "T=ghp_literally", "--", "uvx"),
        ("show", "xx"),
        ("test", "xx"),
        ("enable", "xx"),
        ("disable", "xx"),
        ("remove", "xx"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_exits_2(place: Path, run: Run, arguments: tuple[str, ...]) -> None:
    """A22: duplicate and unknown names fail with exit codes; reserved words are no names."""
    file = place / "mooring.toml"
    file.write_text('[mcp_servers.x]\ncommand = "run"\n')
    result = run("server", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    assert "ghp_literally" not in result.stderr
    assert file.read_text() == '[mcp_servers.x]\ncommand = "run"\n'


def test_a_read_only_file_refuses_edits(place: Path, run: Run) -> None:
    """A22: read-only config sources refuse edits."""
    file = place / "mooring.toml"
    file.write_text('[mcp_servers.x]\ncommand = "run"\n')
    file.chmod(0o400)
    for arguments in (("add", "y", "--", "run"), ("disable", "x"), ("remove", "x")):
        result = run("server", *arguments)
        assert (result.exit_code, "read-only" in result.stderr) == (2, True)


def test_a_server_can_be_given_to_workspaces_at_once(place: Path, run: Run) -> None:
    file = place / "mooring.toml"
    file.write_text('[workspaces.a]\nmcp_servers = [] # none\n[workspaces.b]\nmcp_servers = ["*"]\n[workspaces.c]\n')
    assert run("server", "add", "x", "-w", "a", "-w", "b", "-w", "c", "--", "run").exit_code == 0
    assert listed(run)["x"]["workspaces"] == ["a", "b", "c"]
    assert 'mcp_servers = ["*"]' in file.read_text()
    assert "# none" in file.read_text()


def test_a_server_that_nobody_has_is_pointed_out(place: Path, run: Run) -> None:
    (place / "mooring.toml").write_text("[workspaces.a]\n")
    result = run("server", "add", "x", "--env", "API_KEY=abc", "--", "run")
    assert result.exit_code == 0
    assert "no workspace has x" in result.stderr
    assert "API_KEY looks like a secret" in result.stderr
    assert "abc" not in result.stderr


def test_with_agents_alone_nobody_else_has_a_server(place: Path, run: Run) -> None:
    """There is no workspace "default" then, neither in the list nor to give something to."""
    text = "[agent_pool]\nmcp_servers = ['a']\n[mcp_servers.a]\ncommand = 'sh'\n"
    (place / "mooring.toml").write_text(text + "[agents.w]\ntype = 'native'\nmodel = 'm'\n")
    added = run("server", "add", "b", "--", "sh")
    assert (added.exit_code, "no workspace has b" in added.stderr) == (0, True)
    rows = json.loads(run("server", "list", "--json").stdout)
    assert {row["name"]: row["workspaces"] for row in rows} == {"a": ["agent/w"], "b": []}
    refused = run("server", "add", "c", "-w", "default", "--", "sh")
    assert (refused.exit_code, 'no workspace "default"' in refused.stderr) == (2, True)


def test_a_path_is_meant_from_where_the_user_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert adding.definition(("./run", "./arg"), None, None, (), ())["command"] == str(tmp_path / "run")
    assert adding.definition(("run",), None, None, (), ())["command"] == "run"


def test_test_starts_a_server_once_and_lists_its_tools(place: Path, run: Run, command: Run) -> None:
    """A22: test; with the secrets it needs, and nothing left in the home."""
    program, *args = echo("--name", "{name}")
    assert run("secret", "set", "tok", stdin="hunter2\n").exit_code == 0
    added = run("server", "add", "e", "--secret", "TOK=store:tok", "--", program, *args)
    assert added.exit_code == 2, "a placeholder without a value"
    assert run("server", "add", "e", "--secret", "TOK=store:tok", "--", *echo("--era", "legacy")).exit_code == 0
    result = command("server", "test", "e", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report.pop("seconds") > 0
    tools = report.pop("tools")
    assert {"name", "description"} == set(tools[0])
    assert "echo" in [tool["name"] for tool in tools]
    assert (report.pop("prompts") > 0, report.pop("resources") > 0) == (True, True)
    assert report == {"server": "e", "era": "legacy", "version": "2025-11-25", "problems": []}
    assert not (place / "run").exists()


def test_a_disabled_server_can_be_tested_before_it_is_enabled(run: Run, command: Run) -> None:
    run("server", "add", "e", "--", *echo())
    run("server", "disable", "e")
    result = command("server", "test", "e")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("echo\t")


def test_a_server_that_does_not_answer_fails_with_its_last_words(run: Run, command: Run) -> None:
    """A22: exit 1, the reason, and what it wrote to stderr with secrets taken out."""
    run("secret", "set", "T", stdin="hunter2")
    code = "import os, sys; sys.exit('my token is ' + os.environ['T'])"
    run("server", "add", "e", "--secret", "T", "--", sys.executable, "-c", code)
    result = command("server", "test", "e")
    assert result.returncode == 1
    assert "my token is" in result.stderr
    assert "hunter2" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_program_exits_4(run: Run) -> None:
    """A22: what is missing, and how to get it."""
    run("server", "add", "e", "--", "no-such-program-here")
    result = run("server", "test", "e")
    assert (result.exit_code, "install it" in result.stderr) == (4, True)


def test_a_trial_has_the_kwargs_of_the_workspace_that_has_the_server() -> None:
    server = CommandServer(command="run", enabled=False)
    grant = Grant(kwargs={"x": 1})
    config = Config(
        mcp_servers={"s": server, "t": server},
        workspaces={"a": Workspace(), "b": Workspace(mcp_servers=("s",), mcp={"s": grant})},
    )
    narrow = trial.alone(config, "s", None)
    assert list(narrow.mcp_servers) == ["s"]
    assert narrow.mcp_servers["s"].enabled
    assert narrow.workspaces == {"b": Workspace(mcp_servers=("s",), mcp={"s": grant})}
    with pytest.raises(ConfigError, match='"a" does not have "s"'):
        trial.alone(config, "s", "a")
