"""The HTTP side, the files that are watched, and what the person at the terminal is told."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.config.plan import Gateway, Mount, Plan, Variant, Workspace
from mooring.config.plan_servers import Functions
from mooring.errors import MooringError
from mooring.nouns import Facts, InstanceRow, Item, Listing, NewKey
from mooring.relay.listings import Listings
from mooring.relay.table import build
from mooring.relay.views import Views
from mooring.serve import banner, daemon, library, reload, rows
from mooring.serve.app import App
from mooring.serve.front import fronts
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.testing import wait_for

SECRET = "sk-secret-4711"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncGenerator[App]:
    file = tmp_path / "mooring.toml"
    file.write_text('[gateway]\nlisten = ["127.0.0.1:0"]\n')
    async with library.opened(file) as verbs, fronts(verbs._app):
        yield verbs._app


async def get(app: App, path: str, host: str = "") -> tuple[int, bytes]:
    address = app.endpoint.removeprefix("http://").removesuffix("/mcp")
    name, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host or address}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_health_says_whether_the_newest_configuration_holds_and_no_secret(app: App) -> None:
    """R22: pages without a key carry no secrets."""
    assert await get(app, "/healthz") == (200, b'{"status":"ok","config_error":null}')
    Path(app.configuration.file).write_text(f'[mcp_servers.a]\ncommand = "x"\nsecrets = {{ T = "{SECRET}" }}\n')
    assert not (await app.reload()).applied
    status, body = await get(app, "/healthz")
    assert status == 200
    assert b"mooring.toml:3" in body
    assert SECRET.encode() not in body


async def test_metrics_are_text_and_need_no_key(app: App) -> None:
    status, body = await get(app, "/metrics")
    assert status == 200
    assert b"# TYPE mooring_" in body
    assert (await get(app, "/mcp"))[0] == 401
    assert (await get(app, "/"))[0] == 404


async def test_a_foreign_host_is_refused_until_a_reload_allows_it(app: App) -> None:
    assert (await get(app, "/healthz", "evil.example"))[0] == 421
    Path(app.configuration.file).write_text('[gateway]\nlisten = ["127.0.0.1:0"]\nallowed_hosts = ["evil.example"]\n')
    assert (await app.reload()).needs_restart == ()
    assert (await get(app, "/healthz", "evil.example"))[0] == 200


async def test_an_address_that_is_taken_is_named(app: App, tmp_path: Path) -> None:
    port = app.endpoint.split(":")[2].partition("/")[0]
    other = tmp_path / "other.toml"
    other.write_text(f'[gateway]\nlisten = ["127.0.0.1:{port}"]\n')
    async with library.opened(other) as verbs:
        with pytest.raises(MooringError, match=f"127.0.0.1:{port}.*gateway.listen"):
            async with fronts(verbs._app):
                pass


async def test_a_change_of_any_file_is_seen_once_and_a_failure_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "LOOK", 0.02)
    main = tmp_path / "mooring.toml"
    main.write_text("")
    seen: list[int] = []

    async def changed() -> None:
        seen.append(len(seen))
        if len(seen) == 1:
            raise OSError("no space left on device")

    async with reload.watching(lambda: (str(main),), changed):
        await asyncio.sleep(0.05)
        assert seen == []
        main.write_text("# one")
        await wait_for(lambda: len(seen) == 1)
        (tmp_path / "conf.d").mkdir()
        (tmp_path / "conf.d" / "more.toml").write_text("")
        await wait_for(lambda: len(seen) == 2)
        (tmp_path / "note.txt").write_text("")
        await asyncio.sleep(0.1)
        main.unlink()
        await wait_for(lambda: len(seen) == 3)


def test_all_workspaces_may_offer_something_else_when_pins_become_strict() -> None:
    rooms = {"w": Workspace("w"), "v": Workspace("v")}
    kept, strict = Plan(workspaces=rooms), Plan(Gateway(pins="strict"), workspaces=rooms)
    assert reload.changed_workspaces(kept, kept) == []
    assert reload.changed_workspaces(kept, strict) == reload.changed_workspaces(strict, kept) == ["w", "v"]


async def test_a_change_between_the_reading_and_the_watch_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "LOOK", 0.02)
    main = tmp_path / "mooring.toml"
    main.write_text("")
    await asyncio.sleep(0.02)
    read_at, seen = time.time(), list[int]()

    async def changed() -> None:
        seen.append(len(seen))

    async with reload.watching(lambda: (str(main),), changed, read_at):
        await asyncio.sleep(0.1)
        assert seen == []
    await asyncio.sleep(0.02)
    main.write_text("# changed meanwhile")
    async with reload.watching(lambda: (str(main),), changed, read_at):
        await wait_for(lambda: len(seen) == 1)
        await asyncio.sleep(0.1)
        assert len(seen) == 1


def test_a_key_is_printed_to_whoever_started_the_daemon_and_into_no_journal(tmp_path: Path) -> None:
    """R22: a verb that starts a daemon throws its output away, a service manager keeps it."""
    ask = [sys.executable, "-c", "import sys; from mooring.serve import daemon; sys.exit(0 if daemon._read() else 9)"]
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "out").open("wb") as file:
        readers = {subprocess.PIPE: 0, file.fileno(): 0, subprocess.DEVNULL: 9, theirs.fileno(): 9}
        for stdout, expected in readers.items():
            assert subprocess.run(ask, stdout=stdout, timeout=30, check=False).returncode == expected


@pytest.mark.parametrize("read", [True, False])
async def test_a_first_key_is_made_only_where_it_is_read(app: App, read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22"""
    monkeypatch.setattr(daemon, "_read", lambda: read)
    made = await daemon._first_key(app)
    assert (made is not None) is read
    assert len(app.keys.rows()) == int(read)
    assert await daemon._first_key(app) is None or not read


def variant(name: str, **more: Any) -> Variant:
    return Variant(id=name, server=name, kwargs="{}", digest="d", launch=Functions(name), **more)


def test_the_banner_shows_a_key_once_and_quotes_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_HOME", '/tmp/my "home')
    room = Workspace("w", (Mount("w", "a", "a", "a"),), anonymous=True)
    plan = Plan(variants={"a": variant("a", unavailable="it is switched off")}, workspaces={"w": room})
    shown = banner.banner(plan, "http://127.0.0.1:1/mcp", NewKey("mrg_value", "k", "w"))
    assert "Bearer mrg_value" in shown
    assert "needs no key from this machine" in shown
    assert "unavailable a: it is switched off" in shown
    assert msgspec.json.encode('/tmp/my "home').decode() in shown
    without = banner.banner(plan, "http://127.0.0.1:1/mcp", None)
    assert "mrg_" not in without
    assert "MOORING_HOME='/tmp/my \"home'" in without


def test_the_tools_at_the_terminal_are_those_that_are_offered() -> None:
    items = tuple(Item(name, b'{"name":"x"}') for name in ("read", "wipe\x1b[2J", *(f"tool_{n}" for n in range(50))))
    mounts = [Mount("w", "a", "a", "a"), Mount("w", "b", "b", "b")]
    variants = {name: variant(name) for name in ("a", "b")}
    table = build(mounts, variants, {"a": Listing(Facts("legacy", "x"), tools=items)})
    shown = banner.tools({"w": table})
    assert "52 tools in workspace w:" in shown
    assert "a_read, " in shown
    assert ", ..." in shown
    assert "\x1b" not in shown
    assert "  b:" not in shown


async def test_ps_has_a_line_for_everything_that_could_run() -> None:
    """A34: status without connecting."""
    async with SqliteStore(MEMORY) as store:
        listings = Listings(store)
        rooms = {name: Workspace(name, (Mount(name, "a", "a", "a", "workspace"),)) for name in ("w", "v")}
        plan = Plan(variants={"a": variant("a"), "b": variant("b", unavailable="switched off")}, workspaces=rooms)
        views = Views(plan, listings)
        await listings.put(plan.variants["a"], Listing(Facts("legacy", "x"), tools=(Item("t", b"{}"),)))
        running = [
            InstanceRow("a", "a", "ready", "w:w", workspaces=("w",)),
            InstanceRow("a", "a", "ready", "s:12345678"),
            InstanceRow("old", "old", "stopping"),
        ]
        shown = rows.instance_rows(running, plan, listings, views)
        assert [(row.server, row.state, row.workspaces, row.tools) for row in shown] == [
            ("a", "ready", ("w",), 1),
            ("a", "ready", ("w", "v"), 1),
            ("b", "stopped", (), None),
            ("old", "stopping", (), None),
        ]
        assert shown[2].reason == "switched off"
        (asleep, _) = rows.instance_rows([], plan, listings, views)
        assert asleep.reason == "asleep; the next call starts it"
