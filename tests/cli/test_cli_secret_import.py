"""``mooring secret`` and ``mooring import``: values go to the store and nowhere else."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

CLAUDE = {
    "mcpServers": {
        "git": {"command": "uvx", "args": ["git-server"], "env": {"GIT_TOKEN": "hunter2", "MODE": "ro"}},
        "web": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer hunter2"}},
        "odd": {"command": "run", "args": ["--password", "hunter2"]},
    }
}


def test_a_secret_is_stored_listed_and_removed(place: Path, run: Run) -> None:
    """R22: names are shown, values never; the file is private."""
    result = run("secret", "set", "github", stdin="hunter2\n")
    assert (result.exit_code, result.output) == (0, "")
    result = run("secret", "list", "--json")
    assert json.loads(result.stdout) == ["github"]
    file = place / "state" / "secrets.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"github": "hunter2"}
    assert run("secret", "remove", "github").exit_code == 0
    assert json.loads(run("secret", "list", "--json").stdout) == []


def test_what_is_no_secret_exits_2(run: Run) -> None:
    run("secret", "set", "github", stdin="hunter2")
    assert run("secret", "set", "empty", stdin="\n").exit_code == 2
    assert run("secret", "set", "bad name", stdin="x").exit_code == 2
    result = run("secret", "remove", "githob")
    assert (result.exit_code, 'did you mean "github"' in result.stderr) == (2, True)


def test_import_says_what_it_would_do_and_changes_nothing(place: Path, run: Run) -> None:
    """R22: literal secrets are masked even where they cannot be moved."""
    file = place / "claude.json"
    file.write_text(json.dumps(CLAUDE))
    result = run("import", str(file), "--json")
    assert (result.exit_code, "hunter2" in result.output) == (0, False)
    report = json.loads(result.stdout)
    problems = report.pop("problems")
    assert len(problems) == 1
    assert report == {
        "written": False,
        "servers": {
            "git": {
                "command": "uvx",
                "args": ["git-server"],
                "env": {"MODE": "ro"},
                "secrets": {"GIT_TOKEN": {"store": "git_GIT_TOKEN"}},
            },
            "web": {"url": "https://example.com/mcp", "auth": {"store": "web_authorization"}},
            "odd": {"command": "run", "args": ["--password", "****"]},
        },
        "secrets": ["git_GIT_TOKEN", "web_authorization"],
        "wanted": [],
        "unchanged": [],
        "files": [],
    }
    result = run("import", str(file))
    assert set(tomllib.loads(result.stdout)["mcp_servers"]) == {"git", "web", "odd"}
    assert "hunter2" not in result.output
    assert not (place / "mooring.toml").exists()
    assert not (place / "state").exists()


def test_import_write_adds_servers_and_moves_their_secrets(place: Path, run: Run) -> None:
    """R22: nothing literal stays in the configuration; importing again changes nothing."""
    file = place / "claude.json"
    file.write_text(json.dumps({"mcpServers": {"git": CLAUDE["mcpServers"]["git"]}}))
    report = json.loads(run("import", str(file), "--write", "--json").stdout)
    assert report["written"]
    assert report["files"]
    assert all("hunter2" not in Path(name).read_text() for name in report["files"])
    assert json.loads(run("secret", "list", "--json").stdout) == ["git_GIT_TOKEN"]
    assert run("check").exit_code == 0
    again = json.loads(run("import", str(file), "--write", "--json").stdout)
    assert (again["servers"], again["unchanged"], again["files"]) == ({}, ["git"], [])


def test_what_cannot_be_imported_exits_2(place: Path, run: Run) -> None:
    file = place / "x.json"
    for content in (b"{", b"{}", b"\xff\xfe"):
        file.write_bytes(content)
        result = run("import", str(file), "--write")
        assert (result.exit_code, result.stdout) == (2, "")
        assert str(file.name) in result.stderr
