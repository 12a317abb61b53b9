"""The pool under any order of events, in virtual time.

Whatever happens: never two lives of one key; counts of leases are right; an idle stop never hits a lease; every waiter
gets exactly one outcome; no illegal move; nothing is left behind.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fake_opener import FakeOpener, variant
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.config.plan import Variant
from mooring.errors import MooringError
from mooring.instances.lease import Lease
from mooring.instances.opener import Demand
from mooring.instances.pool import Pool
from mooring.nouns import InstanceKey
from mooring.observe.events import Event, Events
from mooring.wire.connection import Connection

TURNS = 40
"""Turns of the loop after which everything that can happen without time passing has happened."""

VARIANTS = [
    variant("a", "1", idle_timeout=10.0),
    variant("a", "2", idle_timeout=10.0),
    variant("b", "1", idle_timeout=0.0),
    variant("c", "1", idle_timeout=0.001),
]
PLACES = [(v, v.key(scope)) for v in VARIANTS for scope in ("", "w:1")]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when told; the loop is never run with nothing to do."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._unhandled)
        self.unhandled: list[Any] = []
        self.held: list[Lease] = []
        self.waiters: list[asyncio.Task[Lease]] = []
        self.outcomes = 0
        self.asked = 0
        self.cut: list[Event] = []
        self._turn(self._open())

    async def _open(self) -> None:
        self.opener = FakeOpener()
        self.pool = Pool(self.opener, Events((self._seen,)), listed=self._listed, max_starting=2, clock=self.loop.time)
        await self.pool.__aenter__()

    async def _listed(self, variant: Variant, key: InstanceKey, connection: Connection, demand: Demand | None) -> None:
        await asyncio.sleep(0.3)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    def _seen(self, event: Event) -> None:
        if event.name == "instance.stopped" and event.data["reason"].startswith("idle"):
            last = [life for life in self.opener.lives if life.key.id == event.instance][-1]
            if any(lease.connection is last.connection for lease in self.held):
                self.cut.append(event)

    def _turn(self, work: Any = None) -> None:
        async def turns() -> None:
            if work is not None:
                await work
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for waiter in [waiter for waiter in self.waiters if waiter.done()]:
            self.waiters.remove(waiter)
            self.outcomes += 1
            if waiter.cancelled():
                continue
            error = waiter.exception()
            assert error is None or isinstance(error, MooringError), error
            if error is None:
                self.held.append(waiter.result())

    def _do(self, act: Any) -> None:
        async def do() -> None:
            act()

        self._turn(do())

    @rule(place=st.sampled_from(PLACES), count=st.integers(1, 3))
    def ask(self, place: tuple[Variant, InstanceKey], count: int) -> None:
        for _ in range(count):
            self.asked += 1
            self.waiters.append(self.loop.create_task(self.pool.lease(*place)))
        self._turn()

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self._do(data.draw(st.sampled_from(self.waiters)).cancel)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.held))
        self.held.remove(lease)
        self._do(lease.release)

    @rule(may=st.booleans(), fails=st.booleans())
    def starts_answer(self, may: bool, fails: bool) -> None:
        self.opener.failing = RuntimeError("no luck") if fails else None
        self._do(self.opener.may_answer.set if may else self.opener.may_answer.clear)

    @rule(may=st.booleans())
    def endings_end(self, may: bool) -> None:
        self._do(self.opener.may_leave.set if may else self.opener.may_leave.clear)

    @precondition(lambda self: any(not life.connection.closed.done() for life in self.opener.lives))
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        alive = [life for life in self.opener.lives if not life.connection.closed.done()]
        index = data.draw(st.integers(0, len(alive) - 1))
        self._do(alive[index].crash)

    @rule()
    def all_fall_silent(self) -> None:
        for life in self.opener.lives:
            life.connection.replies["ping"] = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]

    @rule(seconds=st.sampled_from([0.01, 0.6, 1.0, 4.0, 11.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.loop.now += seconds
        self._turn()

    @rule(place=st.sampled_from(PLACES))
    def stop(self, place: tuple[Variant, InstanceKey]) -> None:
        self._do(lambda: self.pool.stop(place[1]))

    @rule(server=st.sampled_from("abc"))
    def restart(self, server: str) -> None:
        self._do(lambda: self.pool.restart(server))

    @rule(wanted=st.lists(st.sampled_from(VARIANTS)))
    def apply(self, wanted: list[Variant]) -> None:
        self._do(lambda: self.pool.apply({v.id: v for v in wanted}))

    @rule()
    def session_ends(self) -> None:
        self._do(lambda: self.pool.end_scope("w:1"))

    @rule(place=st.sampled_from(PLACES))
    def doubt(self, place: tuple[Variant, InstanceKey]) -> None:
        self._do(lambda: self.pool.suspect(place[1]))
        self._do(lambda: self.pool.relist(place[1]))

    @invariant()
    def never_two_lives_of_one_key(self) -> None:
        assert not self.opener.doubled
        assert self.opener.most_starting <= 2

    @invariant()
    def lease_counts_are_right(self) -> None:
        for key, instance in self.pool._instances.items():
            assert instance.waiting >= 0
            if instance.record.state == "ready":
                current = [one for one in self.held if one.connection is instance._connection]
                assert instance.leases == len(current), key
            else:
                assert instance.leases == 0

    @invariant()
    def what_is_said_to_be_gone_is_gone(self) -> None:
        instances = self.pool._instances
        for key, count in self.opener.entered.items():
            assert not count or (key in instances and instances[key].record.state != "stopped"), key

    @invariant()
    def nothing_unneeded_stays(self) -> None:
        for key, instance in self.pool._instances.items():
            if instance.leases or instance.waiting:
                continue
            if instance.draining and instance.life is None:
                assert instance.record.state in ("stopping", "stopped"), key
            if instance.record.state == "ready" and instance.variant.idle_timeout:
                assert instance._idle_timer is not None, key

    @invariant()
    def idle_cuts_no_lease(self) -> None:
        assert not self.cut

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        assert self.outcomes + len(self.waiters) == self.asked
        waiting = sum(instance.waiting for instance in self.pool._instances.values())
        assert waiting == len(self.waiters)

    @invariant()
    def rows_can_be_shown_and_nothing_went_unhandled(self) -> None:
        assert len(self.pool.rows()) == len(self.pool._instances)
        assert not self.unhandled, self.unhandled

    def teardown(self) -> None:
        self.opener.failing = None
        self._do(lambda: (self.opener.may_answer.set(), self.opener.may_leave.set()))
        self._turn(self.pool.__aexit__(None, None, None))
        try:
            assert not self.waiters
            assert self.opener.alive == 0
            assert self.pool.rows() == []
            assert not self.unhandled, self.unhandled
            left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
            assert not left, left
        finally:
            self.loop.close()


PoolMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPool = PoolMachine.TestCase
