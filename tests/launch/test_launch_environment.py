"""What a server gets to see, and how its command is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import LaunchMissing
from mooring.launch.environment import (
    BESIDE,
    FALLBACK_PATH,
    INHERITED,
    PERSON_PREFIXES,
    child_environment,
    find_command,
)

NAMES = st.one_of(st.sampled_from(sorted(INHERITED)), st.text("ABC_xyz", min_size=1), st.just("LC_CTYPE"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("tool", 0o755), ("text", 0o644)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    return tmp_path


def test_only_safe_names_are_inherited() -> None:
    """R22 A7"""
    daemon = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "LC_TIME": "C",
        "XDG_CACHE_HOME": "/c",
        "HTTPS_PROXY": "http://proxy",
        "SSL_CERT_FILE": "/ca.pem",
        "OPENAI_API_KEY": "sk",
        "UV_PUBLISH_TOKEN": "t",
        "PIP_EXTRA": "x",
        "npm_config__auth": "t",
        "LD_PRELOAD": "/evil.so",
        "PYTHONPATH": "/src",
        "MOORING_HOME": "/h",
    }
    kept = {"PATH", "HOME", "LC_TIME", "XDG_CACHE_HOME", "HTTPS_PROXY", "SSL_CERT_FILE"}
    expected = {name: daemon[name] for name in kept} | {"PATH": f"/bin:{BESIDE}"}
    assert child_environment({}, {}, daemon) == expected


def test_declared_wins_over_inherited_and_secrets_over_both() -> None:
    made = child_environment({"LANG": "declared", "TOKEN": "declared"}, {"TOKEN": "secret"}, {"LANG": "inherited"})
    assert made == {"PATH": f"{FALLBACK_PATH}:{BESIDE}", "LANG": "declared", "TOKEN": "secret"}


@given(
    declared=st.dictionaries(NAMES, st.text(max_size=3)),
    secrets=st.dictionaries(NAMES, st.text(max_size=3)),
    daemon=st.dictionaries(NAMES, st.text(max_size=3)),
)
def test_every_variable_is_declared_or_safe(declared: dict, secrets: dict, daemon: dict) -> None:
    """R22 A7"""
    made = child_environment(declared, secrets, daemon)
    assert {**declared, **secrets}.items() <= made.items()
    for name in made.keys() - declared.keys() - secrets.keys() - {"PATH"}:
        assert name in INHERITED or name.startswith(PERSON_PREFIXES)
        assert made[name] == daemon[name]


def test_a_command_is_found_on_the_path_of_the_servers_own_environment(folder: Path) -> None:
    assert find_command("tool", {"PATH": f"/nowhere:{folder}"}, "/") == str(folder / "tool")


def test_a_command_with_a_slash_and_a_relative_path_are_seen_from_the_servers_folder(folder: Path) -> None:
    assert find_command("./tool", {"PATH": ""}, str(folder)) == f"{folder}/./tool"
    assert find_command(str(folder / "tool"), {}, "/") == str(folder / "tool")
    assert find_command("tool", {"PATH": "nowhere:."}, str(folder)) == f"{folder}/./tool"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("uvx", "install uv"),
        ("npx", "install Node.js"),
        ("docker", "install Docker"),
        ("some-server", "add its folder to PATH"),
    ],
)
def test_a_missing_command_says_where_it_was_looked_for_and_how_to_get_it(command: str, says: str) -> None:
    """R12"""
    with pytest.raises(LaunchMissing) as caught:
        find_command(command, {"PATH": "/no/where:/no/place", "TOKEN": "s3cret"}, "/")
    assert f'"{command}"' in caught.value.message
    assert says in caught.value.message
    assert "/no/where:/no/place" in caught.value.message
    assert "s3cret" not in caught.value.message
    assert caught.value.exit_code == 4


def test_a_path_that_is_no_program_says_what_is_wrong(folder: Path) -> None:
    """R12"""
    with pytest.raises(LaunchMissing, match="is not an executable file"):
        find_command("./text", {}, str(folder))
    with pytest.raises(LaunchMissing, match="does not exist"):
        find_command("./nothing", {}, str(folder))


@pytest.mark.parametrize("command", ["npx -y some-server", "/opt/some-server --verbose"])
def test_a_command_line_written_as_the_command_says_where_arguments_belong(command: str) -> None:
    """R12: no shell takes it apart."""
    with pytest.raises(LaunchMissing, match="belongs in args"):
        find_command(command, {"PATH": "/no/where"}, "/")
