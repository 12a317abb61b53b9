"""A conversation with a server that has a URL: which transport it speaks, which era, and how long to wait for it.

Called by ``serve.upstream`` inside an instance's owner task. The conversations themselves are in ``wire.http_upstream``
and ``wire.sse_upstream``. It never starts or ends a process.

Source: MCP 2026-07-28 "Streamable HTTP: Backward Compatibility".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from mooring.errors import Crashed, MooringError, StartFailed, TimedOut, UpstreamProtocol
from mooring.launch.base import Url
from mooring.nouns import Era
from mooring.wire.bearer import Bearer
from mooring.wire.connection import Connection, Listener
from mooring.wire.http_client import HttpClient
from mooring.wire.http_upstream import HttpConnection
from mooring.wire.jsonrpc import Answer
from mooring.wire.sse_upstream import opened
from mooring.wire.upstream_handshake import Handshake
from mooring.wire.upstream_refusal import OLD_TRANSPORT, not_there

PATIENCE = 15.0
"""Seconds at most, and half of the time limit, that a silent probe is waited for alone: a server that was asleep may
need them, and only then is it asked in the other era."""
FIRST_KNOCK = 0.05
LONGEST_KNOCK = 0.25
"""Seconds between two tries to reach a server that is starting: doubling."""


class Terms(msgspec.Struct, frozen=True):
    """On what terms to open a conversation.

    ``exited`` resolves with the exit code when the server's process is gone. ``era``: what it spoke last time, a hint.
    ``timeout``: seconds for the handshake. ``starting``: the server is just being started, so that whatever says it is
    not there yet is waited out. ``auth``: the token to send, where there is a login.
    """

    name: str
    exited: asyncio.Future[int | None]
    listener: Listener
    capabilities: bytes
    timeout: float
    phase: Callable[[str], None]
    era: Era | None = None
    starting: bool = False
    auth: Bearer | None = None


@asynccontextmanager
async def connect(endpoint: Url, terms: Terms) -> AsyncGenerator[Connection]:
    """Talk to the server at ``endpoint``, with the transport it names; "http" falls back to "sse" where the server
    speaks only that. Leaving the block ends the conversation.

    Raises StartFailed when it cannot be reached or its process ended, TimedOut when it did not answer in time,
    Unavailable when it wants a login, UpstreamProtocol when no version is spoken by both.
    """
    async with AsyncExitStack() as stack:
        auth = terms.auth and await stack.enter_async_context(terms.auth)
        client = HttpClient(terms.name, endpoint.url, endpoint.headers, endpoint.socket, auth)
        http = await stack.enter_async_context(client)
        way = _old if endpoint.transport == "sse" else _streamable
        try:
            connection = await _opened(stack, way, http, terms)
        except _OldTransport as old:
            try:
                connection = await _opened(stack, _old, http, terms)
            except MooringError:
                raise old.error from None
        yield connection


class _OldTransport(Exception):
    """The server will not be posted to: it may speak HTTP+SSE. ``error`` is its refusal."""

    def __init__(self, error: MooringError) -> None:
        super().__init__(str(error))
        self.error = error


Way = Callable[[AsyncExitStack, HttpClient, Terms], Awaitable[Connection]]


async def _opened(stack: AsyncExitStack, way: Way, http: HttpClient, terms: Terms) -> Connection:
    """The first conversation that comes about; one that is starting is tried again until it answers or ends."""
    pause, last = FIRST_KNOCK, ""
    limit, trying = asyncio.timeout(terms.timeout), True

    def gone(_: object) -> None:
        if trying and not limit.expired():
            limit.reschedule(0)

    terms.exited.add_done_callback(gone)
    try:
        async with limit:
            while True:
                try:
                    return await _attempt(stack, way, http, terms)
                except MooringError as error:
                    if not (terms.starting and not_there(error)):
                        raise
                    last = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_KNOCK)
    except TimeoutError:
        if terms.exited.done():
            code = terms.exited.result()
            how = "ended" if code is not None else "was ended together with what kept it"
            exit_code = "" if code is None else f" (exit code {code})"
            raise StartFailed(f"{terms.name} {how} before it answered{exit_code}", server=terms.name) from None
        setting = "start" if terms.starting else "initialize"
        what = f"{terms.name} did not answer within {terms.timeout:g} s (timeouts.{setting} sets the limit)"
        what += last and f": {last}"
        raise TimedOut(what, server=terms.name) from None
    except Crashed as error:
        raise StartFailed(str(error), server=terms.name) from None
    finally:
        trying = False  # word of the end may be on its way already
        terms.exited.remove_done_callback(gone)


async def _attempt(stack: AsyncExitStack, way: Way, http: HttpClient, terms: Terms) -> Connection:
    """One try; what it opened stays with ``stack`` if it succeeds."""
    async with AsyncExitStack() as own:
        connection = await way(own, http, terms)
        stack.push_async_exit(own.pop_all())
        return connection


async def _streamable(stack: AsyncExitStack, http: HttpClient, terms: Terms) -> Connection:
    connection = HttpConnection(terms.name, http, terms.listener, terms.capabilities, terms.timeout)
    stack.push_async_callback(connection.close)
    try:
        facts = await _handshake(connection.knock, terms).run(terms.era)
    except UpstreamProtocol as error:
        if connection.refused_with in OLD_TRANSPORT:
            raise _OldTransport(error) from None
        raise
    await connection.agree(facts)
    return connection


async def _old(stack: AsyncExitStack, http: HttpClient, terms: Terms) -> Connection:
    connection = await stack.enter_async_context(opened(http, terms.listener))
    facts = await _handshake(connection.begin, terms).run_legacy()
    connection.agree(facts, terms.capabilities)
    return connection


def _handshake(begin: Callable[[str, bytes], asyncio.Future[Answer]], terms: Terms) -> Handshake:
    patience = min(terms.timeout / 2, PATIENCE)
    return Handshake(terms.name, begin, capabilities=terms.capabilities, patience=patience, phase=terms.phase)
