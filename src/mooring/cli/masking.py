"""Hides what looks like a secret in a definition before anybody sees it. Pure; errs on the side of hiding.

References are shown, since they say where a secret is, not what it is. Used by ``check``, ``server`` and ``import``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mooring.config.secret_shapes import secret_name, secret_value

MASK = "****"
_NAMED = frozenset(("env", "headers", "defaults"))
"""Tables whose keys somebody chose, so that their names tell what is in them."""
_FILLED = re.compile(r"\{[A-Za-z_][\w.-]*\}")
_SCHEME = re.compile(r"(?i)^(bearer|basic|token)\s+")
_OPTION = re.compile(r"(--?)?[A-Za-z][\w.-]*")


def definition(table: Mapping[str, Any]) -> dict[str, Any]:
    """A server's table as written, masked."""
    return {key: _member(key, value) for key, value in table.items()}


def argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command line, masked: ``--token X``, ``--token=X``, ``TOKEN=X``, and values that give themselves away."""
    shown: list[str] = []
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and _OPTION.fullmatch(name):
            shown.append(f"{name}={text(value, name)}")
        else:
            shown.append(text(word, "" if word.startswith("-") else option))
        option = word if word.startswith("-") and not equals else ""
    return tuple(shown)


def text(value: str, name: str = "") -> str:
    """``value``, or the mask when it, or the ``name`` it goes by, says that it is secret. Placeholders are not."""
    bare = _SCHEME.sub("", _FILLED.sub("", value)).strip()
    hidden = secret_value(value) or (bare and secret_name(name) and bare.lower() not in ("true", "false", "0", "1"))
    return MASK if hidden else value


def _member(key: str, value: Any) -> Any:
    match value:
        case str():
            return text(value)
        case list() if key == "args":
            return list(argv(map(str, value)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] -- TOML
        case dict() if key in _NAMED:
            return {name: text(one, name) if isinstance(one, str) else one for name, one in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] -- TOML
        case _:
            return value  # pyright: ignore[reportUnknownVariableType] -- TOML; references and settings hold no values
