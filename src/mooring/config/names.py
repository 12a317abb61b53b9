"""What things may be called, and what somebody probably meant. Pure; called by the other modules of this room."""

from __future__ import annotations

from collections.abc import Iterable

RESERVED_SERVERS = frozenset(("list", "add", "show", "test", "enable", "disable", "remove"))
"""Verbs of ``mooring server``: a server of that name could not be addressed."""
RESERVED_KWARGS = frozenset(("presets", "mount"))
"""Words in a ``[workspaces.X.mcp.Y]`` table that are not kwargs."""
BUILT_IN = frozenset(("port", "workspace", "session"))
"""Placeholders that Mooring fills itself."""

_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_ALNUM = _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def server_fault(name: str) -> str:
    """Why ``name`` cannot name a server or a group; "" when it can."""
    if name in RESERVED_SERVERS:
        return f'"{name}" is a verb of "mooring server" and cannot be a name'
    if not name or name[0] not in _LOWER or not _LOWER.union("-_").issuperset(name) or len(name) > 64:
        return f'"{name}" cannot be a name: use at most 64 of a-z, 0-9, "-" and "_", beginning with a letter or digit'
    return ""


def plain_fault(name: str) -> str:
    """Why ``name`` cannot name a workspace, preset, team, agent, secret or kwarg; "" when it can."""
    if not name or name[0] not in _ALNUM | {"_"} or not _ALNUM.union("-_.").issuperset(name) or len(name) > 128:
        return f'"{name}" cannot be a name: use at most 128 of A-Z, a-z, 0-9, "-", "_" and "."'
    return ""


def prefix_fault(prefix: str) -> str:
    """Why ``prefix`` cannot be a mount's prefix; "" when it can."""
    if not prefix or not _LOWER.union("_").issuperset(prefix):
        return f'"{prefix}" cannot be a prefix: use a-z, 0-9 and "_"'
    return ""


def prefix_of(server: str) -> str:
    """The prefix a server gets when nobody chooses one."""
    return server.replace("-", "_")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to put behind "unknown ...": `` (did you mean "x"?)``, or ""."""
    from difflib import get_close_matches  # errors only

    close = get_close_matches(word, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""
