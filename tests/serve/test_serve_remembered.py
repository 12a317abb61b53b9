"""A boot from the plan of the last run gives what reading the configuration again would give, or is not done."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mooring.config.home import Home
from mooring.config.plan import Plan
from mooring.config.secrets import Secrets
from mooring.serve.reload import Configuration
from mooring.serve.remembered import SETTLED, Remembered, settled
from mooring.store.sqlite import SqliteStore

TEXT = """
[gateway]
listen = ["127.0.0.1:0"]
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time", "--local-timezone", "{tz}"]
defaults = { tz = "UTC" }
[mcp_servers.docs]
url = "https://docs.example/mcp"
[mcp_servers.pages]
image = "example.com/pages"
port = 8931
network = ["github.com:443"]
[workspaces.alice]
mcp_servers = ["*"]
[workspaces.alice.mcp.time]
tz = "Europe/Paris"
"""
WITH_SECRET = '\n[mcp_servers.hidden]\ncommand = "cat"\nsecrets = { TOKEN = { env = "MOORING_TEST_TOKEN" } }\n'


class Bench:
    """A configuration file and a store, as a daemon has them."""

    def __init__(self, folder: Path, store: SqliteStore) -> None:
        self.file = folder / "mooring.toml"
        self.home = Home.below(folder)
        self.store = store
        self.plugins = "mark"
        self.write(TEXT)

    def write(self, text: str, name: str = "mooring.toml") -> Path:
        """A file that was left alone long enough."""
        file = self.file.parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    async def run_once(self) -> Plan:
        """What a daemon does that reads its files: it resolves and remembers."""
        configuration = Configuration(str(self.file), Secrets(self.home), self.home)
        plan = configuration.resolved()
        # Long after the files were written, so that this test need not wait.
        await self.remembered().keep(plan, configuration.read_at + 10 * SETTLED)
        return plan

    def remembered(self) -> Remembered:
        return Remembered(self.store, str(self.file), lambda: self.plugins)

    def recalled(self) -> Plan | None:
        return self.remembered().recall()


@asynccontextmanager
async def bench_in(folder: Path) -> AsyncGenerator[Bench]:
    async with SqliteStore(folder / "mooring.db") as store:
        yield Bench(folder, store)


async def test_an_unchanged_configuration_gives_the_same_plan_without_reading_it(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        assert bench.recalled() is None
        plan = await bench.run_once()
        assert bench.recalled() == plan
        assert bench.recalled() is not plan


@pytest.mark.parametrize("change", ["edit", "touch", "beside", "conf.d", "gone", "replaced"])
async def test_any_change_of_the_files_makes_it_read_again(tmp_path: Path, change: str) -> None:
    async with bench_in(tmp_path) as bench:
        extra = bench.write("[mcp_servers.more]\ncommand = 'cat'\n", "conf.d/more.toml")
        await bench.run_once()
        assert bench.recalled() is not None
        match change:
            case "edit":
                bench.write(TEXT.replace("Paris", "Oslo"))
            case "touch":
                os.utime(bench.file)
            case "beside":
                bench.write("", "new.toml")
            case "conf.d":
                bench.write("[mcp_servers.other]\ncommand = 'cat'\n", "conf.d/other.toml")
            case "gone":
                extra.unlink()
            case _:
                status = bench.file.stat()
                copy = bench.write(TEXT.replace("Paris", "Osloo"), "copy")
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
                copy.replace(bench.file)
        assert bench.recalled() is None


async def test_a_plan_that_depends_on_secrets_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_TEST_TOKEN", "s3cret-value")
    async with bench_in(tmp_path) as bench:
        await bench.run_once()
        bench.write(TEXT + WITH_SECRET)
        await bench.run_once()
        assert bench.recalled() is None
    assert b"s3cret" not in b"".join(file.read_bytes() for file in tmp_path.glob("mooring.db*"))


async def test_another_main_file_home_or_mooring_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench_in(tmp_path) as bench:
        await bench.run_once()
        assert Remembered(bench.store, str(tmp_path / "other.toml"), lambda: bench.plugins).recall() is None
        with monkeypatch.context() as patch:
            patch.setenv("HOME", "/elsewhere")
            assert bench.recalled() is None
        monkeypatch.setattr("mooring.serve.remembered.__version__", "99")
        assert bench.recalled() is None


async def test_other_plugins_make_it_read_again(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        await bench.run_once()
        assert bench.recalled() is not None
        bench.plugins = "another"
        assert bench.recalled() is None
        bench.plugins = ""
        await bench.run_once()
        assert bench.recalled() is None  # nobody had looked for plugins


async def test_what_another_mooring_kept_is_ignored(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        await bench.run_once()
        (row,) = bench.store.rows("meta", name="plan")
        strange = msgspec.json.decode(row[0])
        next(iter(strange["plan"]["variants"].values()))["launch"]["type"] = "balloon"
        await bench.store.run("put_meta", name="plan", value=msgspec.json.encode(strange).decode())
        assert bench.recalled() is None


def test_a_file_that_changed_just_before_it_was_read_may_have_changed_again() -> None:
    now = time.time_ns()
    assert settled({"a": (0, 1, 2, now - SETTLED - 1)}, now)
    assert not settled({"a": (0, 1, 2, now - SETTLED - 1), "b": (0, 1, 2, now - SETTLED)}, now)
    assert not settled({"a": (0, 1, 2, now + 1)}, now)
