"""What clients make of advertised names before their models see them, and which tools suffer from it. Pure.

Called by ``mooring check``. Nothing here changes a name: that is ``relay.table``. Clients are taken to call Mooring
``mooring``, as ``mooring export`` does. Source: what the clients were seen to send to their models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec

from mooring.nouns import Problem
from mooring.relay.table import Route

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the APIs of models take."""


class Client(msgspec.Struct, frozen=True):
    """A program with a way of its own with names. ``longest``: the longest advertised name that it leaves whole."""

    title: str
    longest: int
    fate: str
    """What becomes of a longer one."""
    shown: Callable[[str], str]
    """What its model is offered for an advertised name."""


def behind_two_underscores(name: str) -> str:
    """How Claude Code and Codex begin."""
    return f"mcp__mooring__{name}"


def gemini(name: str) -> str:
    """Gemini CLI: at most 63 characters, and what is longer loses its middle."""
    whole = f"mcp_mooring_{name}"
    return whole if len(whole) <= 63 else f"{whole[:30]}...{whole[-30:]}"


CLIENTS = (
    Client("Claude Code", 128 - len("mcp__mooring__"), "leaves out", behind_two_underscores),
    Client("Codex", 128 - len("mcp__mooring__"), "shortens", behind_two_underscores),
    Client("Gemini CLI", 63 - len("mcp_mooring_"), "cuts the middle out of", gemini),
)


def problems(routes: Iterable[Route]) -> Iterator[Problem]:
    """What happens to the names of these tools, by server and client. They come in the order of their mounts."""
    tools = list(routes)
    for server, group in groupby(tools, lambda route: route.mount.server):
        names = [route.advertised for route in group]
        for client in CLIENTS:
            if long := [name for name in names if len(name) > client.longest]:
                level = "warning" if client.fate == "leaves out" else "info"
                yield Problem(level, f"{client.title} {client.fate} long names of {server}: {', '.join(long)}; {_HELP}")
        if odd := [name for name in names if not _LEGAL.fullmatch(name)]:
            message = f"models take no names like these of {server}, which clients change or leave out: "
            yield Problem("warning", f"{message}{', '.join(odd)}; a mount with a prefix makes them fit")
    for client in CLIENTS:
        yield from _lost(client, tools)


_HELP = "a shorter prefix helps: mount = { prefix = ... }"


def _lost(client: Client, tools: Iterable[Route]) -> Iterator[Problem]:
    """Tools that one client cannot tell apart."""
    claims: dict[str, list[Route]] = {}
    for route in tools:
        claims.setdefault(client.shown(route.advertised), []).append(route)
    for name, claimed in claims.items():
        if len(claimed) > 1:
            owners = " and ".join(f"{route.advertised} of {route.mount.server}" for route in claimed)
            yield Problem("warning", f"{client.title} reaches one only of {owners}: both become {name}; {_HELP}")
