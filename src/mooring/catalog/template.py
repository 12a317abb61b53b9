"""Templates of entries: ``{name}`` in arguments, variables, headers, URLs and volumes, and what to do to the value.

``{paths|into}`` makes one text of each item of a list; ``volume`` writes a path as a mount of itself, ``volume-target``
as the place where it is mounted, which is the same; ``or:X`` is X where there is no value. Braces around anything that
is not a known name are text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Given = str | tuple[str, ...]
"""A setting as text, or a list of them."""

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)((?:\|[^{}|]*)*)\}")


def names(template: str) -> list[str]:
    """The names in a template, known or not, in order."""
    return [match[1] for match in _PLACE.finditer(template)]


def filled(template: str, values: Mapping[str, Given], known: Iterable[str]) -> list[str] | None:
    """The texts that a template becomes: one, or with ``into`` any number. None when a known name has no value."""
    there = set(known)
    whole = _PLACE.fullmatch(template)
    if whole and whole[1] in there and "into" in _filters(whole):
        found = _value(whole, values)
        return None if found is None else [_filtered(item, whole) for item in _listed(found)]
    missing = False

    def put(match: re.Match[str]) -> str:
        nonlocal missing
        if match[1] not in there:
            return match[0]
        found = _value(match, values)
        missing = missing or found is None
        return ",".join(_filtered(item, match) for item in _listed(found or ""))

    text = _PLACE.sub(put, template)
    return None if missing else [text]


def _filters(match: re.Match[str]) -> list[str]:
    return [part.strip() for part in match[2].split("|")[1:]]


def _value(match: re.Match[str], values: Mapping[str, Given]) -> Given | None:
    if match[1] in values:
        return values[match[1]]
    for part in _filters(match):
        if part.startswith("or:"):
            fallback = part.removeprefix("or:")
            return () if fallback == "[]" else fallback
    return None


def _listed(value: Given) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _filtered(text: str, match: re.Match[str]) -> str:
    return f"{text}:{text}" if "volume" in _filters(match) else text
