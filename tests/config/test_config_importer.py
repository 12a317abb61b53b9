"""Taking over what other programs know."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config import secrets as secrets_module
from mooring.config.home import Home
from mooring.config.importer import Import, plan_import
from mooring.config.jsonc import loads
from mooring.config.load import load
from mooring.config.resolve import resolve
from mooring.config.schema import Loaded
from mooring.config.secret_shapes import secret_name, secret_value
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError

Load = Callable[..., Loaded]
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.fixture
def imported(loaded: Load) -> Callable[..., Import]:
    """Import a value or a text into a configuration."""

    def imported(document: Any, into: str = "", name: str = "") -> Import:
        text = document if isinstance(document, str) else json.dumps(document)
        return plan_import(text, loaded(into), name)

    return imported


def servers(**entries: Any) -> dict[str, Any]:
    return {"mcpServers": entries}


def test_programs_keep_args_environment_and_folder(imported: Callable[..., Import]) -> None:
    """A19: env is kept."""
    entry = {"type": "stdio", "command": "npx", "args": ["-y", "x", 3, True], "env": {"A": "b", "N": 5}, "cwd": "/w"}
    made = imported(servers(fs=entry))
    assert made.servers == {
        "fs": {"command": "npx", "args": ["-y", "x", "3", "true"], "env": {"A": "b", "N": "5"}, "cwd": "/w"}
    }
    assert made.problems == ()
    assert tomllib.loads(made.toml)["mcp_servers"] == made.servers


def test_remotes_keep_headers_and_transport(imported: Callable[..., Import]) -> None:
    """A19: headers are kept."""
    made = imported(
        servers(
            one={"url": "https://a/mcp", "headers": {"X-Team": "docs"}},
            two={"type": "sse", "url": "https://b"},
            three={"serverUrl": "https://c"},
            four={"httpUrl": "https://d"},
        )
    )
    assert made.servers == {
        "one": {"url": "https://a/mcp", "headers": {"X-Team": "docs"}},
        "two": {"url": "https://b", "transport": "sse"},
        "three": {"url": "https://c"},
        "four": {"url": "https://d"},
    }


def test_literal_secrets_move_to_the_store(imported: Callable[..., Import]) -> None:
    """A19 A22 R22: by name or by form; the text that is written and shown has none."""
    made = imported(
        servers(
            gh={
                "command": "x",
                "env": {"GITHUB_TOKEN": "plain-value", "PAGER": TOKEN, "DEBUG_KEY": "true", "E_KEY": ""},
            },
            far={"url": "https://x", "headers": {"Authorization": f"Bearer {TOKEN}"}},
            old={"url": "https://y", "headers": {"Authorization": "Basic dTpw", "X-Api-Key": "k-1"}},
        )
    )
    assert made.servers["gh"]["secrets"] == {
        "GITHUB_TOKEN": {"store": "gh_GITHUB_TOKEN"},
        "PAGER": {"store": "gh_PAGER"},
    }
    assert made.servers["gh"]["env"] == {"DEBUG_KEY": "true", "E_KEY": ""}
    assert made.servers["far"] == {"url": "https://x", "auth": {"store": "far_authorization"}}
    assert made.servers["old"]["headers"] == {"Authorization": "{Authorization}", "X-Api-Key": "{X_Api_Key}"}
    assert made.secrets == {
        "gh_GITHUB_TOKEN": "plain-value",
        "gh_PAGER": TOKEN,
        "far_authorization": TOKEN,
        "old_Authorization": "Basic dTpw",
        "old_X_Api_Key": "k-1",
    }
    for value in made.secrets.values():
        assert value not in made.toml + repr(made) + str(made.problems)


def test_variables_become_references(imported: Callable[..., Import]) -> None:
    made = imported(
        servers(
            a={
                "command": "x",
                "env": {"T": "${TOKEN}", "U": "${env:OTHER}", "D": "${MODE:-fast}", "K_TOKEN": "${K:-d}"},
            },
            b={"url": "https://x", "headers": {"Authorization": "Bearer ${TOKEN}", "X": "pre {it} ${Y} post"}},
        )
    )
    assert made.servers["a"]["secrets"] == {"T": {"env": "TOKEN"}, "U": {"env": "OTHER"}, "K_TOKEN": {"env": "K"}}
    assert made.servers["a"]["env"] == {"D": "fast"}
    assert made.problems == ("a: env D is fixed to its default, 'fast'",)
    assert made.servers["b"] == {
        "url": "https://x",
        "auth": {"env": "TOKEN"},
        "headers": {"X": "pre {it} {Y} post"},
        "defaults": {"it": "{it}"},
        "secrets": {"Y": {"env": "Y"}},
    }


def test_what_cannot_be_said_here_comes_disabled_with_the_reason(imported: Callable[..., Import]) -> None:
    """Nothing is lost without a word."""
    made = imported(
        servers(
            args={"command": "x", "args": ["${HOME}/d", "${MODE:-fast}", "{lit}"]},
            mixed={"command": "x", "env": {"URL": "http://${HOST}/"}},
            program={"command": "${BIN}"},
            port={"command": "x", "args": ["{port}"]},
            shape={"command": "x", "env": ["A=b"], "args": "x"},
            twice={"command": "x", "args": ["{a}", "${a:-b}"]},
        )
    )
    assert made.servers["args"]["args"] == ["{HOME}/d", "{MODE}", "{lit}"]
    assert made.servers["args"]["defaults"] == {"MODE": "fast", "lit": "{lit}"}
    assert made.servers["mixed"]["secrets"] == {"URL": {"store": "mixed_URL"}}
    assert made.wanted == ("mixed_URL",)
    assert all(table["enabled"] is False for table in made.servers.values())
    assert [problem.partition(":")[0] for problem in made.problems] == [
        *("args", "mixed", "program", "port", "shape", "shape", "twice"),
    ]


def test_what_has_no_counterpart_is_named(imported: Callable[..., Import]) -> None:
    made = imported(
        servers(
            a={"command": "x", "timeout": 5, "disabled": True, "tools": ["read_*"], "headers": {"A": "b"}},
            b={"url": "https://x", "env": {"A": "b"}, "tools": ["*"], "enabled": False},
            c={"note": "neither"},
            d={},
            e={"command": "x", "env": {"A=": "b"}},
            f={"command": "x", "args": ["--api-key", TOKEN], "tools": 5},
            g={"url": "https://x/?api_key=abcdefghij"},
            h={"command": "x", "args": ["--token=abc", "--key", "--other"]},
            i={"command": "x", "args": ["--key", "--token"]},
        )
    )
    assert made.servers["a"] == {"command": "x", "enabled": False, "tools": {"allow": ["read_*"]}}
    assert made.servers["b"] == {"url": "https://x", "enabled": False}
    assert made.servers.keys() == set("abfghi")
    assert sorted(made.problems) == [
        'a: "timeout" has no counterpart and is left out',
        "a: headers are for remotes and are left out",
        "b: env is for programs and is left out: it has a url",
        "c: it has neither command nor url and is left out",
        "d: it says nothing and is left out",
        'e: mcp_servers.e.env."A=": "A=" cannot be a name: use at most 128 of A-Z, a-z, 0-9, "-", "_" and "."; '
        "it is left out",
        'f: "tools" is not a list of names and is left out',
        "f: args seem to hold a secret; they stay in the file and are visible in ps",
        "g: url seems to hold a secret; it stays in the file",
        "h: args seem to hold a secret; they stay in the file and are visible in ps",
    ]


def test_names_become_ours_and_clashes_are_told(imported: Callable[..., Import]) -> None:
    there = "[mcp_servers.taken]\ncommand='mine'\n[mcp_groups]\ngroup=['taken']\n"
    made = imported(
        {
            "mcpServers": {
                "My Server!": {"command": "a"},
                "my-server": {"command": "b"},
                "MY SERVER": {"command": "c"},
                "list": {"command": "d"},
                "数": {"command": "e"},
                "taken": {"command": "f"},
                "group": {"command": "g"},
            }
        },
        there,
    )
    assert {name: table["command"] for name, table in made.servers.items()} == {
        "my-server": "a",
        "my-server-2": "b",
        "my-server-3": "c",
        "list-server": "d",
        "server": "e",
    }
    assert imported(servers(**{"a-b": {"command": "x"}, "a_b": {"command": "y"}})).servers.keys() == {"a-b", "a_b-2"}
    assert 'my-server: called "My Server!" there' in made.problems
    assert [problem for problem in made.problems if "name is taken" in problem] == [
        "taken: the name is taken in your configuration; rename one of them",
        "group: the name is taken in your configuration; rename one of them",
    ]


def test_projects_of_claude_code_are_read_and_equal_servers_are_one(imported: Callable[..., Import]) -> None:
    document = {
        "numStartups": 5,
        "mcpServers": {"a": {"command": "x", "env": {"A_KEY": "k"}}},
        "projects": {
            "/p": {
                "mcpServers": {"a": {"type": "stdio", "command": "x", "env": {"A_KEY": "k"}}, "b": {"command": "y"}}
            },
            "/q": {"mcpServers": {"b": {"command": "z"}}},
            "/r": {"allowedTools": []},
        },
    }
    made = imported(document)
    assert {name: table["command"] for name, table in made.servers.items()} == {"a": "x", "b": "y", "b-2": "z"}


def test_equal_servers_with_other_secrets_are_two(imported: Callable[..., Import]) -> None:
    entry = {"command": "x", "env": {"A_KEY": "one"}}
    made = imported(
        {"mcpServers": {"a": entry}, "projects": {"/p": {"mcpServers": {"a": {**entry, "env": {"A_KEY": "two"}}}}}}
    )
    assert made.secrets == {"a_A_KEY": "one", "a-2_A_KEY": "two"}


def test_inputs_of_vs_code_are_asked_for_or_filled_in(imported: Callable[..., Import]) -> None:
    made = imported(
        """
        {
          // settings
          "inputs": [
            { "type": "promptString", "id": "key", "description": "a // b", "password": true, "default": "no" },
            { "type": "promptString", "id": "dir", "default": "/d", },
          ],
          /* the servers */
          "servers": {
            "a": { "command": "x", "env": { "KEY": "${input:key}", "DIR": "${input:dir}" }, "args": ["${input:dir}"] },
            "b": { "type": "http", "url": "https://x", "headers": { "Authorization": "Bearer ${input:key}" } },
          },
        }
        """
    )
    assert made.servers == {
        "a": {
            "command": "x",
            "args": ["{dir}"],
            "env": {"DIR": "/d"},
            "defaults": {"dir": "/d"},
            "secrets": {"KEY": {"store": "key"}},
        },
        "b": {"url": "https://x", "auth": {"store": "key"}},
    }
    assert made.wanted == ("key",)
    assert imported({"mcp": {"servers": {"a": {"command": "x"}}}, "servers": {}}).servers.keys() == {"a"}


@pytest.mark.parametrize("as_text", [False, True])
def test_the_arrays_of_shepherd_are_read_and_smcp_stays_smcp(imported: Callable[..., Import], as_text: bool) -> None:
    """A1 A19: SMCP servers are SMCP even without credentials."""
    plain = [{"name": "p", "command": "/p", "args": ["-a"], "env": {"KEY": "value"}}]
    secure = [
        {"name": "s", "command": "/s", "args": [], "credentials": {"DB": "pw", "V": "${VAR}"}},
        {"name": "e", "command": "/e", "credentials": {}},
        {"name": "n", "command": "/n"},
    ]
    document = {"mcp_config": plain, "smcp_config": secure}
    made = imported({key: json.dumps(value) for key, value in document.items()} if as_text else document)
    assert made.servers == {
        "p": {"command": "/p", "args": ["-a"], "secrets": {"KEY": {"store": "p_KEY"}}},
        "s": {"command": "/s", "credentials": {"DB": {"store": "s_DB"}, "V": {"env": "VAR"}}},
        "e": {"command": "/e", "credentials": {}},
        "n": {"command": "/n", "credentials": {}},
    }
    assert made.secrets == {"p_KEY": "value", "s_DB": "pw"}
    assert imported({"mcp_servers": plain, "smcp_servers": secure}) == made
    assert "credentials" in imported(secure, name="smcp_config.json").servers["n"]
    assert "credentials" not in imported(secure).servers["n"]
    assert "credentials" in imported(secure).servers["e"]
    assert imported([{"command": "x"}]).servers.keys() == {"unnamed"}


@pytest.mark.parametrize("text", ["", "{", "5", "{}", '{"x": {}}', '{"mcpServers": 3}', "[" * 100_000, '"x"', "null"])
def test_what_holds_no_servers_is_an_error(imported: Callable[..., Import], text: str) -> None:
    with pytest.raises(ConfigError, match=r"not valid JSON|no servers in it"):
        imported(text)


def test_an_empty_list_is_no_error(imported: Callable[..., Import]) -> None:
    assert imported({"mcpServers": {}}).servers == {}
    assert imported({"mcp_config": "{"}).servers == {}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secrets:
    monkeypatch.setattr(secrets_module, "usable_keyring", lambda: None)
    return Secrets(Home.locate({"MOORING_HOME": str(tmp_path)}))


DOCUMENT = json.dumps(servers(a={"command": "x", "env": {"A_TOKEN": TOKEN, "B": "{b}"}}, b={"url": "https://x"}))


def test_importing_writes_secrets_to_the_store_and_servers_to_the_file(
    write: Callable[..., Path], tmp_path: Path, secrets: Secrets
) -> None:
    """R22 A22."""
    file = write("# mine\n")
    there = load(file)
    made = plan_import(DOCUMENT, there)
    assert file.read_text() == "# mine\n"
    assert made.write(there, secrets) == (str(file),)
    assert file.read_text().startswith("# mine\n")
    assert TOKEN not in file.read_text()
    assert secrets.store_names() == ["a_A_TOKEN"]
    assert load(file).config.mcp_servers["a"].secrets["A_TOKEN"].store == "a_A_TOKEN"


def test_importing_twice_changes_nothing_even_after_disabling(write: Callable[..., Path], secrets: Secrets) -> None:
    file = write("")
    plan_import(DOCUMENT, load(file)).write(load(file), secrets)
    file.write_text(file.read_text() + "enabled = false\n")
    before = file.read_text()
    again = plan_import(DOCUMENT, load(file))
    assert (again.servers, again.problems, again.unchanged) == ({}, (), ("a", "b"))
    assert again.write(load(file), secrets) == ()
    assert file.read_text() == before


def test_an_import_that_would_not_be_valid_stores_no_secret(write: Callable[..., Path], secrets: Secrets) -> None:
    file = write("")
    made = plan_import(DOCUMENT, load(file))
    there = load(file)
    file.write_text("# changed meanwhile\n")
    with pytest.raises(ConfigError, match="try again"):
        made.write(there, secrets)
    assert secrets.store_names() == []


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
TEXTS = st.text(alphabet="ab${}:-_ T", max_size=10)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "command": st.one_of(TEXTS, JSON),
        "url": st.one_of(TEXTS.map("https://".__add__), JSON),
        "args": st.one_of(st.lists(TEXTS, max_size=3), JSON),
        "env": st.one_of(st.dictionaries(st.sampled_from(["A", "A_KEY", "x"]), TEXTS), JSON),
        "headers": st.one_of(st.dictionaries(st.sampled_from(["Authorization", "X"]), TEXTS), JSON),
        "credentials": JSON,
        "tools": JSON,
        "other": JSON,
    },
)


@given(st.dictionaries(st.text(max_size=5), st.one_of(ENTRIES, JSON), max_size=3))
def test_any_document_gives_a_valid_configuration_and_nothing_new_the_second_time(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, Any]
) -> None:
    """A19: what is taken over resolves, every entry is taken over or named, and a second import adds nothing."""
    file = tmp_path_factory.mktemp("i") / "mooring.toml"
    text = json.dumps({"mcpServers": entries})
    made = plan_import(text, load(file))
    assert len(made.servers) + len(made.problems) >= (1 if entries else 0)
    file.write_text(made.toml)
    resolve(load(file), fingerprint=lambda _: "", unsupported=lambda _: "")
    again = plan_import(text, load(file))
    assert again.servers == {}
    assert set(made.servers) == set(again.unchanged)


@given(JSON)
def test_plain_json_is_read_as_it_is(value: Any) -> None:
    assert loads(json.dumps(value)) == value
    assert loads("\ufeff// c\n" + json.dumps(value, indent=1) + "/* , } */") == value


def test_comments_and_commas_in_strings_stay() -> None:
    assert loads('{"a": "// b, ]", "c": "/* d */,}", /* e */ "f": [1, // g\n 2, /* h */ ], }') == {
        "a": "// b, ]",
        "c": "/* d */,}",
        "f": [1, 2],
    }


def test_secrets_are_told_by_name_or_form() -> None:
    for name in ("TOKEN", "GITHUB_PAT", "apiKey", "X-Api-Key", "DB_PASSWORD", "Authorization", "client_secret"):
        assert secret_name(name), name
    for name in ("", "1", "PATH", "KEY_FILE", "TOKEN_URL", "HOME", "SECRET_NAME", "PATTERN"):
        assert not secret_name(name), name
    for value in (
        TOKEN,
        "sk-" + "a" * 20,
        "postgres://u:p@h/db",
        "x -----BEGIN RSA PRIVATE KEY-----",
        "eyJhb.eyJz.sig",
    ):
        assert secret_value(value), value
    for value in ("", "https://host/path", "postgres://h:5432/db", "sk-1", "hello world"):
        assert not secret_value(value), value
