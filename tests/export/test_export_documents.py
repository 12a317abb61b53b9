"""Each client's file, with Mooring in it and without."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mooring.config import jsonc
from mooring.errors import ConfigError
from mooring.export.clients import CLIENTS, Address, Client, Command, find
from mooring.export.documents import BACKUP, finish, registered, unregistered

COMMAND = Command("/opt/mooring", ("stdio", "-w", "alice"), {"MOORING_HOME": "/h"})
ADDRESS = Address("http://127.0.0.1:7420/mcp", "mrg_the-key-of-this-client")
HEADERS = {"Authorization": "Bearer mrg_the-key-of-this-client"}
PLAIN: dict[str, Any] = {"command": "/opt/mooring", "args": ["stdio", "-w", "alice"], "env": {"MOORING_HOME": "/h"}}
URL = {"url": "http://127.0.0.1:7420/mcp"}
SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "claude-code": (
        "/u/.claude.json",
        {"mcpServers": {"mooring": {"type": "stdio", **PLAIN}}},
        {"mcpServers": {"mooring": {"type": "http", **URL, "headers": HEADERS}}},
    ),
    "claude-desktop": ("/u/.config/Claude/claude_desktop_config.json", {"mcpServers": {"mooring": PLAIN}}, None),
    "codex": (
        "/u/.codex/config.toml",
        {"mcp_servers": {"mooring": PLAIN}},
        {"mcp_servers": {"mooring": {**URL, "http_headers": HEADERS}}},
    ),
    "cursor": (
        "/u/.cursor/mcp.json",
        {"mcpServers": {"mooring": PLAIN}},
        {"mcpServers": {"mooring": {**URL, "headers": HEADERS}}},
    ),
    "gemini": (
        "/u/.gemini/settings.json",
        {"mcpServers": {"mooring": PLAIN}},
        {"mcpServers": {"mooring": {"httpUrl": URL["url"], "headers": HEADERS}}},
    ),
    "opencode": (
        "/u/.config/opencode/opencode.json",
        {
            "mcp": {
                "mooring": {
                    "type": "local",
                    "command": ["/opt/mooring", "stdio", "-w", "alice"],
                    "enabled": True,
                    "environment": {"MOORING_HOME": "/h"},
                }
            }
        },
        {"mcp": {"mooring": {"type": "remote", "enabled": True, **URL, "headers": HEADERS}}},
    ),
    "vscode": (
        "/u/.config/Code/User/mcp.json",
        {"servers": {"mooring": {"type": "stdio", **PLAIN}}},
        {"servers": {"mooring": {"type": "http", **URL, "headers": HEADERS}}},
    ),
    "windsurf": (
        "/u/.codeium/windsurf/mcp_config.json",
        {"mcpServers": {"mooring": PLAIN}},
        {"mcpServers": {"mooring": {"serverUrl": URL["url"], "headers": HEADERS}}},
    ),
    "zed": (
        "/u/.config/zed/settings.json",
        {"context_servers": {"mooring": PLAIN}},
        {"context_servers": {"mooring": {**URL, "headers": HEADERS}}},
    ),
}


def read(file: Path, client: Client) -> Any:
    text = file.read_text()
    return tomllib.loads(text) if client.format == "toml" else jsonc.loads(text)


@pytest.mark.parametrize("name", list(CLIENTS))
def test_each_client_gets_its_own_file_and_shapes(name: str, tmp_path: Path) -> None:
    client, (place, command, address) = find(name), SHAPES[name]
    assert client.file({"HOME": "/u"}, "linux") == place
    file = tmp_path / "client" / "file"
    registered(client, str(file), COMMAND).apply()
    assert read(file, client) == command
    if address is None:
        with pytest.raises(ConfigError, match="--http"):
            registered(client, str(file), ADDRESS)
        return
    change = registered(client, str(file), ADDRESS)
    assert ADDRESS.key not in change.diff() + repr(change)
    change.apply()
    assert read(file, client) == address
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_folders_that_the_environment_names_are_used(tmp_path: Path) -> None:
    environ = {"HOME": "/u", "XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/l"}
    files = {name: CLIENTS[name].file(environ, "linux") for name in ("zed", "codex", "claude-code", "vscode")}
    assert files == {
        "zed": "/x/zed/settings.json",
        "codex": "/c/config.toml",
        "claude-code": "/l/.claude.json",
        "vscode": "/x/Code/User/mcp.json",
    }
    desktop = CLIENTS["claude-desktop"].file({"HOME": "/u"}, "darwin")
    assert desktop == "/u/Library/Application Support/Claude/claude_desktop_config.json"
    (tmp_path / "opencode").mkdir()
    other = tmp_path / "opencode" / "opencode.jsonc"
    other.touch()
    assert CLIENTS["opencode"].file({"XDG_CONFIG_HOME": str(tmp_path)}) == str(other)


BEFORE = {
    "json": '// mine\n{\n  "keep": [1, 2,], /* this */\n  "mcpServers": { "x": { "command": "y" } }\n}\n',
    "toml": '# mine\nmodel = "o"   # that one\n\n[mcp_servers.x]\ncommand = "y" # other\n\n[profiles.p]\na = 1\n',
}


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_what_else_is_in_the_file_stays_and_removal_restores_every_byte(name: str, tmp_path: Path) -> None:
    client = find(name)
    file = tmp_path / "file"
    file.write_text(BEFORE[client.format])
    os.chmod(file, 0o644)
    change = registered(client, str(file), COMMAND)
    assert not change.empty
    change.apply()
    text = file.read_text()
    assert all(
        part in text for part in ("mine", "command", "y", *(("that one", "other") if name == "codex" else ("this",)))
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert Path(f"{file}{BACKUP}").read_text() == BEFORE[client.format]
    assert registered(client, str(file), COMMAND).empty
    registered(client, str(file), ADDRESS).apply()
    assert Path(f"{file}{BACKUP}").read_text() == BEFORE[client.format]
    removal = unregistered(client, str(file))
    removal.apply()
    finish(removal)
    assert file.read_text() == BEFORE[client.format]
    assert os.listdir(tmp_path) == ["file"]
    assert unregistered(client, str(file)).empty


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_file_with_a_byte_order_mark_is_taken_and_given_back(name: str, tmp_path: Path) -> None:
    client = find(name)
    file = tmp_path / "file"
    before = b"\xef\xbb\xbf" + BEFORE[client.format].encode()
    file.write_bytes(before)
    registered(client, str(file), COMMAND).apply()
    assert registered(client, str(file), COMMAND).empty
    change = unregistered(client, str(file))
    change.apply()
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_edits_made_meanwhile_survive_a_removal(name: str, tmp_path: Path) -> None:
    client = find(name)
    file = tmp_path / "file"
    file.write_text(BEFORE[client.format])
    registered(client, str(file), COMMAND).apply()
    added = "[profiles.q]\nb = 2\n" if client.format == "toml" else ""
    text = file.read_text() + added if added else file.read_text().replace('"keep"', '"later": 1, "keep"')
    file.write_text(text)
    unregistered(client, str(file)).apply()
    left = file.read_text()
    assert "mooring" not in left
    assert ("b = 2" if added else '"later": 1') in left
    assert read(file, client)


def test_a_file_that_its_client_changed_just_now_is_not_overwritten(tmp_path: Path) -> None:
    """Some clients write theirs all the time."""
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    change = registered(find("cursor"), str(file), COMMAND)
    file.write_text('{"theirs": 1}')
    with pytest.raises(ConfigError, match="changed by somebody else"):
        change.apply()
    assert file.read_text() == '{"theirs": 1}'
    registered(find("cursor"), str(file), COMMAND).apply()
    change = unregistered(find("cursor"), str(file))
    file.write_text('{"theirs": 2}')
    with pytest.raises(ConfigError, match="changed by somebody else"):
        change.apply()


def test_a_file_that_export_made_goes_with_it(tmp_path: Path) -> None:
    for client in CLIENTS.values():
        file = tmp_path / "new" / client.name
        registered(client, str(file), COMMAND).apply()
        removal = unregistered(client, str(file))
        removal.apply()
        finish(removal)
        assert not file.exists()
        assert unregistered(client, str(file)).empty


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("zed", "{", "valid JSON"),
        ("zed", '{"context_servers": 1}', "no table"),
        ("codex", "a = ", "valid TOML"),
        ("codex", "mcp_servers = 1", "no table"),
    ],
)
def test_a_file_that_the_client_could_not_read_either_is_left_alone(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        registered(find(name), str(file), COMMAND)
    assert file.read_text() == text
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text"):
        registered(find(name), str(file), COMMAND)


def test_an_unknown_client_is_answered_with_the_list_of_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"emacs.*zed"):
        find("emacs")


def test_the_diff_shows_no_neighbours(tmp_path: Path) -> None:
    """Other entries may hold tokens."""
    file = tmp_path / "file"
    file.write_text(json.dumps({"mcpServers": {"x": {"headers": {"A": "their-token"}}}}, indent=2))
    assert "their-token" not in registered(find("cursor"), str(file), COMMAND).diff()
