"""The calls of the registry's story, literally: a real SQLite server, in a real container, pulled from a registry."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlite_image
import tomlkit
from container_kit import Kept, Table
from mirror import forget, known, mirrored
from registry import Registry, registry

from mooring.testing import StdioClient, containers, wait_for
from mooring.testing.daemon import Daemon

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
LIMIT = 120.0
NOTHING: dict[str, Any] = {}
DEFAULT = {"default": {"registry": True}}
"""What there is without any configuration."""
CREATE = '{"query": "CREATE TABLE boats (name TEXT)"}'
TOOLS = ("read_query", "write_query", "create_table", "list_tables", "describe_table", "append_insight")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Stands in for docker.io."""
    with registry(sqlite_image.layer(tmp_path_factory.mktemp("server")), sqlite_image.CONFIG) as hub:
        yield hub


@pytest.fixture
async def mirror(engine: str, hub: Registry) -> Any:
    """The hub, well behaved, as the engine's mirror of docker.io; the engine has nothing of it yet."""
    hub.has_nothing = hub.breaks_off = False
    with mirrored(engine, hub.address) as why:
        if why:
            pytest.skip(why)
        forget(engine, sqlite_image.IMAGE, sqlite_image.VOLUME)
        await known(engine, hub.address)
        yield hub
        hub.open.set()
        forget(engine, sqlite_image.IMAGE, sqlite_image.VOLUME)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings folder of a user, in which the daemon registers Mooring at editors."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def client(running: Daemon) -> StdioClient:
    return StdioClient([sys.executable, "-m", "mooring", "registry"], env=running.env, timeout=LIMIT)


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


def kind(result: dict[str, Any]) -> str:
    return result["_meta"]["mooring/error"]["kind"] if result.get("isError") else ""


def adding() -> dict[str, Any]:
    return {"name": "registry_add", "arguments": {"entry_id": "docker/sqlite", "editor": "zed", "prefix": "sqlite"}}


async def test_sqlite_is_added_used_and_removed(
    kept: Kept, engine: str, mirror: Registry, user: Path, tmp_path: Path
) -> None:
    """R33 R34 R35 R40 R41: pull, start, initialize, list, register, keep; call; end."""
    async with kept.daemon(tmp_path / "home", NOTHING, DEFAULT) as running, client(running) as it:
        await it.open()
        added = await it.result("tools/call", {**adding(), "_meta": {"progressToken": "p"}})
        said = text(added).splitlines()
        assert said[0] == "Successfully activated: SQLite", added
        assert said[1] == "Tools: " + ", ".join(f"sqlite_{name}" for name in TOOLS)
        await it.heard("notifications/tools/list_changed")
        steps = [n["params"]["message"] for n in it.notifications if n["method"] == "notifications/progress"]
        assert "pull" in steps
        assert any("/mcp/sqlite/" in path for path in mirror.asked)
        assert (user / "zed" / "settings.json").read_text().count('"mooring"') >= 1

        listed = await it.call("registry_exec", {"tool_name": "sqlite_list_tables", "arguments": {}})
        assert text(listed) == "[]"
        (mount,) = (await it.call("registry_active"))["structuredContent"]["mounts"]
        assert (mount["state"], tuple(mount["tools"])) == ("ready", TOOLS)
        assert containers.inspected(engine, mount["container_id"])["Name"].endswith(mount["container_id"])

        removed = await it.call("registry_remove", {"entry_id": "docker/sqlite"})
        assert text(removed) == "Successfully deactivated: SQLite"
        assert kept.names(running.home) == set()
        assert kind(await it.call("registry_exec", {"tool_name": "sqlite_list_tables"})) == "refused"


async def test_the_same_by_the_command_line(kept: Kept, mirror: Registry, tmp_path: Path) -> None:
    """R34."""
    async with kept.daemon(tmp_path / "home", NOTHING, DEFAULT) as running:
        steps = {
            ("add", "docker/sqlite"): "Successfully activated: SQLite",
            (
                "exec",
                "sqlite_create_table",
                '{"query": "CREATE TABLE boats (name TEXT)"}',
            ): "Table created successfully",
            ("exec", "sqlite_list_tables"): "[{'name': 'boats'}]",
            ("remove", "docker/sqlite"): "Successfully deactivated: SQLite",
        }
        for words, said in steps.items():
            code, out, err = await running.command(*words)
            assert (code, out.partition("\n")[0]) == (0, said), err


@pytest.mark.parametrize("trouble", ["has_nothing", "breaks_off"])
async def test_an_image_that_cannot_be_had_leaves_nothing(
    kept: Kept, mirror: Registry, tmp_path: Path, trouble: str
) -> None:
    """R36: a failed pull has a kind of its own."""
    setattr(mirror, trouble, True)
    async with kept.daemon(tmp_path / "home", NOTHING, DEFAULT) as running:
        async with client(running) as it:
            await it.open()
            failed = await it.result("tools/call", adding())
            assert kind(failed) == "pull_failed", failed
            assert "docker.io/mcp/sqlite" in text(failed)
        assert not await running.mooring.active()
        assert kept.names(running.home) == set()


async def test_a_daemon_that_is_killed_during_a_pull_leaves_nothing(
    kept: Kept, mirror: Registry, tmp_path: Path
) -> None:
    """R34 R37."""
    mirror.open.clear()
    home = tmp_path / "home"
    before = len(mirror.asked)
    async with kept.daemon(home, NOTHING, DEFAULT) as running, client(running) as it:
        await it.open()
        it.begin("tools/call", adding())
        await wait_for(lambda: any("/blobs/" in path for path in mirror.asked[before:]), LIMIT, 0.02)
        os.kill(running.process.pid, signal.SIGKILL)
        await running.ended()
    mirror.open.set()
    async with kept.again(home) as running:
        assert not await running.mooring.active()
        assert kept.names(home) == set()


async def test_a_daemon_that_is_killed_while_it_serves_restores_the_mount(
    kept: Kept, mirror: Registry, tmp_path: Path
) -> None:
    """R37: the old container is gone, the next call starts another."""
    home = tmp_path / "home"
    async with kept.daemon(home, NOTHING, DEFAULT) as running:
        mount = await running.mooring.add("default", "docker/sqlite")
        os.kill(running.process.pid, signal.SIGKILL)
        await running.ended()
        await wait_for(lambda: mount.container_id not in kept.names(home), LIMIT, 0.1)
    async with kept.again(home) as running:
        (again,) = await running.mooring.active()
        assert (again.state, again.container_id, again.tools) == ("stopped", None, TOOLS)
        assert text(await running.mooring.exec("default", "sqlite_list_tables")) == "[]"
        (again,) = await running.mooring.active()
        assert again.state == "ready"
        assert again.container_id is not None


PATIENT = {"start": "10m", "initialize": "10m", "close": "10m"}
"""Limits that outlast the test, so that what is interrupted is still going on."""


def own(home: Path, table: dict[str, Any], **timeouts: str) -> dict[str, Any]:
    """The ``[catalog]`` of a home in which this server is ``own/it``."""
    (home / "entries").mkdir(parents=True)
    package = {
        "registryType": "oci",
        "identifier": table["image"],
        "packageArguments": table["args"],
        "volumes": table["volumes"],
        "environmentVariables": {name: {"value": value} for name, value in table["env"].items()},
    }
    (home / "entries" / "own.toml").write_text(tomlkit.dumps({"it": {"packages": [package]}}))
    return {
        "catalog": {"timeouts": timeouts, "sources": {"own": {"kind": "files", "path": "entries", "trusted": True}}}
    }


@pytest.mark.parametrize("moment", ["add", "remove"])
async def test_a_daemon_that_is_killed_during_an_add_or_a_removal_leaves_nothing(
    kept: Kept, echo: Table, tmp_path: Path, moment: str
) -> None:
    """R34 R37: a server that never gets ready, and one that does not want to go."""
    home = tmp_path / "home"
    table = echo("--start-delay", "600") if moment == "add" else echo("--ignore-term", "--ignore-eof")
    async with kept.daemon(home, NOTHING, DEFAULT, tables=own(home, table, **PATIENT)) as running:
        await running.mooring.catalog_refresh(["own"])
        if moment == "add":
            verb = asyncio.create_task(running.mooring.add("default", "own/it"))
            await wait_for(lambda: kept.names(home), LIMIT, 0.05)
        else:
            await running.mooring.add("default", "own/it")
            verb = asyncio.create_task(running.mooring.remove("default", "own/it"))

            async def begun() -> bool:
                return not await running.mooring.active()

            await wait_for(begun, LIMIT, 0.05)
            assert kept.names(home)
        os.kill(running.process.pid, signal.SIGKILL)
        await running.ended()
        await asyncio.wait([verb], timeout=LIMIT)
        assert verb.exception() is not None
        await wait_for(lambda: not kept.names(home), LIMIT, 0.1)
    async with kept.again(home) as running:
        assert not await running.mooring.active()
        assert kept.names(home) == set()
