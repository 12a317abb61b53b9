"""MCP over HTTP: from an HTTP request to a call of the relay and back, for both eras on the same paths.

``serve.app`` makes one ``McpFront`` and gives it to ``wire.http.HttpServer`` as handler and as ``admit``. It checks who
is addressed (Host, Origin) and who calls (login), tells the eras apart and answers the modern one; ``wire.http_legacy``
answers the other. It never decides what a caller may do and never looks into payloads further than the transport asks.

    legacy (no ``MCP-Protocol-Version``, or one up to 2025-11-25): ``initialize`` opens a session for POST, GET, DELETE
    modern (all other versions): every POST stands alone; a lost connection cancels the request

A single answer is JSON; it becomes an event stream only when something is said before it.

Source: MCP 2025-11-25 "Transports"; MCP 2026-07-28 "Streamable HTTP", "Versioning and Compatibility".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET

from mooring.errors import InsufficientScope, Refused, Unauthenticated, Unavailable
from mooring.nouns import Principal
from mooring.wire import headers as rules
from mooring.wire.eras import MODERN_VERSIONS, ModernMeta, unsupported
from mooring.wire.http_envelope import bare, raw_id_of, read, rejection
from mooring.wire.http_legacy import LegacyFront
from mooring.wire.http_messages import Reply, Request, Stream, problem
from mooring.wire.http_session import ACCEPTED, HttpCall, HttpSession, Sessions
from mooring.wire.http_watch import Watch
from mooring.wire.jsonrpc import EMPTY, INTERNAL_ERROR, INVALID_REQUEST
from mooring.wire.session import Handler

if TYPE_CHECKING:
    from mooring.wire.resource import Resource

Login = Callable[[str | None, str | None, str | None, str], Principal | asyncio.Future[None]]
"""``login(authorization, workspace, variant, peer)``, with what the path names; a future has to be waited for before
asking again. Raises Unauthenticated, Refused or Unavailable."""
Page = Callable[[Request], Awaitable[Reply]]
"""What answers another path, such as ``/healthz``; takes no body."""

SESSION_IDLE = 1800.0
"""Seconds after which an unused session ends."""
MAX_SESSIONS = 10_000
_NOTHING = "nothing here; MCP is at /mcp, /w/<workspace>/mcp and /s/<variant>/mcp"


def endpoint(path: str) -> tuple[str | None, str | None] | None:
    """The workspace and the variant that an MCP endpoint names: ``/mcp`` neither, ``/w/<workspace>/mcp`` and
    ``/s/<variant>/mcp`` one. None for any other path; nothing is decoded, so that a path has one meaning only."""
    if path == "/mcp":
        return None, None
    match path.split("/"):
        case ["", "w", workspace, "mcp"] if workspace:
            return workspace, None
        case ["", "s", variant, "mcp"] if variant:
            return None, variant
        case _:
            return None


class McpFront:
    """The handler of an HttpServer; an async context manager, which ends all sessions when it is left. Enter it inside
    the server's: streams end then before the server closes, which need not wait for them."""

    def __init__(
        self,
        handler: Handler,
        login: Login,
        *,
        hosts: rules.Hosts,
        pages: Mapping[str, Page] | None = None,
        session_idle: float = SESSION_IDLE,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        """``hosts`` may be replaced at any time, through the attribute of that name; so may ``resource``."""
        self.hosts = hosts
        self.resource: Resource | None = None
        """What this is to those who come with tokens of somebody else, where such are taken."""
        self._handler = handler
        self._login = login
        self._pages = dict(pages or {})
        self._sessions = Sessions(session_idle, max_sessions)
        self._keys = Sessions(session_idle, max_sessions)
        self._watch = Watch(self._keys)
        self._sweeper: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> McpFront:
        self._loop = asyncio.get_running_loop()
        self._legacy = LegacyFront(self._handler, self._sessions, self._loop.time)
        self._sweep()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._legacy.close()
        self._watch.close()
        self.end_sessions(lambda _: True)

    def end_sessions(self, predicate: Callable[[HttpSession], bool]) -> int:
        """End sessions, such as those of a removed workspace: their ids are unknown from now on, their streams end,
        their running calls go on. Returns how many."""
        return self._sessions.end_where(predicate) + self._keys.end_where(predicate)

    def end_streams(self, predicate: Callable[[HttpSession], bool]) -> None:
        """End what sessions have open, such as those of somebody whose token has ended; the sessions stay."""
        self._sessions.silence_where(predicate)
        self._keys.silence_where(predicate)

    def _sweep(self) -> None:
        now = self._loop.time()
        self._sessions.sweep(now)
        self._keys.sweep(now)
        self._sweeper = self._loop.call_later(self._sessions.idle / 30, self._sweep)

    def admit(self, request: Request) -> Reply | asyncio.Future[None] | None:
        """Refuse a request before its body is read: not meant for us, no key, or nothing there that takes a body. A
        future: ask again when it is done."""
        passed = self._pass(request)
        if callable(passed):
            return problem(413, "no body is taken here")
        return None if isinstance(passed, Principal) else passed

    def __call__(self, request: Request) -> Awaitable[Reply | Stream]:
        """Answer any request."""
        passed = self._pass(request)
        if isinstance(passed, Principal):
            if rules.era_of(request.headers.get(rules.VERSION)) == "legacy":
                return self._legacy.answer(request, passed)
            return self._modern(request, passed)
        if isinstance(passed, Reply):
            return _refused(passed)
        return passed(request) if callable(passed) else self._later(passed, request)

    async def _later(self, known: asyncio.Future[None], request: Request) -> Reply | Stream:
        """The answer to a caller of whom more has to be found out first, by somebody who does so for all at once."""
        await asyncio.wait((known,))
        return await self(request)

    def _pass(self, request: Request) -> Principal | Reply | Page | asyncio.Future[None]:
        """Host, Origin and login: the principal, the page of another path, the refusal, or what to wait for before
        asking again."""
        headers = request.headers
        foreign = rules.foreign(headers, self.hosts)
        if foreign is not None:
            return problem(*foreign)
        named = endpoint(request.path)
        if named is None:
            return self._pages.get(request.path) or self._metadata(request.path)
        authorization = headers.get(b"authorization")
        given = None if authorization is None else authorization.decode("latin-1")
        try:
            return self._login(given, *named, request.peer)
        except Unauthenticated as error:
            wrong = () if given is None else (b'error="invalid_token"',)
            return rejection(401, INVALID_REQUEST, error.message, self._challenge(request.path, *wrong))
        except InsufficientScope as error:
            needed = b'scope="%b"' % " ".join(error.scopes).encode()
            headers = self._challenge(request.path, b'error="insufficient_scope"', needed)
            return rejection(403, INVALID_REQUEST, error.message, headers)
        except Refused as error:
            return rejection(403, INVALID_REQUEST, error.message)
        except Unavailable as error:
            return rejection(503, INTERNAL_ERROR, error.message, b"Retry-After: 5\r\n")

    def _metadata(self, path: str) -> Reply:
        document = self.resource.metadata(path) if self.resource is not None else None
        return problem(404, _NOTHING) if document is None else Reply(200, document)

    def _challenge(self, path: str, *parameters: bytes) -> bytes:
        """The header that says how to come in at ``path``."""
        more = self.resource.challenge(path) if self.resource is not None else ()
        given = {each.partition(b"=")[0] for each in parameters}
        asked = (*parameters, *(each for each in more if each.partition(b"=")[0] not in given))
        return b"WWW-Authenticate: Bearer%b\r\n" % (b" " + b", ".join(asked) if asked else b"")

    async def _modern(self, request: Request, principal: Principal) -> Reply | Stream:
        headers = request.headers
        if request.method != b"POST":
            return problem(405, "this protocol version has only POST", b"Allow: POST\r\n")
        got = read(request)
        if isinstance(got, Reply):
            return got
        message, params = got
        if message.method is UNSET:
            return rejection(400, INVALID_REQUEST, "clients send no responses in this protocol version")
        if message.id is UNSET:
            version = headers[rules.VERSION].decode("latin-1")
            # Known versions: no notification of a client means anything over HTTP there.
            return ACCEPTED if version in MODERN_VERSIONS else bare(400, unsupported(version))
        session = self._key_session(principal)
        if session is None:
            return problem(503, "too many clients")
        call = HttpCall(request, session, raw_id_of(message), message.method, params)
        meta = rules.ladder(headers, message.method, params)
        if not isinstance(meta, ModernMeta):
            return call.conclude(meta, rules.status_of(meta))
        call.meta, call.version = meta, meta.version
        answer = await call.run(self._handler, call)
        return call.conclude(answer, 200 if answer is None else rules.status_of(answer))

    def _key_session(self, principal: Principal) -> HttpSession | None:
        """The one session of a key, or of somebody in one workspace, and of each endpoint of a variant; None when
        there are too many."""
        key, place, now = principal.key_id, principal.workspace, self._loop.time()
        id = f"bare:{key}:{place}:{principal.variant}" if principal.bare else f"key:{key}:{place}"
        session = self._keys.get(id, principal, now)
        if session is None:
            session = HttpSession(id, principal, "modern", MODERN_VERSIONS[0], EMPTY)
            if not self._keys.add(session, now):
                return None
            self._watch.begin()
        return session


async def _refused(reply: Reply) -> Reply:
    return reply
