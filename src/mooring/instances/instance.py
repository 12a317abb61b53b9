"""One instance: its state, its leases, those who wait for it, and the owner task of its lives.

One task owns all that runs: it enters and leaves the opener's block (``instances.life``) and goes on as long as
somebody waits for another start. All else here is synchronous and is called by ``instances.pool``, by leases and by
timers; decisions are in ``instances.rules``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from mooring.config.plan import Variant
from mooring.errors import BackingOff, Busy, Crashed, MooringError, Unavailable
from mooring.instances import failures, rules
from mooring.instances.lease import Lease
from mooring.instances.life import Life
from mooring.instances.opener import QUEUE, Demand, Means, Running
from mooring.instances.state import Record, move
from mooring.nouns import InstanceKey, InstanceRow, State
from mooring.observe.events import Event
from mooring.wire.connection import Connection

MUTE = "did not answer a ping after a timed-out call"


class Instance:
    """A running thing, or one that ran or is to run. Made by ``instances.pool`` only."""

    def __init__(self, key: InstanceKey, variant: Variant, means: Means) -> None:
        self.key = key
        self.variant = variant
        self.record = Record(since=means.clock())
        self.life: Life | None = None
        self.leases = 0
        self.waiting = 0
        self.draining = ""
        """Why it takes no new lease; "" when it does."""
        self.left = False
        """Whatever it was for is over; no plan brings that back."""
        self._means = means
        self._demand: Demand | None = None
        self._owned = False
        self._outcome: asyncio.Future[MooringError | None] | None = None
        """Of the start that somebody waits for; None in between."""
        self._connection: Connection | None = None
        """While ``ready``."""
        self._unused_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    # who wants it

    @property
    def ready(self) -> bool:
        """A lease can be had at once."""
        connection = self._connection
        return connection is not None and not self.draining and not connection.closed.done()

    @property
    def restartable(self) -> bool:
        """``restart`` has something to do."""
        return not self.draining and self.record.state in ("ready", "backoff")

    @property
    def leaving(self) -> bool:
        """Its life is about to end, no other one is to follow, and its place will be free."""
        ending = self.life is not None and self.record.state in ("stopping", "backoff") and self._outcome is None
        return ending and rules.counted(self.variant)

    @property
    def idle_since(self) -> float | None:
        """Since when nobody has used it, by the pool's clock; None while it may not be stopped to make room."""
        pins = self.leases + self.waiting
        ready = self.record.state == "ready" and rules.counted(self.variant)
        return self._unused_since if ready and rules.may_give_way(self.variant, self.key.scope, pins) else None

    def lease(self) -> Lease:
        """A lease, at once. Ask ``ready`` in the same step."""
        assert self._connection is not None
        self.leases += 1
        return Lease(self.key, self._connection, self._released)

    async def wanted(self, variant: Variant, demand: Demand | None) -> Lease | None:
        """Wait for the start under way, or for one that begins now. None when that life was over at once.

        Raises BackingOff, Unavailable, or what the start failed with.
        """
        if self.life is not None:
            self.lost(self.life)
        if self.left and not rules.pinned(self.key.scope):  # a key, unlike a session, may come back
            self.left, self.draining = False, ""
        now = self._means.clock()
        match rules.entry(self.record, bool(self.draining), now):
            case "leaving":
                raise Unavailable(f"{variant.server} takes no more calls: {self.draining}", server=variant.server)
            case "backing off":
                raise self._backing_off(now)
            case "wait":
                return await self._started(variant, demand)

    def obstacle(self) -> Unavailable | None:
        """Why it serves nobody now, though it should; None otherwise."""
        if self.record.state == "backoff":
            return self._backing_off(self._means.clock())
        if self.record.state == "starting" and self.life is not None:
            step, server = self.life.birth.at, self.variant.server
            return Unavailable(f"{server} is still starting (step: {step})", server=server, phase=step)
        return None

    async def _started(self, variant: Variant, demand: Demand | None) -> Lease | None:
        self.waiting += 1
        try:
            failure = await asyncio.shield(self._expect(variant, demand))
            if failure is not None:
                raise failures.again(failure)
            alive = self._connection is not None and not self._connection.closed.done()
            return self.lease() if alive else None
        finally:
            self.waiting -= 1
            self._unused()

    def _released(self, connection: Connection) -> None:
        if connection is self._connection:  # leases on an earlier life count no more
            self.leases -= 1
            self._unused()

    # what it is told

    def stop(self, reason: str, **changes: Any) -> None:
        """End it now, whatever it does; who waits for it is told the reason."""
        self._settle(Unavailable(f"{self.variant.server} was stopped: {reason}", server=self.variant.server))
        if self.record.state in ("starting", "ready"):
            self._move("stopping", reason, **changes)
            self._retire()
        elif self.record.state == "backoff":
            self._move("stopping", reason, **changes)
            if self.life is None:
                self._stopped()
        self._tidy()

    def restart(self) -> None:
        """Skip the wait of a back-off; end a ready one and start it anew."""
        if self.record.state == "ready":
            self.stop("restarted on request")
        self.record = msgspec.structs.replace(self.record, failures=0, retry_at=None)
        self._expect(self.variant, None)

    def drain(self, reason: str) -> None:
        """Take no new lease, and stop as soon as nobody holds or awaits one."""
        self.draining = reason
        self._unused()

    def keep(self, variant: Variant) -> None:
        """It is part of the configuration; what the process does not see of the variant may have changed."""
        self.variant = variant
        if not self.left:
            self.draining = ""
        self._disarm()
        self._arm()

    def dismiss(self, reason: str) -> None:
        """End it now and for good."""
        self.draining = reason
        self.stop(reason)

    def leave(self, reason: str) -> None:
        """Whatever it was for is over: end it now and for good."""
        self.left = True
        self.dismiss(reason)

    # what its life reports

    def published(self, life: Life, running: Running) -> None:
        started = self.record.since
        self._connection = running.connection
        self._move("ready")
        era = running.connection.facts.era
        self._emit("ready", pid=running.launched.pid, era=era, seconds=self.record.since - started)
        self._settle(None)
        self._unused()

    def lost(self, life: Life) -> None:
        if life is self.life and life.over and self.record.state == "ready":
            self._crashed(life.why(), life)

    def mute(self, life: Life) -> None:
        if life is self.life and self.record.state == "ready":
            self.stop(MUTE, last_error=MUTE, restarts=self.record.restarts + 1)

    def post_mortem(self, life: Life) -> None:
        if self.record.state != "backoff":
            return
        reason, stderr = life.why(), life.birth.tail()
        self.record = msgspec.structs.replace(
            self.record, reason=reason, last_error=reason, exit_code=life.exit_code, stderr=stderr
        )
        self._emit("crashed", reason=reason, exit_code=life.exit_code)
        self._emit("backoff", reason=reason, retry_at=self._wall(self.record.retry_at))

    # the owner task

    def _expect(self, variant: Variant, demand: Demand | None) -> asyncio.Future[MooringError | None]:
        """The outcome of the start under way or of the next one, which the owner task makes happen."""
        if self._outcome is None:
            self.variant = variant
            self._demand = demand or self._demand
            self._outcome = asyncio.get_running_loop().create_future()
            if not self._owned:
                self._owned = True
                self._means.spawn(self._own())
        return self._outcome

    async def _own(self) -> None:
        try:
            while self._outcome is not None:
                await self._live()
        finally:
            self._owned = False
            self._settle(Unavailable(f"{self.variant.server} was stopped", server=self.variant.server))
            self._tidy()

    async def _live(self) -> None:
        self.life = life = Life(self.variant, self.key, self._demand, self._means, self)
        self._move("starting")
        self._emit("starting")
        try:
            await life.live()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                life.birth.over()
                self.dismiss("Mooring is stopping")
                self._gone(life, None)
                raise
            self._gone(life, error)  # something the opener waited for was cancelled, not this task
        except Exception as error:
            self._gone(life, error)
        else:
            self._gone(life, None)

    def _gone(self, life: Life, error: BaseException | None) -> None:
        """The block is left."""
        state = self.record.state
        if state == "starting":
            self._failed(life, error or RuntimeError("the opener gave up"))
        elif state == "ready":
            self._crashed(str(failures.cause(error)) if error else life.why(), life)
            self._emit("crashed", reason=self.record.reason)
        elif error is not None and life.running is not None:
            trouble = "not gone in time" if life.timed_out else str(failures.cause(error))
            self.record = msgspec.structs.replace(self.record, last_error=f"did not end cleanly: {trouble}")
        self.life = None
        if self.record.state == "stopping":
            self._stopped()
        elif self.record.state == "backoff":
            self._unused()

    def _failed(self, life: Life, error: BaseException) -> None:
        failure = failures.start_failure(error, self.variant.server, life.birth, life.timed_out)
        told = failure.details
        if life.birth.at == QUEUE and isinstance(failure, Busy):
            self._move("stopping", failure.message)  # it was not even tried
            self._settle(failure)
            return
        known = {"cause": failure.kind, "phase": told["phase"], "stderr": told.get("stderr", "")}
        self._back_off(None, failure.message, life, **known)
        told["retry_at"] = self._wall(self.record.retry_at)
        self._emit("backoff", reason=failure.message, retry_at=told["retry_at"])
        self._settle(failure)

    # small parts

    def _crashed(self, reason: str, life: Life) -> None:
        self._back_off(self._means.clock() - self.record.since, reason, life, cause=Crashed.kind, phase="call")
        self._retire()

    def _back_off(self, ready_for: float | None, reason: str, life: Life, **changes: Any) -> None:
        count, wait = rules.after_failure(self.record.failures, ready_for, not life.unkept)
        retry_at = self._means.clock() + wait
        self._move("backoff", reason, failures=count, retry_at=retry_at, exit_code=None, **changes)

    def _retire(self) -> None:
        """It serves nobody any more; its life ends."""
        self._connection = None
        self.leases = 0
        self._disarm()
        if self.life is not None:
            self.life.end()

    def _stopped(self) -> None:
        self._move("stopped", self.record.reason)
        self._emit("stopped", reason=self.record.reason)

    def _settle(self, failure: MooringError | None) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome.set_result(failure)

    def _unused(self) -> None:
        """Perhaps nobody needs it now: then it stops if it drains, else it idles."""
        if self.leases or self.waiting:
            return
        self._unused_since = self._means.clock()
        if self.draining:
            self.stop(self.draining)
        else:
            self._arm()
            self._means.room.changed()

    def _arm(self) -> None:
        """The timer is left alone while calls come and go; ``_idle`` looks again when it fires."""
        if self._idle_timer is None and self._connection is not None:
            left = self._idle_left()
            if left is not None:
                self._idle_timer = asyncio.get_running_loop().call_later(left, self._idle)

    def _disarm(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _idle(self) -> None:
        self._idle_timer = None
        if self._idle_left() == 0:
            self.stop(f"idle for {self.variant.idle_timeout:g} s")
        else:
            self._arm()

    def _idle_left(self) -> float | None:
        idle_for = self._means.clock() - self._unused_since
        pins = self.leases + self.waiting + rules.pinned(self.key.scope)
        return rules.idle_left(pins, idle_for, self.variant.idle_timeout)

    def _tidy(self) -> None:
        if self.draining and self.record.state == "stopped" and not self._owned:
            self._means.forget(self.key)

    def _move(self, state: State, reason: str = "", **changes: Any) -> None:
        self.record = move(self.record, state, self._means.clock(), reason, **changes)

    def _backing_off(self, now: float) -> BackingOff:
        record, server = self.record, self.variant.server
        reason = record.reason.removesuffix(".")
        return BackingOff(
            f"{server} is not available: {reason}; {rules.next_try((record.retry_at or now) - now)}",
            server=server,
            phase=record.phase or None,
            cause=record.cause or None,
            stderr=record.stderr or (self.life.birth.tail() if self.life else None) or None,
            retry_at=self._wall(record.retry_at),
        )

    def _wall(self, at: float | None) -> float | None:
        """A time of the clock as epoch seconds."""
        return None if at is None else time.time() + at - self._means.clock()

    def _emit(self, what: str, **data: Any) -> None:
        data["variant"] = self.key.variant
        self._means.events.emit(Event(f"instance.{what}", time.time(), "", self.variant.server, self.key.id, "", data))

    def row(self) -> InstanceRow:
        """Its line in ``ps``."""
        record, connection, now = self.record, self._connection, self._means.clock()
        launched = self.life.birth.launched if self.life else None
        problem = self.life.chores.problem if self.life and self.life.chores else ""
        reason = record.reason
        if self.draining and connection:
            reason = f"draining: {self.draining}"
        elif record.state == "starting" and self.life:
            reason = self.life.birth.at
        return InstanceRow(
            server=self.variant.server,
            variant=self.key.variant,
            state=record.state,
            scope=self.key.whom,
            instance=self.key.id,
            reason=reason,
            pid=launched.pid if launched else None,
            container=launched.container if launched else None,
            era=connection.facts.era if connection else None,
            uptime=now - record.since if connection else None,
            idle=now - self._unused_since if connection and not self.leases else None,
            leases=self.leases,
            workspaces=(self.key.scope[2:],) if self.key.scope.startswith("w:") else (),
            restarts=record.restarts,
            retry_at=self._wall(record.retry_at),
            exit_code=record.exit_code,
            last_error=record.last_error or problem,
            stderr=launched.stderr.text() if launched else record.stderr,
        )
