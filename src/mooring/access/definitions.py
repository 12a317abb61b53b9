"""What of a tool's definition is pinned, and how two definitions differ. Pure; used by ``access.pins``.

Pinned is what a model reads and what decides how it is called: name, title, description, both schemas, annotations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mooring.nouns import Item

PARTS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def canonical(item: Item) -> str:
    """The pinned parts as one JSON text: equal texts, equal definitions. A definition that cannot be read is taken as
    it is written."""
    try:
        tool: Any = json.loads(item.raw)
    except (ValueError, RecursionError):
        tool = None
    if not isinstance(tool, dict):
        return json.dumps({"name": item.name, "raw": item.raw.decode("utf-8", "replace")}, sort_keys=True)
    parts: dict[str, Any] = {part: tool[part] for part in PARTS if part in tool}  # pyright: ignore[reportUnknownVariableType]
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def fingerprint(definition: str) -> str:
    """A name of a canonical definition. In full, since it is what a person's approval holds on to: of short ones two
    definitions can be made that share one."""
    return hashlib.sha256(definition.encode()).hexdigest()


def changed_parts(before: str, after: str) -> tuple[str, ...]:
    """The parts in which two canonical definitions differ."""
    one, two = json.loads(before), json.loads(after)
    return tuple(part for part in (*PARTS, "raw") if one.get(part) != two.get(part))


def difference(before: str | None, after: str | None) -> str:
    """Two canonical definitions line by line, as people compare texts; None is no definition."""
    import difflib  # read by people only, hence seldom

    lines = difflib.unified_diff(_lines(before), _lines(after), "pinned", "now", lineterm="", n=1)
    return "\n".join(lines)


def former_name(definition: str, gone: Mapping[str, str]) -> str | None:
    """Which of the tools that are ``gone`` (name to definition) was this one under another name."""
    body = _without_name(definition)
    return next((name for name, old in gone.items() if _without_name(old) == body), None)


def _without_name(definition: str) -> dict[str, Any]:
    parts = json.loads(definition)
    return {part: value for part, value in parts.items() if part not in ("name", "title")}


def _lines(definition: str | None) -> list[str]:
    if definition is None:
        return []
    # Escaped, so that nothing in a definition can hide from who reads it.
    return json.dumps(json.loads(definition), indent=2, sort_keys=True).splitlines()
