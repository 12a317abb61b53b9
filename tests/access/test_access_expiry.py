"""Expiry: what an expired key opened ends at that moment, once."""

from __future__ import annotations

import asyncio

from mooring.access.expiry import expiring
from mooring.access.keys import Keys
from mooring.observe.events import Event, Events
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.testing import wait_for


async def test_keys_end_what_they_opened_when_they_expire() -> None:
    seen: list[Event] = []
    ended: list[str] = []
    async with SqliteStore(MEMORY) as store:
        keys = Keys(store, Events((seen.append,)))
        keys.on_revoked.append(ended.append)
        task = asyncio.create_task(expiring(keys))
        try:
            await keys.create("alice")
            later = await keys.create("alice", expires_at=keys._clock() + 0.4)
            sooner = await keys.create("alice", expires_at=keys._clock() + 0.1)
            await wait_for(lambda: ended == [sooner.id, later.id])
            assert [event.data["key"] for event in seen if event.name == "key.expired"] == ended
        finally:
            task.cancel()


async def test_a_key_expires_once_and_says_how_long_it_has() -> None:
    now = 100.0
    async with SqliteStore(MEMORY) as store:
        keys = Keys(store, Events(), lambda: now)
        assert keys.expire() is None
        await keys.create("alice", expires_at=103.0)
        assert keys.expire() == 3.0
        now = 103.0
        ended: list[str] = []
        keys.on_revoked.append(ended.append)
        assert keys.expire() is None
        assert keys.expire() is None
        assert len(ended) == 1
