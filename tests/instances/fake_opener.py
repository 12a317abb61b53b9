"""A fake opener with everything a test may want to go wrong, and a recorder of events to wait for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Timeouts
from mooring.errors import Crashed
from mooring.instances.opener import Birth, Demand, Running
from mooring.instances.pool import Pool
from mooring.nouns import Facts, InstanceKey
from mooring.observe.events import Event, Events
from mooring.wire.connection import Caller, Connection
from mooring.wire.jsonrpc import METHOD_NOT_FOUND, Answer, failure

BOUND = 5.0
"""Seconds that no wait in these tests may take."""

LEGACY = Facts("legacy", "2025-11-25", capabilities=b'{"tools":{},"prompts":{},"resources":{}}')
MODERN = Facts("modern", "2026-07-28", capabilities=b'{"tools":{}}')


class FakeConnection:
    """A conversation in memory. ``replies`` answer by method; what is missing gets -32601."""

    def __init__(self, facts: Facts = LEGACY) -> None:
        self.facts = facts
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.replies: dict[str, Callable[[bytes], Answer | Awaitable[Answer]]] = {}
        self.asked: list[tuple[str, bytes]] = []

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        self.asked.append((method, params))
        if self.closed.done():
            raise Crashed(self.closed.result(), written=False)
        reply = self.replies.get(method)
        if reply is None:
            return failure(METHOD_NOT_FOUND, "no such method")
        answer = reply(params)
        if isinstance(answer, Answer):
            return answer
        pending = asyncio.ensure_future(answer)
        try:
            await asyncio.wait((pending, self.closed), return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                raise Crashed(self.closed.result(), written=True)
            return pending.result()
        finally:
            pending.cancel()

    def notify(self, method: str, params: bytes) -> None:
        pass


class FakeTail:
    def __init__(self, said: str) -> None:
        self.said = said

    def text(self, lines: int = 20) -> str:
        return self.said


class FakeLaunched:
    def __init__(self, pid: int | None, said: str = "") -> None:
        self.endpoint: Any = None
        self.pid = pid
        self.container: str | None = None
        self.stderr = FakeTail(said)
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        pass


class FakeLife:
    """One server that an opener started."""

    def __init__(self, key: InstanceKey, birth: Birth, pid: int, facts: Facts, said: str) -> None:
        self.key = key
        self.birth = birth
        self.connection = FakeConnection(facts)
        self.launched = FakeLaunched(pid, said)
        self.gone = asyncio.Event()

    def crash(self, exit_code: int = 1) -> None:
        """The process dies: the pipe closes, then the exit code arrives."""
        self.connection.closed.set_result("the server closed its output")
        asyncio.get_running_loop().call_soon(self.launched.exited.set_result, exit_code)


class FakeOpener:
    """Set the attributes to choose what starts do."""

    def __init__(self) -> None:
        self.lives: list[FakeLife] = []
        self.entered: Counter[InstanceKey] = Counter()
        self.entries = 0
        self.most_starting = 0
        self.doubled = False
        """Two lives of one key overlapped."""
        self.facts = LEGACY
        self.said = ""
        self.failing: BaseException | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        self.undone = 0
        """Starts that were interrupted or failed, and were cleaned up."""
        self.phases: tuple[str, ...] = ("initialize",)
        self._starting = 0

    @asynccontextmanager
    async def __call__(self, variant: Variant, key: InstanceKey, birth: Birth) -> AsyncIterator[Running]:
        self.entries += 1
        self.entered[key] += 1
        self.doubled |= self.entered[key] > 1
        try:
            life = await self._start(key, birth)
            yield Running(life.connection, life.launched)
            await self.may_leave.wait()
            if not life.connection.closed.done():
                life.connection.closed.set_result("closed by us")
            if not life.launched.exited.done():
                life.launched.exited.set_result(0)
            life.gone.set()
        finally:
            self.entered[key] -= 1

    async def _start(self, key: InstanceKey, birth: Birth) -> FakeLife:
        self._starting += 1
        self.most_starting = max(self.most_starting, self._starting)
        try:
            life = FakeLife(key, birth, 1000 + self.entries, self.facts, self.said)
            birth.spawned(life.launched)
            for phase in self.phases:
                birth.phase(phase)
            await self.may_answer.wait()
            if self.failing is not None:
                raise self.failing
        except BaseException:
            await asyncio.sleep(0)
            self.undone += 1
            raise
        finally:
            self._starting -= 1
        self.lives.append(life)
        return life

    @property
    def alive(self) -> int:
        return sum(self.entered.values())


class FakeListener:
    """A session that hears nothing."""

    def announced(self, method: str, params: bytes) -> None:
        pass

    async def asked(self, method: str, params: bytes) -> Answer:
        return failure(METHOD_NOT_FOUND, "nobody to ask")


class Recorder:
    """An event sink to wait at."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.seen.append(event)
        self._news.set()

    def names(self) -> list[str]:
        return [event.name.removeprefix("instance.") for event in self.seen]

    async def saw(self, name: str, count: int = 1) -> Event:
        """The ``count``-th event of this name, seen already or to come."""
        async with asyncio.timeout(BOUND):
            while True:
                found = [event for event in self.seen if event.name == f"instance.{name}"]
                if len(found) >= count:
                    return found[count - 1]
                self._news.clear()
                await self._news.wait()


class Clock:
    """Monotonic seconds that a test may move; they pass by themselves as well."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped


class Bench:
    """A pool with its doubles."""

    def __init__(self, max_starting: int = 32, max_instances: int = 0) -> None:
        self.opener = FakeOpener()
        self.recorder = Recorder()
        self.clock = Clock()
        self.listings: list[InstanceKey] = []
        self.list: Callable[[Connection], Awaitable[None]] | None = None
        self.pool = Pool(
            self.opener,
            Events((self.recorder,)),
            listed=self._listed,
            max_starting=max_starting,
            max_instances=max_instances,
            clock=self.clock,
        )

    async def _listed(self, variant: Variant, key: InstanceKey, connection: Connection, demand: Demand | None) -> None:
        self.listings.append(key)
        if self.list is not None:
            await self.list(connection)

    def state(self, key: InstanceKey) -> str:
        return next((row.state for row in self.pool.rows() if row.variant == key.variant), "none")


def variant(
    name: str = "time",
    digest: str = "d1",
    idle_timeout: float = 0.0,
    start: float = BOUND,
    discover: float = BOUND,
    close: float = 1.0,
    pull: float = BOUND,
    unavailable: str = "",
) -> Variant:
    return Variant(
        id=name,
        server=name,
        kwargs="{}",
        digest=digest,
        launch=Process(("true",)),
        idle_timeout=idle_timeout,
        timeouts=Timeouts(start=start, discover=discover, close=close, pull=pull),
        unavailable=unavailable,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.001)
