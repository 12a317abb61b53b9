"""How a package is got without being run: from the command that runs it. Pure.

For commands whose form is known, which those of ``catalog.adopt`` are; whatever else ``npx`` and ``uvx`` are told to do
stays with them. Used for what is added at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

_TAKING = ("--with", "--python", "--from")
"""Options of uvx that have a value and say what the package is."""


def fetching(argv: Sequence[str]) -> tuple[str, ...]:
    """The command that gets what ``argv`` runs into the cache of the same program; empty when there is none."""
    match argv:
        case ("npx", "-y" | "--yes", package, *_) if not package.startswith("-"):
            return ("npx", "-y", f"--package={package}", "--", "node", "--eval", "0")
        case ("uvx", *rest):
            return _uvx(rest)
        case _:
            return ()


def _uvx(rest: Sequence[str]) -> tuple[str, ...]:
    """In the environment that it makes, with its Python instead of the package's own program."""
    options: list[str] = []
    while len(rest) > 2 and rest[0] in _TAKING:
        options += rest[:2]
        rest = rest[2:]
    if not rest or rest[0].startswith("-"):
        return ()
    source = [] if "--from" in options else ["--from", rest[0]]
    if any("@" in word for word in source):  # name@version means something only where the program is named
        return ()
    return ("uvx", *options, *source, "python", "-c", "0")
