"""What a document says beyond what is understood of it: the difference between it and its rendering. Pure.

``applied(rendered, residue(rendered, document)) == document`` for any two JSON values. That makes every importer of the
catalog lossless, unknown fields and odd spellings included, without a copy of the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

Step = tuple[Any, ...]
"""``(path, value)`` puts a value there, ``(path,)`` takes it away; a path is a list of keys and positions."""
Residue = tuple[Step, ...]


def plain(struct: msgspec.Struct) -> Any:
    """A struct as JSON values that can be changed."""
    return msgspec.json.decode(msgspec.json.encode(struct))


def residue(rendered: Any, document: Any) -> Residue:
    """The steps that make ``document`` of ``rendered``."""
    return tuple(_steps(rendered, document, ()))


def applied(rendered: Any, steps: Residue) -> Any:
    """``rendered`` after these steps. Changes it, as far as it is made of dicts and lists."""
    for path, *value in steps:
        if not path:
            rendered = value[0]
            continue
        at = rendered
        for key in path[:-1]:
            at = at[key]
        if value:
            at[path[-1]] = value[0]
        else:
            del at[path[-1]]
    return rendered


def _steps(here: Any, there: Any, path: tuple[str | int, ...]) -> Iterator[Step]:
    if isinstance(here, dict) and isinstance(there, dict):
        one, two = cast("dict[str, Any]", here), cast("dict[str, Any]", there)
        yield from (([*path, key],) for key in one if key not in two)
        for key, value in two.items():
            if key in one:
                yield from _steps(one[key], value, (*path, key))
            else:
                yield [*path, key], value
        return
    if isinstance(here, list) and isinstance(there, list):
        mine, theirs = cast("list[Any]", here), cast("list[Any]", there)
        if len(mine) == len(theirs):
            for number, (first, second) in enumerate(zip(mine, theirs, strict=True)):
                yield from _steps(first, second, (*path, number))
            return
    if type(cast("Any", here)) is not type(cast("Any", there)) or here != there:  # True is not 1 here
        yield list(path), there
