"""``mooring auth``: what it says about logins, and to whom it does not apply."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mooring.config.home import Home
from mooring.config.logins import LoginPlace
from mooring.wire.login import Challenge, Client, Login, encoded

Run = Callable[..., Result]
CONFIG = """
[mcp_servers.far]
url = "https://far.example/mcp"
auth = "oauth"
[mcp_servers.many]
url = "https://{tenant}.example/mcp"
auth = "oauth"
[mcp_servers.plain]
url = "https://plain.example/mcp"
[mcp_servers.alone]
url = "https://alone.example/mcp"
auth = "oauth"
[workspaces.a]
mcp_servers = ["far", "many", "plain"]
[workspaces.a.mcp.many]
tenant = "a"
[workspaces.b]
mcp_servers = ["many"]
[workspaces.b.mcp.many]
tenant = "b"
"""
FAR = "https://far.example/mcp"


@pytest.fixture
def home(place: Path) -> Path:
    (place / "mooring.toml").write_text(CONFIG)
    return place


def keep(home: Path, login: Login, name: str = "far") -> None:
    folder = Home.locate({"MOORING_HOME": str(home)}).logins
    LoginPlace(folder, name, lambda: None).change(lambda _: encoded(login))


def status(run: Run, *names: str) -> list[dict[str, Any]]:
    result = run("auth", "status", *names, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_every_server_that_logs_in_is_listed(home: Path, run: Run) -> None:
    """A35: one login for each variant."""
    rows = status(run)
    assert [row["server"] for row in rows] == ["far", "many", "many"]
    assert {row["url"] for row in rows[1:]} == {"https://a.example/mcp", "https://b.example/mcp"}
    assert {row["state"] for row in rows} == {"logged out"}


def test_the_row_of_a_login_is_complete_and_holds_no_token(home: Path, run: Run) -> None:
    ends = time.time() + 1000
    login = Login(
        FAR,
        access_token="t0ps",
        refresh_token="r0fs",
        expires_at=ends,
        scope="a b",
        issuer="https://as.example",
        client=Client("me", "s0cret"),
    )
    keep(home, login)
    (row,) = status(run, "far")
    assert row == {
        "server": "far",
        "variant": "far",
        "url": FAR,
        "state": "logged in",
        "issuer": "https://as.example",
        "client_id": "me",
        "scopes": ["a", "b"],
        "expires_at": ends,
        "renewable": True,
    }
    shown = run("auth", "status").output
    assert "logged in" in shown
    assert not {"t0ps", "r0fs", "s0cret"} & set(shown.split())


@pytest.mark.parametrize(
    ("login", "state"),
    [
        (Login(FAR, access_token="t"), "logged in"),
        (Login(FAR, access_token="t", expires_at=1.0, refresh_token="r"), "logged in"),
        (Login(FAR, access_token="t", expires_at=1.0), "expired"),
        (Login(FAR, access_token="t", challenge=Challenge(401)), "expired"),
        (Login(FAR, access_token="t", challenge=Challenge(403)), "insufficient"),
        (Login(FAR, client=Client("me")), "expired"),
        (Login(FAR, challenge=Challenge(401)), "logged out"),
        (Login("https://other.example/mcp", access_token="t"), "logged out"),
    ],
)
def test_the_state_says_what_there_is_to_do(home: Path, run: Run, login: Login, state: str) -> None:
    keep(home, login)
    assert status(run, "far")[0]["state"] == state


def test_a_server_that_no_workspace_has_can_be_asked_for(home: Path, run: Run) -> None:
    assert status(run, "alone")[0]["variant"] == "alone"


def test_variants_are_told_apart(home: Path, run: Run) -> None:
    result = run("auth", "status", "many")
    assert result.exit_code == 2
    ids = [row["variant"] for row in status(run)[1:]]
    assert all(id in result.stderr for id in ids)
    assert status(run, ids[1])[0]["variant"] == ids[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plain", 'mooring.toml:8: mcp_servers.plain: one does not log in there: it needs url and auth = "oauth"'),
        ("fra", 'there is no server "fra" (did you mean "far"?)'),
    ],
)
@pytest.mark.parametrize("verb", ["status", "login", "logout"])
def test_what_has_no_login_is_named(home: Path, run: Run, verb: str, name: str, message: str) -> None:
    result = run("auth", verb, name)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_logout_forgets_even_what_cannot_be_read(home: Path, run: Run) -> None:
    keep(home, Login(FAR, access_token="t"))
    file = Path(Home.locate({"MOORING_HOME": str(home)}).logins, "far.json")
    file.write_bytes(b"{")
    done = run("auth", "logout", "far")
    assert (done.exit_code, "damaged" in done.stderr) == (0, True)
    assert not file.exists()
    assert run("auth", "logout", "far").exit_code == 0


def test_a_redirect_port_that_is_taken_is_named(home: Path, run: Run) -> None:
    """A35"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = CONFIG.replace('auth = "oauth"', f'auth = "oauth"\noauth = {{ redirect_port = {port} }}', 1)
        (home / "mooring.toml").write_text(config)
        result = run("auth", "login", "far")
    assert result.exit_code == 2
    assert f"oauth.redirect_port {port}: Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('oauth = { client_id = "x" }', 'oauth is for servers with auth = "oauth"'),
        ('auth = "oauth"\noauth = { client_secret = { env = "X" } }', "client_secret needs a client_id"),
        ('auth = "oauth"\noauth = { redirect_port = 0 }', "redirect_port"),
    ],
)
def test_settings_that_make_no_sense_are_errors(place: Path, run: Run, table: str, message: str) -> None:
    (place / "mooring.toml").write_text(f'[mcp_servers.far]\nurl = "https://far.example/mcp"\n{table}\n')
    result = run("check")
    assert result.exit_code == 2
    assert message in result.output


def test_a_missing_client_secret_makes_the_server_unavailable(place: Path, run: Run) -> None:
    oauth = '{ client_id = "me", client_secret = { env = "NOT_SET_ANYWHERE" } }'
    server = f'[mcp_servers.far]\nurl = "https://far.example/mcp"\nauth = "oauth"\noauth = {oauth}\n'
    (place / "mooring.toml").write_text(server)
    result = run("check", "--json")
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["path"] == "mcp_servers.far.oauth.client_secret"
