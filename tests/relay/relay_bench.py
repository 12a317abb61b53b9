"""The real parts of the gateway over conversations in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import msgspec

from mooring.config.plan import Mount, Plan, Variant, Workspace
from mooring.config.plan_servers import Functions, Timeouts
from mooring.errors import ConfigError, Crashed, StartFailed
from mooring.launch.base import Local
from mooring.nouns import Era, Facts, InstanceKey, Principal
from mooring.observe.events import Event
from mooring.observe.redact import Redactor
from mooring.serve.app import App
from mooring.serve.plugins import Plugins
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

BOUND = 5.0
"""Seconds that no wait in these tests may take."""
ALL = b'{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}'
LEGACY = Facts("legacy", "2025-11-25", ALL)
MODERN = Facts("modern", "2026-07-28", ALL)

Reply = Callable[[bytes, Caller | None], Answer | Awaitable[Answer]]


class FakeServer:
    """A definition: what its conversations answer, and those it has had."""

    def __init__(self, *tools: str, facts: Facts = LEGACY) -> None:
        self.facts = facts
        self.items: dict[str, list[dict[str, Any]]] = {
            "tools": [{"name": name} for name in tools],
            "prompts": [],
            "resources": [],
            "resourceTemplates": [],
        }
        self.replies: dict[str, Reply] = {"tools/call": lambda params, _: ok({"content": [], "got": raw(params)})}
        self.starting: asyncio.Event | None = None
        self.failing: Exception | None = None
        self.conversations: list[FakeConnection] = []

    @property
    def last(self) -> FakeConnection:
        return self.conversations[-1]

    def asked(self, method: str) -> list[bytes]:
        return [params for each in self.conversations for asked, params in each.asked if asked == method]


class FakeConnection:
    """One conversation. Implements ``wire.connection.Connection``."""

    def __init__(self, server: FakeServer, key: InstanceKey) -> None:
        self.server = server
        self.key = key
        self.facts = server.facts
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[str, bytes]] = []

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        if self.closed.done():
            raise Crashed("it has ended", server="fake", written=False)
        self.asked.append((method, params))
        reply = self.server.replies.get(method)
        if reply is None:
            return self._by_default(method)
        answer = reply(params, caller)
        if isinstance(answer, Answer):
            return answer
        pending = asyncio.ensure_future(answer)
        try:
            await asyncio.wait((pending, self.closed), return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                raise Crashed("it ended in the call", server="fake", written=True)
            return pending.result()
        finally:
            pending.cancel()

    def _by_default(self, method: str) -> Answer:
        if method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            member = "resourceTemplates" if "templates" in method else method.partition("/")[0]
            return ok({member: self.server.items[member]})
        return Answer(result=b"{}")

    def notify(self, method: str, params: bytes) -> None:
        pass


class _Tail:
    def text(self, lines: int = 20) -> str:
        return ""

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None


class _Launched:
    pid = None
    container = None

    def __init__(self, connection: FakeConnection) -> None:
        self.endpoint = Local(connection)
        self.stderr = _Tail()
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        pass


class FakeSession:
    """Implements ``wire.session.Session``."""

    def __init__(self, bench: Bench, principal: Principal, era: Era = "legacy", id: str = "session-1") -> None:
        self.id = id
        self.principal = principal
        self.era: Era = era
        self.version = "2025-11-25" if era == "legacy" else "2026-07-28"
        self.capabilities = b'{"elicitation":{}}'
        self.log_level: str | None = None
        self.on_close: list[Callable[[], None]] = []
        self.closed = False
        self.sent: list[tuple[str, bytes | None]] = []
        self._bench = bench

    def send(self, method: str, params: bytes | None) -> None:
        self.sent.append((method, params))

    async def ask(self, method: str, params: bytes) -> Answer:
        return Answer(result=b'{"action":"decline"}')

    def close(self) -> None:
        self.closed = True
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback()

    def request(self, method: str, params: Any = None, era: Era | None = None) -> FakeRequest:
        return FakeRequest(self, method, jsonrpc.text(params or {}), era or self.era)

    async def do(self, method: str, params: Any = None, era: Era | None = None) -> Any:
        """The result, or the error, of a request."""
        async with asyncio.timeout(BOUND):
            answer = await self._bench.app.relay.handle(self.request(method, params, era))
        return msgspec.json.decode(answer.error or answer.result or b"null")

    async def call(self, tool: str, era: Era | None = None, **arguments: Any) -> Any:
        return await self.do("tools/call", {"name": tool, "arguments": arguments}, era)

    async def tools(self, era: Era | None = None) -> list[str]:
        return [tool["name"] for tool in (await self.do("tools/list", era=era))["tools"]]


class FakeRequest:
    """Implements ``wire.session.Request``."""

    def __init__(self, session: FakeSession, method: str, params: bytes, era: Era) -> None:
        self.session = session
        self.raw_id = b"7"
        self.method = method
        self.params = params
        self.era: Era = era
        self.version = session.version
        self.headers: dict[bytes, bytes] = {}
        self.told: list[tuple[str, bytes]] = []
        self.questions: list[str] = []
        self.answer: Callable[[], Awaitable[Answer]] | None = None

    def heard(self, method: str, params: bytes) -> None:
        self.told.append((method, params))

    async def ask(self, method: str, params: bytes) -> Answer:
        self.questions.append(method)
        return await self.answer() if self.answer else await self.session.ask(method, params)


class Bench:
    """``servers`` by name; ``plan`` is what the next ``reload`` finds."""

    def __init__(self, servers: Mapping[str, FakeServer]) -> None:
        self.servers = dict(servers)
        self.plan = planned(*servers)
        self.broken = ""
        self.home = None
        self.file = ""
        self.read_at = 0
        self.plugins = Plugins("")
        self.app: App
        self.events: list[Event] = []

    def resolved(self, look: bool = False) -> Plan:
        if self.broken:
            raise ConfigError(self.broken)
        return self.plan

    async def read(self, look: bool = False) -> Plan:
        return self.resolved(look)

    @asynccontextmanager
    async def launch(self, variant: Variant, key: InstanceKey, secrets: object) -> AsyncGenerator[_Launched]:
        server = self.servers[variant.server]
        if server.starting is not None:
            await server.starting.wait()
        if server.failing is not None:
            raise server.failing
        connection = FakeConnection(server, key)
        server.conversations.append(connection)
        yield _Launched(connection)
        if not connection.closed.done():
            connection.closed.set_result("was stopped")

    def fetch_all(self, launch: object) -> dict[str, str]:
        return {}

    def session(self, workspace: str = "w", era: Era = "legacy", id: str = "session-1", **limits: Any) -> FakeSession:
        session = FakeSession(self, Principal(f"k_{id}", workspace, **limits), era, id)
        self.app.relay.opened(session)
        return session

    def announce(self, server: str, method: str, params: bytes = b"{}") -> None:
        """The server says something outside any call."""
        key = self.servers[server].last.key
        self.app._listener(self.app.plan.variants[key.variant], key).announced(method, params)

    def leases(self, server: str) -> int:
        return sum(row.leases for row in self.app.pool.rows() if row.server == server)

    def names(self) -> list[str]:
        return [event.name for event in self.events]


@asynccontextmanager
async def benched(servers: Mapping[str, FakeServer], plan: Plan | None = None) -> AsyncGenerator[Bench]:
    """A gateway whose servers have been looked at, unless they cannot be."""
    bench = Bench(servers)
    bench.plan = plan or bench.plan
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SqliteStore(MEMORY))
        nothing = cast("Any", bench)
        bench.app = App(nothing, store, nothing, nothing, Redactor())
        bench.app.launchers["functions"] = nothing
        bench.app.events.sinks = (bench.events.append,)
        await bench.app.start(stack)
        bench.app.look()
        if not any(server.starting for server in servers.values()):
            async with asyncio.timeout(BOUND):
                await bench.app.looks.done()
        yield bench


def variant(name: str, digest: str = "d1", **members: Any) -> Variant:
    members.setdefault("timeouts", Timeouts(call=BOUND, discover=BOUND))
    return Variant(id=name, server=name, kwargs="{}", digest=digest, launch=Functions(name), **members)


def planned(*names: str, workspaces: Mapping[str, tuple[str, ...]] | None = None, **members: Any) -> Plan:
    """A plan with these servers in the workspace "w", or in ``workspaces``; ``members`` are for every variant."""
    rooms = workspaces or {"w": names}
    sharing = members.get("sharing", "shared")
    return Plan(
        variants={name: variant(name, **members) for name in names},
        workspaces={
            room: Workspace(room, tuple(Mount(room, name, name, name, sharing) for name in mounted))
            for room, mounted in rooms.items()
        },
    )


def ok(result: Any) -> Answer:
    return Answer(result=jsonrpc.text(result))


def raw(params: bytes) -> Any:
    return msgspec.Raw(params)


def failed(message: str = "no such file") -> StartFailed:
    return StartFailed(message, server="fake", phase="start")


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.002)
