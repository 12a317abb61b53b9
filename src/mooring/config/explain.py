"""A msgspec validation error in the words of somebody who writes TOML, with the exact key. Pure.

Called by ``config.decode`` after a failure only, so it may be slow: it looks at the types again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

from mooring.config.durations import decode as decode_duration
from mooring.config.names import did_you_mean
from mooring.config.schema_base import Path

_SOME_KEY = "*"
_WORDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def explain(error: msgspec.ValidationError, value: Any, kind: Any) -> tuple[str, Path]:
    """What is wrong with ``value``, and where in it. ``kind`` is the type it was to become."""
    message, _, where = str(error).partition(" - at `$")
    steps = _steps(where.rstrip("`"))
    if _SOME_KEY in steps:
        steps = _with_key(value, kind, steps)
    expected = list(_flat(_walk([inspect.type_info(kind)], steps)))
    if "unknown field" in message:
        key = message.split("`")[1]
        known = [field.encode_name for node in expected for field in getattr(node, "fields", ())]
        return f'unknown key "{key}"{did_you_mean(key, known)}', (*steps, key)
    if "missing required field" in message:
        return f'"{message.split("`")[1]}" is missing', steps
    if message.startswith("Invalid enum value"):
        allowed = [f'"{choice}"' for node in expected for choice in getattr(node, "values", ())]
        return f"{message.removeprefix('Invalid enum value ')} is not one of {', '.join(allowed)}", steps
    return _worded(message), steps


def _worded(message: str) -> str:
    """msgspec's "Expected `a | b`, got `c`" in words."""
    pieces = message.split("`")
    pieces[1::2] = [" or ".join(_WORDS.get(word, word) for word in piece.split(" | ")) for piece in pieces[1::2]]
    return "".join(pieces).replace("Expected", "expected")


def _steps(where: str) -> Path:
    """msgspec's ``.a[...][3]`` as steps; it does not say which key of a dict it means."""
    parts = where.replace("[...]", f".{_SOME_KEY}").replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts if part)


def _with_key(value: dict[str, Any], kind: Any, steps: Path) -> Path:
    """Find the key by trying each alone. Our tables nest dicts one deep, so the dict is a field of ``value``."""
    field = steps[0]
    assert isinstance(field, str)
    key = next(key for key, item in value[field].items() if _fails({**value, field: {key: item}}, kind))
    return (field, key, *steps[2:])


def _fails(value: dict[str, Any], kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=decode_duration)
    except msgspec.ValidationError:
        return True
    return False


def _flat(nodes: Iterable[Any]) -> Iterable[Any]:
    for node in nodes:
        if isinstance(node, inspect.UnionType):
            yield from _flat(node.types)
        else:
            yield node


def _walk(nodes: list[Any], steps: Path) -> list[Any]:
    """The types that may stand at ``steps``."""
    for step in steps:
        found: list[Any] = []
        for node in _flat(nodes):
            if isinstance(node, inspect.StructType):
                found += [field.type for field in node.fields if field.encode_name == step]
            elif isinstance(node, inspect.DictType):
                found.append(node.value_type)
            elif isinstance(node, inspect.VarTupleType):
                found.append(node.item_type)
        nodes = found
    return nodes
