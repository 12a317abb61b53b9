"""Reading sources: pages, changes, deletions, what breaks off, and when it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from docker_files import checkout, tar, zipped
from registry_server import RegistryServer, listed

from mooring.catalog.entry import Entry
from mooring.catalog.source import Batch, Get
from mooring.config.plan import CatalogSource
from raw_http_server import Exchange, RawServer

DAY = 86400.0


def source(url: str = "", **more: Any) -> CatalogSource:
    return CatalogSource(**({"name": "reg", "kind": "registry", "url": url} | more))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_twenty_thousand_entries_are_paged_through(desk: Any) -> None:
    """R32: all pages, in a time one can wait for."""
    servers = [listed(f"io.github.u{number % 700}/thing-{number}") for number in range(20_000)]
    seen: list[int] = []
    async with RegistryServer(servers) as registry:
        began = time.perf_counter()
        report = await desk.refreshing.refresh(source(registry.url), progress=lambda _, count: seen.append(count))
        took = time.perf_counter() - began
    assert (report.outcome, report.entries, report.added) == ("refreshed", 20_000, 20_000)
    assert len(registry.asked) == 200
    assert seen == sorted(seen)
    assert seen[-1] == 20_000
    assert took < 120
    assert (await desk.ids("thing-19999"))[0] == "reg/io.github.u399/thing-19999"


async def test_only_changes_are_asked_for_and_deletions_heeded(desk: Any) -> None:
    """R32: incremental by ``updated_since``, with the registry's own clock."""
    async with RegistryServer([listed(f"a/{n}", f"2026-01-0{n}T00:00:00Z") for n in range(1, 5)]) as registry:
        origin = source(registry.url)
        await desk.refreshing.refresh(origin)
        registry.put(listed("a/5", "2026-02-01T00:00:00Z"), listed("a/2", "2026-02-02T00:00:00Z", title="Second"))
        registry.remove("a/1", "2026-02-03T00:00:00Z")
        desk.now += DAY
        report = await desk.refreshing.refresh(origin)
        assert (report.entries, report.added, report.changed, report.removed) == (4, 1, 1, 1)
        assert registry.asked[-1]["updated_since"] == "2026-01-04T00:00:00Z"
        assert registry.asked[-1]["include_deleted"] == "true"
        assert await desk.ids("second") == ["reg/a/2"]
        (gone,) = await desk.shelf.copies("reg/a/1")
        assert gone.gone_at
        desk.now += DAY
        report = await desk.refreshing.refresh(origin)
        assert registry.asked[-1]["updated_since"] == "2026-02-03T00:00:00Z"
        assert (report.added, report.changed, report.removed) == (0, 0, 0)


async def test_what_a_registry_lost_without_a_word_goes_with_the_next_full_listing(desk: Any) -> None:
    """R32: removes vanished entries."""
    async with RegistryServer([listed("a/1"), listed("a/2")]) as registry:
        await desk.refreshing.refresh(source(registry.url))
        del registry.servers["a/1"]
        desk.now += DAY
        assert (await desk.refreshing.refresh(source(registry.url))).removed == 0
        desk.now += 7 * DAY
        report = await desk.refreshing.refresh(source(registry.url))
        assert (report.removed, report.entries) == (1, 1)
        assert "updated_since" not in registry.asked[-1]


async def test_a_listing_that_breaks_off_keeps_what_came_and_takes_nothing_away(desk: Any) -> None:
    """R32: a failure is reported as one; the next refresh starts over."""
    servers = [listed(f"a/{number}", f"2026-01-01T00:00:{number % 60:02}Z") for number in range(350)]
    async with RegistryServer(servers) as registry:
        origin = source(registry.url)
        registry.breaks_at = 2
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.entries) == ("failed", 200)
        assert "broke the connection off" in report.error
        (row,) = await desk.refreshing.rows([origin])
        assert (row.state, row.entries, row.refreshed_at) == ("failed", 200, None)
        registry.breaks_at = None
        desk.now += 1
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.entries, report.added, report.error) == ("refreshed", 350, 150, "")
        assert "updated_since" not in registry.asked[-1]
        desk.now += DAY
        registry.breaks_at = 0
        registry.put(listed("a/0", "2027-01-01T00:00:00Z"))
        assert (await desk.refreshing.refresh(origin)).outcome == "failed"
        (row,) = await desk.refreshing.rows([origin])
        assert (row.state, row.entries) == ("failed", 350)


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (b"<html>", 200, "answered with something else"),
        (b'{"servers": 5}', 200, "answered with something else"),
        (b"{}", 503, "HTTP 503"),
        (b"\xff\xfe", 200, "answered with something else"),
    ],
)
async def test_a_registry_that_is_none_is_reported(desk: Any, answer: bytes, status: int, why: str) -> None:
    """R32"""
    async with RegistryServer() as registry:
        registry.answer, registry.status = answer, status
        report = await desk.refreshing.refresh(source(registry.url))
    assert report.outcome == "failed"
    assert why in report.error


async def test_a_registry_that_goes_in_circles_is_left(desk: Any) -> None:
    async with RegistryServer([listed(f"a/{number}") for number in range(250)]) as registry:
        registry.circles = True
        report = await desk.refreshing.refresh(source(registry.url))
    assert "gives the cursor '100' twice" in report.error


async def test_a_registry_that_is_not_there_is_reported(desk: Any) -> None:
    async with RegistryServer() as registry:
        url = registry.url
    report = await desk.refreshing.refresh(source(url))
    assert "cannot be reached" in report.error


async def test_records_that_are_not_understood_are_left_out_and_named(desk: Any) -> None:
    async with RegistryServer([listed("a/1")]) as registry:
        registry.servers |= {
            "b": {"server": {"name": "b/2", "packages": 5}},
            "c": {"no": "server", "server": {"name": "c"}, "_meta": 3},
        }
        registry._page = lambda asked: {"servers": [*registry.servers.values(), 7], "metadata": {}}  # type: ignore[method-assign]
        report = await desk.refreshing.refresh(source(registry.url))
        assert (report.outcome, report.entries) == ("refreshed", 2)
        assert [problem.partition(":")[0] for problem in report.problems] == ["b/2", "a record without a name"]
        (row,) = await desk.refreshing.rows([source(registry.url)])
        assert row.problems == report.problems


async def test_a_version_that_is_not_the_latest_is_passed_over(desk: Any) -> None:
    old = listed("a/1", version="0.1")
    old["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] = False
    async with RegistryServer([old, listed("a/2")]) as registry:
        report = await desk.refreshing.refresh(source(registry.url))
    assert report.entries == 1


async def test_intervals_hold_over_restarts(opened: Any) -> None:
    """R32: the minimum interval is honoured across restarts; force goes past it."""
    async with RegistryServer([listed("a/1")]) as registry:
        origin = source(registry.url, interval=3600.0)
        desk = await opened()
        assert await desk.refreshing.due([origin]) == [origin]
        await desk.refreshing.refresh(origin)
        desk = await opened()
        assert await desk.refreshing.due([origin]) == []
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.next_at) == ("fresh", desk.now + 3600.0)
        assert len(registry.asked) == 1
        assert (await desk.refreshing.refresh(origin, force=True)).outcome == "refreshed"
        desk.now += 3601.0
        assert await desk.refreshing.due([origin]) == [origin]
        assert await desk.ids("1") == ["reg/a/1"]  # and all the while it is found


async def test_after_a_failure_it_is_not_tried_again_at_once(desk: Any) -> None:
    async with RegistryServer() as registry:
        registry.status = 500
        origin = source(registry.url)
        await desk.refreshing.refresh(origin)
        assert await desk.refreshing.due([origin]) == []
        desk.now += 601.0
        assert await desk.refreshing.due([origin]) == [origin]


async def test_what_nobody_configured_goes_to_no_network_by_itself(desk: Any) -> None:
    """The registries that are known without configuration wait until a person asks once."""
    async with RegistryServer([listed("a/1")]) as registry:
        origin = source(registry.url, asked_first=True)
        assert await desk.refreshing.due([origin]) == []
        await desk.refreshing.refresh(origin)
        desk.now += 2 * DAY
        assert await desk.refreshing.due([origin]) == [origin]
        never = source(registry.url, name="never", interval=0.0)
        await desk.refreshing.refresh(never)
        desk.now += 900 * DAY
        assert await desk.refreshing.due([never]) == []


async def test_another_place_under_the_same_name_is_read_from_the_start(desk: Any) -> None:
    async with RegistryServer([listed("a/1")]) as one, RegistryServer([listed("a/2")]) as two:
        await desk.refreshing.refresh(source(one.url))
        desk.now += 1
        report = await desk.refreshing.refresh(source(two.url))
        assert (report.outcome, report.added, report.removed) == ("refreshed", 1, 1)
        assert "updated_since" not in two.asked[0]


async def test_a_source_that_is_configured_no_more_is_not_found_any_more(desk: Any) -> None:
    async with RegistryServer([listed("a/1")]) as registry:
        await desk.refreshing.refresh(source(registry.url))
        await desk.refreshing.forget_others([])
        assert await desk.ids("1", order=("reg",)) == []
        report = await desk.refreshing.refresh(source(registry.url))
        assert (report.outcome, report.entries) == ("refreshed", 1)


async def test_one_source_that_fails_harms_no_other(desk: Any) -> None:
    """R32: success or failure per source."""
    async with RegistryServer([listed("a/1")]) as good, RegistryServer() as bad:
        bad.status = 500
        origins = [source(good.url, name="good"), source(bad.url, name="bad"), source(kind="unheard-of", name="odd")]
        reports = await asyncio.gather(*(desk.refreshing.refresh(origin) for origin in origins))
    assert [report.outcome for report in reports] == ["refreshed", "failed", "failed"]
    assert 'kind "unheard-of", which nothing here can read' in reports[2].error


class Slow:
    """A kind of source that a plugin might bring: counts how often it is read, and waits."""

    kind = "slow"
    origins: Sequence[CatalogSource] = ()
    incremental = False

    def __init__(self) -> None:
        self.reads = 0
        self.go = asyncio.Event()

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        self.reads += 1
        yield Batch(entries=[Entry(id=f"{origin.name}/x", source=origin.name, name="x")])
        await self.go.wait()
        if origin.name == "broken":
            raise KeyError("its own mistake")


async def test_one_source_is_read_once_at_a_time(opened: Any) -> None:
    slow = Slow()
    desk = await opened(slow)
    origin = CatalogSource(name="s", kind="slow", url="https://s.example")
    asked = [asyncio.create_task(desk.refreshing.refresh(origin)) for _ in range(5)]
    slow.go.set()
    outcomes = [(await one).outcome for one in asked]
    assert sorted(outcomes) == ["fresh"] * 4 + ["refreshed"]
    assert slow.reads == 1


async def test_a_mistake_in_a_plugins_source_is_that_sources_failure(opened: Any) -> None:
    """R32: one that fails harms no other."""
    slow = Slow()
    slow.go.set()
    desk = await opened(slow)
    report = await desk.refreshing.refresh(CatalogSource(name="broken", kind="slow", url="https://s.example"))
    assert (report.outcome, report.entries, report.error) == ("failed", 1, "KeyError: 'its own mistake'")


async def test_a_refresh_that_is_given_up_leaves_the_source_readable(opened: Any) -> None:
    slow = Slow()
    desk = await opened(slow)
    origin = CatalogSource(name="s", kind="slow", url="https://s.example")
    asked = asyncio.create_task(desk.refreshing.refresh(origin))
    async with asyncio.timeout(10):
        while not slow.reads:
            await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    slow.go.set()
    assert (await desk.refreshing.refresh(origin)).outcome == "refreshed"


class Paged(Slow):
    """With a second page."""

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        async for batch in super().read(origin, mark, get):
            yield batch
        yield Batch(entries=[Entry(id=f"{origin.name}/x2", source=origin.name, name="x2")])


async def test_a_source_that_is_taken_out_while_it_is_read_is_not_found_any_more(opened: Any) -> None:
    slow = Paged()
    desk = await opened(slow)
    asked = asyncio.create_task(desk.refreshing.refresh(CatalogSource(name="s", kind="slow", url="https://s.example")))
    async with asyncio.timeout(10):
        while not slow.reads:
            await asyncio.sleep(0.01)
        await desk.refreshing.forget_others([])
        slow.go.set()
        await asked
    assert await desk.ids("x2", order=("s",)) == []
    assert await desk.store.read("catalog_sources") == []


async def test_a_checkout_and_archives_of_dockers_catalog_give_the_same(desk: Any, tmp_path: Path) -> None:
    """R31: Docker's catalog as a source."""
    folder = checkout(tmp_path / "registry", 40)
    (tmp_path / "a.tar.gz").write_bytes(tar(folder))
    (tmp_path / "a.zip").write_bytes(zipped(folder))
    found: list[list[str]] = []
    for name in ("registry", "a.tar.gz", "a.zip"):
        origin = CatalogSource(name="docker", kind="docker", path=str(tmp_path / name))
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.entries, report.problems) == ("refreshed", 40, ())
        found.append(await desk.ids("made", limit=100))
        assert (await desk.refreshing.refresh(origin)).outcome == "unchanged"
    assert found[0] == found[1] == found[2]
    (folder / "servers" / "made-1" / "server.yaml").write_text("name: [")
    (folder / "servers" / "made-2" / "server.yaml").write_text("- a list")
    (folder / "servers" / "made-3" / "server.yaml").write_text("name: x\nmeta: {updated: 2026-01-01}\n1: 2\n")
    report = await desk.refreshing.refresh(CatalogSource(name="docker", kind="docker", path=str(folder)))
    assert (report.entries, report.removed) == (37, 3)
    assert [problem.partition(":")[0] for problem in report.problems] == ["made-1", "made-2", "made-3"]


async def test_an_archive_is_downloaded_again_only_when_it_changed(desk: Any, tmp_path: Path) -> None:
    content = tar(checkout(tmp_path / "registry", 12))

    async def serve(exchange: Exchange) -> bool:
        if exchange.path == "/moved":
            await exchange.reply(302, b"", location=f"{server.url.rsplit('/', 1)[0]}/there")
        elif exchange.headers.get("if-none-match") == '"v1"':
            await exchange.reply(304)
        else:
            await exchange.reply(200, content, kind="application/gzip", etag='"v1"')
        return True

    async with RawServer() as server:
        server.override = serve
        origin = CatalogSource(name="docker", kind="docker", url=f"{server.url.rsplit('/', 1)[0]}/moved")
        assert (await desk.refreshing.refresh(origin)).entries == 12
        report = await desk.refreshing.refresh(origin, force=True)
        assert (report.outcome, report.entries, report.removed) == ("unchanged", 12, 0)


@pytest.mark.parametrize("content", [b"", b"nothing", zipped(Path("/nonexistent"))])
async def test_what_is_no_catalog_takes_nothing_away(desk: Any, tmp_path: Path, content: bytes) -> None:
    await desk.refreshing.refresh(
        CatalogSource(name="docker", kind="docker", path=str(checkout(tmp_path / "registry", 5)))
    )
    (tmp_path / "broken").write_bytes(content)
    report = await desk.refreshing.refresh(CatalogSource(name="docker", kind="docker", path=str(tmp_path / "broken")))
    assert report.outcome == "failed"
    assert (await desk.shelf.counts())["docker"][0] == 5
    for place in (tmp_path / "absent", tmp_path):
        report = await desk.refreshing.refresh(CatalogSource(name="docker", kind="docker", path=str(place)))
        assert report.outcome == "failed"


OWN = """
[mine]
description = "Ours"
packages = [{ registryType = "pypi", identifier = "mine" }]
[wrong]
descriptin = "typo"
"""


async def test_files_of_ones_own_are_a_source(desk: Any, tmp_path: Path) -> None:
    """R31: user-defined sources."""
    (tmp_path / "a.toml").write_text(OWN, "utf-8-sig")  # as editors on Windows write
    (tmp_path / "b.json").write_text('{"name": "com.us/one", "description": "One"}', "utf-8-sig")
    (tmp_path / "c.json").write_text('{"servers": [{"server": {"name": "com.us/two"}}, 5, {"x": 1}]}')
    (tmp_path / "d.json").write_text("{")
    (tmp_path / "e.txt").write_text("not read")
    origin = CatalogSource(name="own", kind="files", path=str(tmp_path))
    report = await desk.refreshing.refresh(origin)
    assert (report.outcome, report.entries) == ("refreshed", 3)
    assert [problem.partition(": ")[0] for problem in report.problems] == ["a.toml", "c.json", "c.json", "d.json"]
    assert sorted(await desk.ids()) == ["own/com.us/one", "own/com.us/two", "own/mine"]
    assert (await desk.refreshing.refresh(origin)).outcome == "unchanged"
    (row,) = await desk.refreshing.rows([origin])
    assert len(row.problems) == 4  # they are still there
    (tmp_path / "b.json").unlink()
    assert (await desk.refreshing.refresh(origin)).removed == 1
    one_file = CatalogSource(name="own", kind="files", path=str(tmp_path / "a.toml"))
    assert (await desk.refreshing.refresh(one_file)).entries == 1
    absent = CatalogSource(name="own", kind="files", path=str(tmp_path / "absent"))
    assert "does not exist" in (await desk.refreshing.refresh(absent)).error


async def test_changes_that_break_off_in_their_middle_are_asked_for_again(desk: Any) -> None:
    """R32: none is lost, since the time from which changes are asked for is that of the last whole listing."""
    async with RegistryServer([listed("a/0", "2026-01-01T00:00:00Z")]) as registry:
        origin = source(registry.url)
        await desk.refreshing.refresh(origin)
        registry.put(*(listed(f"b/{n}", f"2026-02-01T00:{n // 60:02}:{n % 60:02}Z") for n in range(150)))
        registry.remove("a/0", "2026-03-01T00:00:00Z")
        registry.breaks_at = 1
        desk.now += DAY
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.added) == ("failed", report.entries)
        assert 0 < report.added < 150
        came = report.added
        registry.breaks_at = None
        desk.now += DAY
        report = await desk.refreshing.refresh(origin)
        assert (report.outcome, report.entries, report.added) == ("refreshed", 150, 150 - came)
        assert registry.asked[-1]["updated_since"] == "2026-01-01T00:00:00Z"
