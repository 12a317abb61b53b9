"""The SQLite store: open, write, read, close, and every way in which the file can be wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring import __version__
from mooring.errors import StoreError
from mooring.store import sql, sqlite
from mooring.store.sqlite import MEMORY, SqliteStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mooring.db"


async def put(store: SqliteStore, variant: str, then: Callable[[], None] | None = None, **changes: Any) -> None:
    row = {"variant": variant, "digest": "d", "era": "legacy", "version": "2025-11-25", "seen_at": 1.0}
    await store.run("put_era", then, **{**row, **changes})


def wanted(*variants: str) -> str:
    return json.dumps([[variant, "d"] for variant in variants])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_what_was_written_is_there_after_a_reopen(file: Path) -> None:
    async with SqliteStore(file) as store:
        await put(store, "time")
        await put(store, "time", era="modern", seen_at=2.0)
    async with SqliteStore(file) as store:
        assert store.rows("eras", wanted=wanted("time", "other")) == [("time", "d", "modern", "2025-11-25", 2.0)]
        assert await store.read("eras", wanted=wanted("other")) == []


async def test_memory_is_a_store_of_its_own_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with SqliteStore(MEMORY) as one, SqliteStore(MEMORY) as two:
        await put(one, "time")
        assert len(await one.read("eras", wanted=wanted("time"))) == 1
        assert await two.read("eras", wanted=wanted("time")) == []
    assert list(tmp_path.iterdir()) == []


async def test_r22_nobody_else_may_read_the_file_or_its_side_files(file: Path) -> None:
    """R22: values never appear in state files that others may read; here, the files are the owner's alone."""
    async with SqliteStore(file) as store:
        await put(store, "time")
        assert {path.name: mode(path) for path in file.parent.iterdir()} == {
            "mooring.db": 0o600,
            "mooring.db-wal": 0o600,
            "mooring.db-shm": 0o600,
        }


async def test_a_file_that_others_could_read_is_closed_to_them(file: Path) -> None:
    async with SqliteStore(file):
        pass
    file.chmod(0o644)
    async with SqliteStore(file):
        assert mode(file) == 0o600


async def test_a_listing_is_found_by_definition_and_old_definitions_go_after_a_month(file: Path) -> None:
    async def take(digest: str, listing: bytes, taken_at: float) -> None:
        about = {"variant": "time", "era": "legacy", "capabilities": "", "identity": ""}
        await store.run("put_listing", **about, digest=digest, listing=listing, taken_at=taken_at)

    async def known(*digests: str) -> list[bytes]:
        rows = await store.read("listings", wanted=json.dumps([["time", digest] for digest in digests]))
        return [row[5] for row in rows]

    month = 30 * 86400.0
    async with SqliteStore(file) as store:
        await take("old", b"1", 0.0)
        await take("new", b"2", month)
        assert await known("old", "new") == [b"1", b"2"]
        await take("new", b"3", month + 1)
        assert await known("old", "new") == [b"3"]


async def test_what_is_stored_of_a_variant_goes_a_month_after_it_was_missed_first_and_its_pins_stay(file: Path) -> None:
    day = 86400.0

    async def let_go(now: float, *known: str) -> list[str]:
        await store.run("let_go", known=json.dumps(known), now=now)
        eras = await store.read("eras", wanted=wanted("time", "fresh", "away"))
        about = json.dumps([[variant, "d"] for variant in ("time", "fresh", "away")])
        assert {row[0] for row in eras} == {row[0] for row in await store.read("listings", wanted=about)}
        return sorted(row[0] for row in eras)

    async with SqliteStore(file) as store:
        for variant, at in (("time", 1.0), ("fresh", 45 * day), ("away", 1.0)):
            await put(store, variant, seen_at=at)
            about = {"variant": variant, "digest": "d", "era": "legacy", "capabilities": "", "identity": ""}
            await store.run("put_listing", **about, listing=b"1", taken_at=at)
            await store.run("put_pins", variant=variant, rows='[["t", "x", null, ""]]', now=at)
        assert await let_go(40 * day, "time") == ["away", "fresh", "time"], "missed for the first time"
        assert await let_go(69 * day, "time", "away") == ["away", "fresh", "time"], "it came back"
        assert await let_go(71 * day, "time") == ["away", "fresh", "time"], "one is young, one is missed again"
        assert await let_go(100 * day, "time") == ["away", "time"]
        assert await let_go(102 * day, "time") == ["time"]
        for variant in ("time", "fresh", "away"):
            assert len(await store.read("pins", variant=variant)) == 1


async def test_all_statements_of_a_query_are_written_or_none(file: Path) -> None:
    key = {"hash": b"h", "workspace": "a", "name": "n", "created_at": 1.0, "expires_at": None}
    key |= {"scopes": "[]", "variant": None, "tools": "[]"}
    async with SqliteStore(file) as store:
        await store.run("create_key", replaces="", id="k_1", **key)
        with pytest.raises(StoreError, match="UNIQUE"):  # the hash is taken: k_1 must not have ended for it
            await store.run("create_key", replaces="k_1", id="k_2", **key)
        assert [(row[0], row[-1]) for row in await store.read("keys", revoked_since=0)] == [("k_1", None)]


async def test_memory_follows_when_the_row_is_durable_and_before_run_returns(file: Path) -> None:
    heard: list[str] = []
    async with SqliteStore(file) as store:
        await put(store, "time", lambda: heard.append("then"))
        heard.append("returned")
        with pytest.raises(StoreError):
            await put(store, "time", lambda: heard.append("never"), era=None)
    assert heard == ["then", "returned"]


async def test_memory_follows_also_when_the_caller_has_given_up(file: Path) -> None:
    known = asyncio.Event()
    async with SqliteStore(file) as store:
        task = asyncio.create_task(put(store, "time", known.set))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(known.wait(), 10)
        assert len(await store.read("eras", wanted=wanted("time"))) == 1


async def test_a_reader_that_gives_up_before_its_turn_costs_nothing(file: Path) -> None:
    async with SqliteStore(file) as store:
        go = threading.Event()
        blocked = store._ask(lambda *_: go.wait(10), "meta", {})
        reading = asyncio.create_task(store.read("meta", name="mooring"))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        go.set()
        assert await asyncio.wrap_future(blocked)
        assert await store.read("meta", name="mooring") == [(__version__,)]


async def test_many_writers_at_once_all_get_their_row_in(file: Path) -> None:
    async with SqliteStore(file) as store:
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(put(store, f"v{number}"))
        assert len(store.rows("eras", wanted=wanted(*(f"v{number}" for number in range(100))))) == 100


async def test_a_read_sees_the_writes_that_were_asked_for_before_it(file: Path) -> None:
    async with SqliteStore(file) as store, asyncio.TaskGroup() as tasks:
        tasks.create_task(put(store, "time"))
        seen = tasks.create_task(store.read("eras", wanted=wanted("time")))
        assert len(await seen) == 1


async def test_leaving_the_block_finishes_what_was_asked_for(file: Path) -> None:
    async with SqliteStore(file) as store:
        writing = [asyncio.create_task(put(store, f"v{number}")) for number in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*writing)
    async with SqliteStore(file) as store:
        assert len(store.rows("eras", wanted=wanted(*(f"v{number}" for number in range(20))))) == 20


async def test_leaving_the_block_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CLOSE_LIMIT", 0.05)
    go = threading.Event()
    store = SqliteStore(file)
    async with store:
        hanging = store._ask(lambda *_: go.wait(30), "meta", {})
    go.set()
    assert await asyncio.wait_for(asyncio.wrap_future(hanging), 10)
    await asyncio.wait_for(asyncio.wrap_future(store._ended), 10)


async def test_a_closed_store_says_so(file: Path) -> None:
    store = SqliteStore(file)
    with pytest.raises(StoreError, match="closed"):
        store.rows("meta", name="mooring")
    async with store:
        pass
    with pytest.raises(StoreError, match="closed"):
        await put(store, "time")


async def test_an_unknown_query_is_a_mistake_in_the_code(file: Path) -> None:
    async with SqliteStore(file) as store:
        with pytest.raises(KeyError):
            store.rows("no_such_query")


async def test_a_missing_parameter_is_reported_and_the_store_works_on(file: Path) -> None:
    async with SqliteStore(file) as store:
        with pytest.raises(StoreError, match="could not be used"):
            await store.run("put_era", variant="time")
        await put(store, "time")


async def test_a_full_disk_is_reported_and_the_store_works_on_when_there_is_room(file: Path) -> None:
    async with SqliteStore(file) as store:
        await asyncio.wrap_future(store._ask(lambda db, *_: db.execute("PRAGMA max_page_count = 1"), "meta", {}))
        with pytest.raises(StoreError, match="full"):
            await put(store, "time", version="x" * 1_000_000)
        await asyncio.wrap_future(store._ask(lambda db, *_: db.execute("PRAGMA max_page_count = 100000"), "meta", {}))
        assert store.rows("eras", wanted=wanted("time")) == []
        await put(store, "time")


async def test_a_file_that_is_no_database_is_an_error_that_says_what_to_do_and_stays(file: Path) -> None:
    file.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StoreError, match=r"damaged.*move the file away") as caught:
        async with SqliteStore(file):
            pass
    assert str(file) in str(caught.value)
    assert caught.value.facts() == {"kind": "store", "file": str(file)}
    assert file.read_bytes().startswith(b"this is no database")


async def test_damage_inside_the_file_is_found_when_it_is_read(file: Path) -> None:
    async with SqliteStore(file) as store:
        for number in range(200):
            await put(store, f"v{number}", version="x" * 200)
    with sqlite3.connect(file) as connection:  # all but the pages that say which tables there are
        roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE tbl_name IN ('keys', 'eras')").fetchall()
    connection.close()
    content = bytearray(file.read_bytes())
    for (page,) in roots:
        content[(page - 1) * 4096 : page * 4096] = os.urandom(4096)
    file.write_bytes(content)
    async with SqliteStore(file) as store:
        with pytest.raises(StoreError, match="damaged"):
            store.rows("keys", revoked_since=0)
        with pytest.raises(StoreError, match="damaged"):
            await put(store, "time")


@pytest.mark.parametrize(("meta", "shown"), [(True, "99.1"), (False, "unknown")])
async def test_a_file_of_a_newer_mooring_is_left_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, meta: bool, shown: str
) -> None:
    async with SqliteStore(file) as store:
        await store.run("put_meta", name="mooring", value="99.1")
    with sqlite3.connect(file) as connection:
        if not meta:
            connection.execute("DELETE FROM meta")
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=rf"newer Mooring \({shown}; this is {__version__}\)"):
        async with SqliteStore(file):
            pass
    assert file.read_bytes() == before


async def test_a_folder_that_is_missing_is_an_error(file: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        async with SqliteStore(file.parent / "missing" / "mooring.db"):
            pass


async def test_a_migration_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SqliteStore(file) as store:
        await put(store, "time")
    real = sql.load_migration
    last = max(sql.migrations())
    steps = {**sql.migrations(), last + 1: "new.sql", last + 2: "broken.sql"}
    scripts = {"new.sql": ("CREATE TABLE fresh (x)",), "broken.sql": ("CREATE NONSENSE",)}
    with monkeypatch.context() as patch:
        patch.setattr(sql, "migrations", lambda: steps)
        patch.setattr(sql, "load_migration", lambda name: scripts.get(name) or real(name))
        with pytest.raises(StoreError, match="syntax error"):
            async with SqliteStore(file):
                pass
        scripts["broken.sql"] = ("INSERT INTO fresh VALUES (7)",)
        async with SqliteStore(file) as store:
            assert len(store.rows("eras", wanted=wanted("time"))) == 1
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT x FROM fresh").fetchall() == [(7,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (last + 2,)
    connection.close()


async def test_several_processes_may_open_the_same_new_file_at_once(file: Path) -> None:
    script = "import asyncio, sys\nfrom mooring.store.sqlite import SqliteStore\n"
    script += "async def main():\n  async with SqliteStore(sys.argv[1]): pass\nasyncio.run(main())"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(file)) for _ in range(4)]
    assert await asyncio.wait_for(asyncio.gather(*(process.wait() for process in processes)), 60) == [0, 0, 0, 0]


async def test_giving_up_while_opening_ends_the_thread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(sqlite, "_make_private", lambda path: go.wait(30))
    store = SqliteStore(file)
    opening = asyncio.create_task(store.__aenter__())
    await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go.set()
    await asyncio.wait_for(asyncio.wrap_future(store._ended), 10)


async def test_opening_an_existing_file_is_fast(file: Path) -> None:
    """The daemon's start waits for it: some 1 ms on an idle machine."""
    async with SqliteStore(file) as store:
        await put(store, "time")
    times: list[float] = []
    for _ in range(10):
        started = time.perf_counter()
        async with SqliteStore(file) as store:
            store.rows("keys", revoked_since=0)
            times.append(time.perf_counter() - started)
    assert min(times) < 0.02
