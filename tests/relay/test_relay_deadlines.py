"""Many limits on one timer."""

from __future__ import annotations

import asyncio

from mooring.relay.deadlines import Deadlines

BOUND = 5.0


class Call:
    def __init__(self) -> None:
        self.expired: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def expire(self) -> None:
        self.expired.set_result(asyncio.get_running_loop().time())


async def test_each_expires_at_its_own_time_whatever_the_order_they_were_set_in() -> None:
    deadlines = Deadlines()
    late, early, later = Call(), Call(), Call()
    limits = {late: deadlines.now() + 0.10, early: deadlines.now() + 0.02, later: deadlines.now() + 0.15}
    for call, when in limits.items():
        deadlines.set(call, when)
    async with asyncio.timeout(BOUND):
        times = {call: await call.expired for call in (early, late, later)}
    assert list(times.values()) == sorted(times.values())
    assert all(times[call] >= when for call, when in limits.items())


async def test_what_is_dropped_or_set_anew_does_not_expire_at_its_old_time() -> None:
    deadlines = Deadlines()
    gone, moved, last = Call(), Call(), Call()
    now = deadlines.now()
    for call, seconds in ((gone, 0.02), (moved, 0.02), (last, 0.05)):
        deadlines.set(call, now + seconds)
    deadlines.drop(gone)
    deadlines.set(moved, now + 0.3)
    async with asyncio.timeout(BOUND):
        assert await moved.expired >= now + 0.3
        assert last.expired.result() >= now + 0.05
    assert not gone.expired.done()
    deadlines.drop(gone)
