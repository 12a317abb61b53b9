"""What a person or agent gives an entry: which settings it declares, and whether a value fits. Pure.

Secrets are declared like settings but never given as ones: they go to the secret store, and only their names come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from mooring.catalog import template
from mooring.catalog.entry import Argument, Entry, KeyValue, Package, Transport, Value
from mooring.catalog.template import Given
from mooring.errors import ConfigError

_TRUTH = {"true": "true", "false": "false", "yes": "true", "no": "false", "1": "true", "0": "false"}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be given before the server can be started."""

    name: str
    description: str = ""
    secret: bool = False
    secret_name: str = ""
    """What to call it in the secret store."""
    format: str = "string"
    placeholder: str = ""
    choices: tuple[str, ...] = ()


def declared(entry: Entry, way: Package | Transport) -> dict[str, Value]:
    """Every setting and secret that this way to launch the entry has a place for, by the name it is given under."""
    found: dict[str, Value] = {}
    for part in _parts(way):
        if is_asked(part):
            found.setdefault(setting_name(part), part)
        for name, value in part.variables.items():
            found.setdefault(name, value)
    if isinstance(way, Transport):
        found |= {name: value for name, value in way.variables.items() if name not in found}
    used = {name for text in _texts(way) for name in template.names(text)}
    found |= {name: value for name, value in entry.inputs.items() if name in used and name not in found}
    return found


def is_asked(part: KeyValue | Argument) -> bool:
    """Whether somebody may give this part a value of its own."""
    return part.value is None and not is_flag(part)


def is_flag(part: KeyValue | Argument) -> bool:
    """A named argument about which nothing is said but its name stands as it is."""
    return isinstance(part, Argument) and bool(part.name) and part == Argument(type="named", name=part.name)


def setting_name(part: KeyValue | Argument) -> str:
    """Under which name its value is given."""
    if isinstance(part, KeyValue):
        return part.name
    return part.value_hint if part.type == "positional" else part.name.lstrip("-").rstrip("=")


def checked(given: Mapping[str, Any], known: Mapping[str, Value], entry_id: str) -> dict[str, Given]:
    """The values given, as text, and defaults. Raises ConfigError for what is not declared, secret, or does not fit."""
    values: dict[str, Given] = {}
    for name, value in given.items():
        if name not in known:
            listed = ", ".join(sorted(name for name, value in known.items() if not value.is_secret)) or "none"
            raise ConfigError(f'"{entry_id}" has no setting "{name}". It has: {listed}.')
        if known[name].is_secret:
            raise ConfigError(f'"{name}" is a secret: it is never given as a setting. Use: mooring secret set')
        values[name] = _fitting(name, value, known[name])
    for name, value in known.items():
        if name not in values and value.default is not None and not value.is_secret:
            values[name] = _default(value)
    return values


def wanted(known: Mapping[str, Value], values: Mapping[str, Given], secrets: Mapping[str, str]) -> list[Wanted]:
    """Of what is required, what is not there. ``secrets``: those that are missing, by name, with their name in the
    store."""
    return [
        Wanted(
            name=name,
            description=value.description,
            secret=value.is_secret,
            secret_name=secrets.get(name, ""),
            format=value.format,
            placeholder=value.placeholder,
            choices=value.choices,
        )
        for name, value in known.items()
        if value.is_required and name not in values and (not value.is_secret or name in secrets)
    ]


def _parts(way: Package | Transport) -> Iterable[KeyValue | Argument]:
    if isinstance(way, Package):
        return (*way.environment_variables, *way.package_arguments, *way.runtime_arguments)
    return way.headers


def _texts(way: Package | Transport) -> Iterable[str]:
    own = (way.url,) if isinstance(way, Transport) else (*way.volumes, way.user)
    return (*own, *(text for part in _parts(way) for text in (part.value, part.default) if text))


def _default(value: Value) -> Given:
    text = value.default or ""
    if value.format != "list":
        return text
    try:
        return tuple(map(str, msgspec.json.decode(text, type=list[Any])))
    except msgspec.MsgspecError:
        return (text,)


def _fitting(name: str, value: Any, what: Value) -> Given:
    if what.format == "list" or isinstance(value, list | tuple):
        items = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
        return tuple(_fitting_text(name, item, what) for item in items)
    return _fitting_text(name, value, what)


def _fitting_text(name: str, value: Any, what: Value) -> str:
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | int | float):
        text = str(value)
    else:
        raise ConfigError(f'The setting "{name}" needs text, a number, true or false, or a list of these.')
    if "\0" in text or "\n" in text:
        raise ConfigError(f'The setting "{name}" needs to be one line of text.')
    if what.choices and text not in what.choices:
        raise ConfigError(f'The setting "{name}" is "{text}"; it needs to be one of {", ".join(what.choices)}.')
    if what.format == "number" and not _is_number(text):
        raise ConfigError(f'The setting "{name}" is "{text}"; it needs to be a number.')
    if what.format == "boolean":
        if text.lower() not in _TRUTH:
            raise ConfigError(f'The setting "{name}" is "{text}"; it needs to be true or false.')
        return _TRUTH[text.lower()]
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
