"""What happens to an add while something else happens: it is taken back, asked for again, or the secrets are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import mooring
from mooring.catalog.errors import NeedsApproval, NotActive
from mooring.config.plan_servers import Process, SecretRef
from mooring.nouns import Listing
from mooring.nouns_registry import ActiveMount
from mooring.observe.events import Events
from mooring.serve import first_start, registry
from mooring.serve.additions import Additions
from mooring.serve.app import App
from mooring.serve.mounts import Record
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.testing import echo, wait_for

LIMIT = 30.0


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@asynccontextmanager
async def opened() -> AsyncGenerator[App]:
    """The parts of a library with two workspaces."""
    async with mooring.open({"workspaces": {"a": {}, "b": {}}}) as m, asyncio.timeout(LIMIT):
        yield m._control._app


async def starting(app: App) -> bool:
    return any(row.state == "starting" and row.pid for row in app.pool.rows())


async def approved(app: App, workspace: str, argv: list[str]) -> str:
    """The id of the approval of a command under the prefix "it"."""
    with pytest.raises(NeedsApproval) as caught:
        await app.registry.launch(workspace, argv[0], "it", argv[1:])
    approval: str = caught.value.details["approval"]
    await app.registry.consent.approve(approval)
    return approval


async def test_what_is_revoked_while_it_starts_is_not_added() -> None:
    argv = echo("--start-delay", "1")
    async with opened() as app:
        approval = await approved(app, "a", argv)
        adding = asyncio.create_task(app.registry.launch("a", argv[0], "it", argv[1:]))
        await wait_for(lambda: starting(app), LIMIT)
        await app.registry.revoke(approval)
        with pytest.raises(NeedsApproval):
            await adding
        assert app.registry.active() == []
        assert app.pool.rows() == []
        assert await app.store.read("mounts") == []


async def test_an_add_that_fails_leaves_the_same_add_of_another_workspace_alone() -> None:
    """Both start the same instance; the first is cancelled."""
    argv = echo("--start-delay", "1")
    async with opened() as app:
        for workspace in ("a", "b"):
            await approved(app, workspace, argv)
        one, other = (
            asyncio.create_task(app.registry.launch(workspace, argv[0], "it", argv[1:])) for workspace in ("a", "b")
        )
        await wait_for(lambda: starting(app), LIMIT)
        one.cancel()
        await asyncio.wait((one,))
        assert (await other).workspace == "b"
        assert [mount.state for mount in app.registry.active()] == ["ready"]


async def test_what_is_removed_while_it_is_configured_stays_removed() -> None:
    argv = echo("--start-delay", "1")
    async with opened() as app:
        await approved(app, "a", argv)
        await app.registry.launch("a", argv[0], "it", argv[1:])
        changing = asyncio.create_task(app.registry.configure("a", "it", {"COLOUR": "red"}, agent=False))
        await wait_for(lambda: starting(app), LIMIT)
        await app.registry.remove("a", "it")
        with pytest.raises(NotActive):
            await changing
        assert app.registry.active() == []


async def test_what_is_configured_while_its_removal_is_written_stays_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does what is removed twice at once: the second time there is nothing to do."""
    argv, go = echo(), threading.Event()
    async with opened() as app:
        await approved(app, "a", argv)
        await app.registry.launch("a", argv[0], "it", argv[1:])
        removing: list[asyncio.Task[ActiveMount]] = []

        async def listed(*given: Any) -> Listing:
            listing = await first_start.listed(*given)
            app.store._ask(lambda *_: go.wait(LIMIT), "meta", {})  # the store has much to do
            removing.extend(asyncio.create_task(app.registry.remove("a", "it")) for _ in range(2))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.1, go.set)
            return listing

        monkeypatch.setattr(registry, "listed", listed)
        with pytest.raises(NotActive):
            await app.registry.configure("a", "it", {"COLOUR": "red"}, agent=False)
        outcomes = await asyncio.gather(*removing, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ActiveMount, NotActive]
        assert app.registry.active() == []
        assert await app.store.read("mounts") == []


async def test_an_add_that_is_cancelled_while_it_is_written_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    argv, go = echo(), threading.Event()
    async with opened() as app:
        await approved(app, "a", argv)

        async def listed(*given: Any) -> Listing:
            listing = await first_start.listed(*given)
            app.store._ask(lambda *_: go.wait(LIMIT), "meta", {})
            asyncio.get_running_loop().call_later(0.1, adding.cancel)
            asyncio.get_running_loop().call_later(0.2, go.set)
            return listing

        monkeypatch.setattr(registry, "listed", listed)
        adding = asyncio.create_task(app.registry.launch("a", argv[0], "it", argv[1:]))
        await asyncio.wait((adding,))
        assert adding.cancelled()
        await wait_for(lambda: bool(app.registry.active()), LIMIT)
        assert [mount.state for mount in app.registry.active()] == ["ready"]
        assert "it" in [mount.prefix for mount in app.plan.workspaces["a"].mounts]


@pytest.mark.parametrize("how", ["remove", "revoke"])
async def test_a_removal_that_is_cancelled_while_it_is_written_is_whole(how: str) -> None:
    argv, go = echo(), threading.Event()
    async with opened() as app:
        approval = await approved(app, "a", argv)
        await app.registry.launch("a", argv[0], "it", argv[1:])
        app.store._ask(lambda *_: go.wait(LIMIT), "meta", {})
        removed = app.registry.remove("a", "it") if how == "remove" else app.registry.revoke(approval)
        removing = asyncio.ensure_future(removed)
        await asyncio.sleep(0)
        removing.cancel()
        asyncio.get_running_loop().call_later(0.1, go.set)
        await asyncio.wait((removing,))
        await wait_for(lambda: not app.registry.active(), LIMIT)
        assert "it" not in [mount.prefix for mount in app.plan.workspaces["a"].mounts]


class Slow:
    """Fingerprints that take until they are let go."""

    def __init__(self, folder: Path) -> None:
        self.state = str(folder)
        self.resolvers = {}
        self.asked = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def fingerprint(self, ref: SecretRef) -> str | None:
        self.asked.set()
        assert self.go.wait(LIMIT)
        return "f"


async def test_a_mount_that_comes_or_goes_while_secrets_are_read_again_is_not_undone(tmp_path: Path) -> None:
    async with SqliteStore(MEMORY) as store, asyncio.timeout(LIMIT):
        slow = Slow(tmp_path)
        additions = Additions(store, Events(), slow, lambda _: "", registry=True)

        def one(name: str) -> Record:
            launch = Process(argv=("it",), secrets={"TOKEN": SecretRef("env", "TOKEN")})
            return Record(workspace="w", entry_id=f"ours/{name}", name=name, prefix=name, launch=launch)

        stays, goes, comes = map(one, ("stays", "goes", "comes"))
        for record in (stays, goes):
            await additions.put(record, additions.variant(record))
        variant = additions.variant(comes)
        slow.asked.clear()
        slow.go.clear()
        renewing = asyncio.create_task(additions.renew())
        assert await asyncio.to_thread(slow.asked.wait, LIMIT)
        await additions.put(comes, variant)
        await additions.drop(goes)
        slow.go.set()
        await renewing
        assert [record.name for record in additions.records()] == ["stays", "comes"]
