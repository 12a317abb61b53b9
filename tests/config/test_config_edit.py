"""Edits that leave everything else as it was."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.config.edit import added, removed, switched
from mooring.config.files import write_atomically
from mooring.config.load import load
from mooring.config.schema import Loaded
from mooring.config.schema_servers import CommandServer
from mooring.errors import ConfigError

Load = Callable[..., Loaded]

TEXT = """\
# my servers

# the clock
[mcp_servers.time]   # it ticks
command = "uvx"      # from PyPI
args = [
  "mcp-server-time", # the package
]
[mcp_servers.time.env]
A = "b"

# the other one
[mcp_servers.other]
command = "x"

[mcp_groups]
all = ["time", "other"] # both

[workspaces.w]
mcp_servers = [
  "other",
  "time", # when
]
[workspaces.w.mcp.time]
tz = "UTC"

[workspaces.w.mcp.other]
a = 1
# the end
"""


def test_an_added_server_stands_at_the_end_and_nothing_else_moves(loaded: Load, tmp_path: Path) -> None:
    """A22."""
    table = {
        "command": "npx",
        "args": ["-y", "x"],
        "env": {"A": "b"},
        "secrets": {"T": {"store": "t", "optional": True}},
    }
    files = added(loaded(TEXT), {"new": table, "far": {"url": "https://x"}}).apply()
    assert files == (str(tmp_path / "mooring.toml"),)
    text = (tmp_path / "mooring.toml").read_text()
    assert text == TEXT + (
        '\n[mcp_servers.new]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = {A = "b"}\n'
        'secrets = {T = {store = "t", optional = true}}\n\n[mcp_servers.far]\nurl = "https://x"\n'
    )
    assert tomllib.loads(text)["mcp_servers"]["new"] == table


def test_the_first_server_makes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "mooring.toml"
    added(load(file), {"a": {"command": "x"}}).apply()
    assert load(file).config.mcp_servers.keys() == {"a"}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_file_that_ends_anyhow_is_added_to(loaded: Load, tmp_path: Path, end: str) -> None:
    added(loaded("# c" + end), {"a": {"command": "x"}}).apply()
    assert (tmp_path / "mooring.toml").read_text() == '# c\n\n[mcp_servers.a]\ncommand = "x"\n'


def test_a_name_that_is_taken_is_refused_with_its_place(loaded: Load, tmp_path: Path) -> None:
    """A22: duplicates fail."""
    with pytest.raises(ConfigError, match=r'there is a server "time" already') as error:
        added(loaded("include = ['more.toml']\n", more_toml=TEXT), {"time": {"command": "x"}})
    assert (error.value.details["file"], error.value.details["line"]) == (str(tmp_path / "more.toml"), 4)


@pytest.mark.parametrize("name", ["remove", "A"])
def test_a_name_that_cannot_be_one_is_refused(loaded: Load, name: str) -> None:
    """A22: reserved words."""
    with pytest.raises(ConfigError, match="cannot be a name"):
        added(loaded(""), {name: {"command": "x"}})


@pytest.mark.parametrize("table", [{"comand": "x"}, {"command": "x", "args": ["{y}"]}, {"command": "x", "port": 0}])
def test_an_invalid_result_changes_nothing(loaded: Load, tmp_path: Path, table: dict[str, object]) -> None:
    before = loaded("# c\n")
    with pytest.raises(ConfigError):
        added(before, {"a": table}).apply()
    assert (tmp_path / "mooring.toml").read_text() == "# c\n"
    assert os.listdir(tmp_path) == ["mooring.toml"]


def test_what_is_written_in_one_line_is_left_to_its_writer(loaded: Load) -> None:
    inline = loaded('mcp_servers = { a = { command = "x" } }\n')
    for edit in (lambda: added(inline, {"b": {"command": "x"}}), lambda: removed(inline, "a")):
        with pytest.raises(ConfigError, match="edited by hand"):
            edit()


def test_disabling_and_enabling_touch_one_line(loaded: Load, tmp_path: Path) -> None:
    """A22."""
    file = tmp_path / "mooring.toml"
    assert switched(loaded(TEXT), "time", True).apply() == ()
    switched(load(file), "time", False).apply()
    assert file.read_text() == TEXT.replace("# it ticks\n", "# it ticks\nenabled = false\n")
    assert switched(load(file), "time", False).apply() == ()
    switched(load(file), "time", True).apply()
    assert file.read_text() == TEXT.replace("# it ticks\n", "# it ticks\nenabled = true\n")


@pytest.mark.parametrize(
    "text",
    [
        '[mcp_servers]\na = { command = "x" } # c\n',
        '[mcp_servers]\na.command = "x" # c\n',
        'mcp_servers = { a = { command = "x" } } # c\n',
        '[mcp_servers.a]\ncommand = "x" # c',
        "[mcp_servers.a]",
    ],
)
def test_every_spelling_of_a_server_can_be_disabled(loaded: Load, tmp_path: Path, text: str) -> None:
    if "command" not in text:
        text += "\ncommand = 'x' # c"
    switched(loaded(text), "a", False).apply()
    changed = (tmp_path / "mooring.toml").read_text()
    assert not load(tmp_path / "mooring.toml").config.mcp_servers["a"].enabled
    assert "# c" in changed


def test_removing_takes_a_server_out_of_everything_and_keeps_the_rest(loaded: Load, tmp_path: Path) -> None:
    """A22."""
    removed(loaded(TEXT), "time").apply()
    assert (
        (tmp_path / "mooring.toml").read_text()
        == """\
# my servers

# the other one
[mcp_servers.other]
command = "x"

[mcp_groups]
all = ["other"] # both

[workspaces.w]
mcp_servers = [
  "other",
]

[workspaces.w.mcp.other]
a = 1
# the end
"""
    )


def test_removing_reaches_other_files_and_writes_the_definition_last(loaded: Load, tmp_path: Path) -> None:
    """A22: the file that defines a server is known."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "t.toml").write_text(
        "[agent_pool]\nmcp_servers=['s']\n[teams.t]\nmcp_servers=['s']\nmcp.s.x=1\n"
    )
    both = loaded(
        "include = ['more.toml', 'apart.toml']\n[workspaces.w]\nmcp_servers=['s', 's']\n[workspaces.w.mcp.s]\nx=1\n",
        more_toml="[mcp_servers.s]\ncommand='x'\n",
        apart_toml="# nothing about it\n",
    )
    files = removed(both, "s").apply()
    assert [Path(name).name for name in files] == ["mooring.toml", "t.toml", "more.toml"]
    after = load(tmp_path / "mooring.toml").config
    assert after.mcp_servers == {}
    assert after.workspaces["w"].mcp_servers == after.agent_pool.mcp_servers == after.teams["t"].mcp_servers == ()
    assert after.teams["t"].mcp == {}


@pytest.mark.parametrize("edit", [lambda there: removed(there, "tim"), lambda there: switched(there, "tim", True)])
def test_an_unknown_server_is_an_error_with_a_guess(loaded: Load, edit: Callable[[Loaded], object]) -> None:
    """A22: unknown names fail."""
    with pytest.raises(ConfigError, match=r'no server "tim" .did you mean "time"'):
        edit(loaded(TEXT))


def test_a_read_only_file_is_refused(loaded: Load, tmp_path: Path) -> None:
    """A22: read-only sources refuse edits."""
    there = loaded(TEXT)
    (tmp_path / "mooring.toml").chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        switched(there, "time", False).apply()
    assert (tmp_path / "mooring.toml").read_text() == TEXT


def test_a_file_that_somebody_else_just_changed_is_left_alone(loaded: Load, tmp_path: Path) -> None:
    there = loaded(TEXT)
    (tmp_path / "mooring.toml").write_text("# theirs\n")
    with pytest.raises(ConfigError, match="try again"):
        switched(there, "time", False).apply()
    assert (tmp_path / "mooring.toml").read_text() == "# theirs\n"


def test_of_two_first_servers_at_the_same_moment_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    first, second = (added(load(file), {name: {"command": "x"}}) for name in "ab")
    first.apply()
    with pytest.raises(ConfigError, match="try again"):
        second.apply()
    assert load(file).config.mcp_servers.keys() == {"a"}


def test_a_file_that_somebody_just_took_away_does_not_come_back(loaded: Load, tmp_path: Path) -> None:
    there = loaded(TEXT)
    (tmp_path / "mooring.toml").unlink()
    with pytest.raises(ConfigError, match="try again"):
        switched(there, "time", False).apply()
    assert not (tmp_path / "mooring.toml").exists()


@pytest.mark.parametrize("end", ["", "# the end\n", "[workspaces.w]\n"])
def test_adding_and_removing_leaves_the_file_as_it_was(loaded: Load, tmp_path: Path, end: str) -> None:
    text = '[mcp_servers.a]\ncommand = "x"\n' + end
    loaded(text)
    file = tmp_path / "mooring.toml"
    for _ in range(2):
        added(load(file), {"new": {"command": "y"}}).apply()
        removed(load(file), "new").apply()
        assert file.read_text() == text


def test_the_mode_of_the_file_and_a_link_to_it_stay(loaded: Load, tmp_path: Path) -> None:
    """A22."""
    loaded(TEXT)
    file = tmp_path / "mooring.toml"
    file.chmod(0o640)
    target = file.rename(tmp_path / "real.toml")
    file.symlink_to(target)
    switched(load(file), "time", False).apply()
    assert file.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert not load(file).config.mcp_servers["time"].enabled


def test_line_ends_stay(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    switched(load(file), "other", False).apply()
    server = load(file).config.mcp_servers["time"]
    assert isinstance(server, CommandServer)
    assert server.args == ("mcp-server-time",)
    assert b"# the end\r\n" in file.read_bytes()


def test_a_file_with_a_byte_order_mark_is_edited_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    for edit in (
        lambda read: added(read, {"new": {"command": "y"}}),
        lambda read: switched(read, "other", False),
        lambda read: removed(read, "time"),
    ):
        file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
        edit(load(file)).apply()
        assert "the end" in file.read_text()
        load(file)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(file, b"new", mode=0o600)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]
