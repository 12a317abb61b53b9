"""What a server offers, as it says it: tools, prompts, resources and templates, each list drained to its end.

Called by ``serve.discovery`` at ``ready`` and after a ``list_changed``. Items keep the very bytes the server wrote. A
list that fails is reported and costs the others nothing. Source: MCP "Pagination" and the list methods of both eras.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from mooring.errors import Crashed, MooringError
from mooring.instances.health import Complete, as_is
from mooring.nouns import Caching, Item, Listing
from mooring.wire import jsonrpc
from mooring.wire.connection import Connection
from mooring.wire.jsonrpc import BadFrame

MAX_PAGES = 1_000
MAX_ITEMS = 100_000
LIST_LIMIT = 25.0
"""Seconds for one list with all its pages."""

_END = (b"null", b'""')


class _Kind(msgspec.Struct, frozen=True):
    capability: str
    method: str
    member: str
    """Of the result: the array of items."""
    name: str
    """Of an item: what identifies it."""
    optional: bool = False
    """A server with the capability need not know the method."""


_TOOLS = _Kind("tools", "tools/list", "tools", "name")
_PROMPTS = _Kind("prompts", "prompts/list", "prompts", "name")
_RESOURCES = _Kind("resources", "resources/list", "resources", "uri")
_TEMPLATES = _Kind("resources", "resources/templates/list", "resourceTemplates", "uriTemplate", optional=True)


class _Drained:
    """One list as far as it got. ``failed``: it is not known to the end."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.names: set[str] = set()
        self.problems: list[str] = []
        self.caching: Caching | None = None
        self.failed = False

    def fail(self, problem: str) -> None:
        self.failed = True
        self.problems.append(problem)


async def take(
    connection: Connection,
    now: float,
    *,
    complete: Complete = as_is,
    before: Listing | None = None,
    limit: float = LIST_LIMIT,
) -> Listing:
    """All lists that the server declares, taken at the same time. ``now``: epoch seconds; ``limit``: seconds a list;
    ``before``: the last good listing, whose items stand in for a list that fails now. Raises Crashed when the
    conversation ends meanwhile; everything else is in ``problems``."""
    declared = jsonrpc.members(connection.facts.capabilities)
    kinds = [kind for kind in (_TOOLS, _PROMPTS, _RESOURCES, _TEMPLATES) if kind.capability in declared]
    async with asyncio.TaskGroup() as tasks:
        running = {kind: tasks.create_task(_drain(connection, kind, complete, limit)) for kind in kinds}
    if connection.closed.done():
        raise Crashed(f"The server ended while it was listed: {connection.closed.result()}", phase="discover")
    drained = {kind: task.result() for kind, task in running.items()}

    def items(kind: _Kind, last: tuple[Item, ...]) -> tuple[Item, ...]:
        got = drained.get(kind)
        if got is None:
            return ()
        return last if got.failed and last else tuple(got.items)

    last = before or Listing(connection.facts)
    return Listing(
        facts=connection.facts,
        tools=items(_TOOLS, last.tools),
        prompts=items(_PROMPTS, last.prompts),
        resources=items(_RESOURCES, last.resources),
        templates=items(_TEMPLATES, last.templates),
        problems=tuple(problem for got in drained.values() for problem in got.problems),
        taken_at=now,
        caching={kind.method: got.caching for kind, got in drained.items() if got.caching and not got.failed},
    )


async def _drain(connection: Connection, kind: _Kind, complete: Complete, limit: float) -> _Drained:
    drained = _Drained()
    try:
        async with asyncio.timeout(limit):
            await _pages(connection, kind, complete, drained)
    except TimeoutError:
        drained.fail(f"{kind.method}: no answer within {limit:g} s")
    except BadFrame as error:
        drained.fail(f"{kind.method}: not the expected shape: {error}")
    except MooringError as error:
        drained.fail(f"{kind.method}: {error}")
    return drained


async def _pages(connection: Connection, kind: _Kind, complete: Complete, drained: _Drained) -> None:
    params = jsonrpc.EMPTY
    seen: set[bytes] = set()
    for _ in range(MAX_PAGES):
        answer = await connection.request(kind.method, complete(connection.facts, params))
        if answer.error is not None:
            _refused(kind, answer.error, drained)
            return
        page = jsonrpc.members(answer.result or jsonrpc.EMPTY)
        _add(kind, _elements(page.get(kind.member)), drained)
        drained.caching = narrower(drained.caching, _caching(page))
        cursor = bytes(page.get("nextCursor", b"null")).strip()
        if len(drained.items) > MAX_ITEMS or (len(drained.items) == MAX_ITEMS and cursor not in _END):
            del drained.items[MAX_ITEMS:]
            drained.problems.append(f"{kind.method}: more than {MAX_ITEMS} items; the rest is left out")
            return
        if cursor in _END:
            return
        if cursor in seen:
            drained.problems.append(f"{kind.method}: the server repeats a cursor; stopped there")
            return
        seen.add(cursor)
        params = b'{"cursor":' + cursor + b"}"
    drained.problems.append(f"{kind.method}: more than {MAX_PAGES} pages; the rest is left out")


def narrower(one: Caching | None, other: Caching) -> Caching:
    """What holds for two parts together: the shorter time, the narrower audience."""
    if one is None:
        return other
    return Caching(min(one.ttl_ms, other.ttl_ms), one.public and other.public)


def _caching(page: Mapping[str, Raw]) -> Caching:
    try:
        ttl = msgspec.json.decode(page.get("ttlMs", b"0"), type=int)
    except msgspec.DecodeError:
        ttl = 0
    return Caching(max(ttl, 0), jsonrpc.string(page.get("cacheScope")) == "public")


def _refused(kind: _Kind, error: bytes, drained: _Drained) -> None:
    parts = jsonrpc.members(error)
    code = bytes(parts.get("code", b"?")).decode()
    if kind.optional and code == str(jsonrpc.METHOD_NOT_FOUND) and not drained.items:
        return
    drained.fail(f"{kind.method}: error {code}: {jsonrpc.string(parts.get('message')) or 'no message'}")


def _add(kind: _Kind, raws: list[Raw], drained: _Drained) -> None:
    nameless = 0
    for raw in raws:
        try:
            name = jsonrpc.string(jsonrpc.members(raw).get(kind.name))
        except BadFrame:
            name = None
        if not name:
            nameless += 1
        elif name not in drained.names:  # one that repeats a page, or an item, means the first
            drained.names.add(name)
            drained.items.append(Item(name, bytes(raw)))
    if nameless:
        drained.problems.append(f"{kind.method}: {nameless} without a {kind.name}, left out")


def _elements(raw: Raw | None) -> list[Raw]:
    """The elements of a raw JSON array. Raises BadFrame when it is none."""
    if raw is None:
        raise BadFrame("the list is missing")
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except msgspec.ValidationError:
        raise BadFrame("the list is not an array") from None
    except msgspec.DecodeError:
        from mooring.wire import lenient
    try:
        return lenient.elements(bytes(raw))
    except ValueError:
        raise BadFrame("the list is not an array") from None
