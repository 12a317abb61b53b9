"""What agents may run: wishes of many at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mooring.catalog.errors import NeedsApproval
from mooring.config.plan_servers import Process
from mooring.errors import ConfigError
from mooring.observe.events import Event, Events
from mooring.serve.consent import COMMAND, Consent, Wish
from mooring.store.sqlite import SqliteStore
from mooring.testing import wait_for


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    async with SqliteStore(tmp_path / "store.db") as opened:
        yield opened


def wish(command: str) -> Wish:
    return Wish("default", command, COMMAND, Process((command,)))


async def asked(consent: Consent, wanted: Wish) -> str:
    """The id of the approval that is waited for."""
    with pytest.raises(NeedsApproval) as caught:
        await consent.given(wanted)
    return caught.value.facts()["approval"]


async def test_the_same_wish_twice_at_the_same_time_is_one_approval(store: SqliteStore) -> None:
    consent = Consent(store, Events(()))
    ids = set(await asyncio.gather(*(asked(consent, wish("true")) for _ in range(4))))
    assert [row.id for row in await consent.rows()] == list(ids)
    await consent.approve(ids.pop())
    assert len(set(await asyncio.gather(*(consent.given(wish("true")) for _ in range(4))))) == 1


async def test_who_asks_while_the_approvals_are_first_read_is_not_forgotten(store: SqliteStore) -> None:
    consent = Consent(store, Events(()))
    ids, *_ = await asyncio.gather(asyncio.gather(asked(consent, wish("a")), asked(consent, wish("b"))), consent.rows())
    assert {row.id for row in await consent.rows()} == set(ids)
    assert {row.id for row in await Consent(store, Events(())).rows()} == set(ids)


async def test_what_is_approved_while_its_revocation_is_written_stays_revoked(store: SqliteStore) -> None:
    consent, go = Consent(store, Events(())), threading.Event()
    id = await asked(consent, wish("true"))
    store._ask(lambda *_: go.wait(30), "meta", {})  # it has much to do
    both = [asyncio.ensure_future(consent.revoke(id)), asyncio.ensure_future(consent.approve(id))]
    asyncio.get_running_loop().call_later(0.1, go.set)
    revoked, approved = await asyncio.gather(*both, return_exceptions=True)
    assert not isinstance(revoked, BaseException)
    assert isinstance(approved, ConfigError)
    assert await consent.rows() == [] == await Consent(store, Events(())).rows()


@pytest.mark.parametrize("verb", ["approve", "revoke"])
async def test_what_an_asker_who_leaves_has_decided_is_told_all_the_same(store: SqliteStore, verb: str) -> None:
    told: list[Event] = []
    consent, go = Consent(store, Events((told.append,))), threading.Event()
    id = await asked(consent, wish("true"))
    store._ask(lambda *_: go.wait(30), "meta", {})  # it has much to do
    deciding = asyncio.ensure_future(getattr(consent, verb)(id))
    await asyncio.sleep(0)
    deciding.cancel()
    await asyncio.wait((deciding,))
    go.set()
    await wait_for(lambda: len(told) == 2)
    assert told[1].name == {"approve": "approval.given", "revoke": "approval.revoked"}[verb]
