"""What a workspace's settings do to a server's command line: merging, placeholders, flags. Pure.

Called by ``config.resolve`` for each mount. A value that was filled in is never looked at again, so a kwarg whose value
is "{name}" is how a literal "{name}" is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from mooring.config.fault import Fault
from mooring.config.names import BUILT_IN
from mooring.config.schema_base import Kwarg, Path, Scalar

Kwargs = Mapping[str, Kwarg]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


def merge(defaults: Kwargs, presets: Iterable[Kwargs], own: Kwargs) -> dict[str, Kwarg]:
    """The kwargs that one grant gives: presets in order (scalars: later wins; lists append), then its own values
    replace, then ``"key+"`` appends to what is there, or else to the default. Defaults nobody touches stay out."""
    merged: dict[str, Kwarg] = {}
    for preset in presets:
        for key, value in preset.items():
            before = merged.get(key)
            appends = isinstance(before, tuple) and isinstance(value, tuple)
            _put(merged, defaults, key + "+" if appends else key, value)
    for key, value in sorted(own.items(), key=lambda item: item[0].endswith("+")):
        _put(merged, defaults, key, value)
    return merged


def _put(merged: dict[str, Kwarg], defaults: Kwargs, key: str, value: Kwarg) -> None:
    if not key.endswith("+"):
        merged[key] = value
        return
    key = key.removesuffix("+")
    before = merged[key] if key in merged else defaults.get(key, ())
    merged[key] = (*_listed(before), *_listed(value))


def _listed(value: Kwarg) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def canonical(value: object) -> str:
    """The one JSON text of ``value``: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def variant_id(server: str, kwargs: Kwargs) -> str:
    """``server``, or ``server-<6 hex>`` with kwargs. Only kwargs count: it survives edits of the definition."""
    if not kwargs:
        return server
    return f"{server}-{hashlib.sha256(canonical(kwargs).encode()).hexdigest()[:6]}"


def text(value: Scalar) -> str:
    """A value as it was written in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Filling:
    """Fills the placeholders of one server.

    ``values``: what may be filled in. ``keep``: names that stay as they are, for the launcher to fill at start.
    """

    def __init__(self, values: Kwargs, join: Mapping[str, str], keep: Iterable[str] = ()) -> None:
        self.values = values
        self.join = join
        self.keep = frozenset(keep)

    def fill(self, template: str, path: Path) -> str:
        """``template`` with values in it. Raises Fault for a placeholder without a value."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name in self.keep:
                return match[0]
            if name not in self.values:
                why = "set port" if name == "port" else f"give {name} a value in defaults or in the workspace"
                raise Fault(f"nothing fills {match[0]}: {why}", path)
            return self._one(name, path)

        return _PLACEHOLDER.sub(value, template)

    def _one(self, name: str, path: Path) -> str:
        value = self.values[name]
        if not isinstance(value, tuple):
            return text(value)
        if name not in self.join:
            raise Fault(f'a list cannot fill {{{name}}}; say how it becomes one value: join = {{ {name} = "," }}', path)
        return self.join[name].join(map(text, value))


def placeholders(templates: Iterable[str]) -> set[str]:
    """The names between braces in ``templates``."""
    return {name for template in templates for name in _PLACEHOLDER.findall(template)}


def flags(kwargs: Kwargs, join: Mapping[str, str]) -> tuple[str, ...]:
    """``--key value`` for each, sorted; ``true`` is a bare flag, ``false`` none; a list repeats or is joined."""
    made: list[str] = []
    for key in sorted(kwargs):
        value = kwargs[key]
        if isinstance(value, tuple) and key in join:
            value = (join[key].join(map(text, value)),) if value else ()
        for item in _listed(value):
            if isinstance(item, bool):
                made += [f"--{key}"] if item else []
            else:
                made += [f"--{key}", text(item)]
    return tuple(made)


def check_built_in(used: Iterable[str], kwargs: Kwargs, path: Path) -> None:
    """Raises Fault when a kwarg has the name of a placeholder that Mooring fills itself in this server."""
    for name in sorted(BUILT_IN.intersection(used) & kwargs.keys()):
        raise Fault(f"{{{name}}} is filled by Mooring; the kwarg needs another name", (*path, name))
