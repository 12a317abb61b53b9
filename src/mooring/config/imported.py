"""One server of another program's configuration, as a table of ours. Pure; called by ``config.importer``.

Nothing is dropped without a word: what has no counterpart here is in ``problems``; a server that would not work without
it comes disabled. Secret values leave the table for ``secrets``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mooring.config.names import BUILT_IN
from mooring.config.secret_shapes import secret_name, secret_value

_COMMON = ("name", "type", "disabled", "enabled", "tools")
_KNOWN = frozenset((*_COMMON, "command", "args", "env", "cwd", "credentials", "url", "serverUrl", "httpUrl", "headers"))
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][\w.-]*)(?::-([^}]*))?\}")
_BRACES = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


class Entry:
    """Turns one entry into ``table``. ``inputs``: VS Code's input id to its default, None when a person types it."""

    def __init__(self, name: str, entry: Mapping[str, Any], inputs: Mapping[str, str | None], smcp: bool) -> None:
        self.name = name
        self.entry = entry
        self.inputs = inputs
        self.table: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        """Store name to value."""
        self.wanted: set[str] = set()
        """Store names whose value a person has to give."""
        self.problems: list[str] = []
        self._defaults: dict[str, str] = {}
        self._refs: dict[str, Any] = {}
        self._translate(smcp)

    def _translate(self, smcp: bool) -> None:
        url = next((self.entry[key] for key in ("url", "serverUrl", "httpUrl") if key in self.entry), None)
        if isinstance(url, str):
            self._remote(url)
        elif isinstance(self.entry.get("command"), str):
            self._process(smcp)
        else:
            self._problem("it has neither command nor url and is left out")
            return
        if self._defaults:
            self.table["defaults"] = self._defaults
        if self._refs:
            self.table["secrets"] = self._refs
        if self.entry.get("disabled") is True or self.entry.get("enabled") is False:
            self.table["enabled"] = False
        for key in sorted(self.entry.keys() - _KNOWN):
            self._problem(f'"{key}" has no counterpart and is left out')
        self._tools(self.entry.get("tools", ["*"]))

    def _tools(self, allowed: Any) -> None:
        if not isinstance(allowed, list) or not all(isinstance(glob, str) for glob in allowed):  # pyright: ignore[reportUnknownVariableType]
            self._problem('"tools" is not a list of names and is left out')
        elif allowed != ["*"]:
            self.table["tools"] = {"allow": allowed}

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self.name}: {text}")

    def _incomplete(self, text: str) -> None:
        self._problem(f"{text}; the server comes disabled")
        self.table["enabled"] = False

    def _process(self, smcp: bool) -> None:
        self.table["command"] = self.entry["command"]
        if _VARIABLE.search(self.entry["command"]):
            self._incomplete("command has a ${variable} in it")
        self._args(self.entry.get("args"))
        if isinstance(cwd := self.entry.get("cwd"), str):
            self.table["cwd"] = self._plain(cwd, "cwd")
        plain: dict[str, str] = {}
        for key, value in self._members("env"):
            self._variable(key, value, plain)
        if plain:
            self.table["env"] = plain
        if smcp or "credentials" in self.entry:
            self.table["credentials"] = {
                key: self._reference(key, value, "credentials") for key, value in self._members("credentials")
            }
        if self.entry.get("headers"):
            self._problem("headers are for remotes and are left out")

    def _args(self, given: Any) -> None:
        if not given:
            return
        if not isinstance(given, list):
            self._incomplete("args is not a list and is left out")
            return
        args = [_text(arg) for arg in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        self.table["args"] = [self._plain(arg, "args") for arg in args]
        pairs = zip(["", *args[:-1]], args, strict=True)
        if any(secret_value(arg) or _is_option_secret(option, arg) for option, arg in pairs):
            self._problem("args seem to hold a secret; they stay in the file and are visible in ps")

    def _remote(self, url: str) -> None:
        self.table["url"] = self._plain(url, "url")
        if secret_value(url):
            self._problem("url seems to hold a secret; it stays in the file")
        if self.entry.get("type") == "sse":
            self.table["transport"] = "sse"
        headers: dict[str, str] = {}
        for name, value in self._members("headers"):
            self._header(name, value, headers)
        if headers:
            self.table["headers"] = headers
        for key in ("command", "args", "env", "cwd", "credentials"):
            if self.entry.get(key):
                self._problem(f"{key} is for programs and is left out: it has a url")

    def _members(self, field: str) -> list[tuple[str, str]]:
        members: Any = self.entry.get(field) or {}
        if not isinstance(members, dict):
            self._incomplete(f"{field} is not a table and is left out")
            return []
        return [(str(key), _text(value)) for key, value in members.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    def _default(self, name: str, value: str) -> None:
        """Fill ``{name}`` with ``value``."""
        if name in BUILT_IN or self._defaults.get(name, value) != value:
            self._incomplete(f"{{{name}}} means something else here; write it by hand")
        else:
            self._defaults[name] = value

    def _variable(self, key: str, value: str, plain: dict[str, str]) -> None:
        if _VARIABLE.search(value):
            whole = _VARIABLE.fullmatch(value)
            default = whole and (whole[3] if whole[1] != "input" else self.inputs.get(whole[2]))
            if default is not None and not secret_name(key):
                plain[key] = self._braces(default)
                self._problem(f"env {key} is fixed to its default, {default!r}")
            else:
                self._refs[key] = self._reference(key, value, "env")
        elif value and _holds_secret(key, value):
            self._refs[key] = self._stored(key, value)
        else:
            plain[key] = self._braces(value)

    def _reference(self, key: str, value: str, field: str) -> dict[str, Any]:
        """A reference for a value that is secret."""
        whole = _VARIABLE.fullmatch(value)
        if whole is not None:
            return self._named(whole)
        if _VARIABLE.search(value):
            self._incomplete(f"{field} {key} mixes text and a ${{variable}}: store the whole value")
            store = f"{self.name}_{key}"
            self.wanted.add(store)
            return {"store": store}
        return self._stored(key, value)

    def _named(self, variable: re.Match[str]) -> dict[str, Any]:
        if variable[1] == "input":
            self.wanted.add(variable[2])
            return {"store": variable[2]}
        return {"env": variable[2]}

    def _stored(self, key: str, value: str) -> dict[str, Any]:
        store = f"{self.name}_{_identifier(key)}"
        self.secrets[store] = value
        return {"store": store}

    def _header(self, name: str, value: str, headers: dict[str, str]) -> None:
        scheme, _, token = value.partition(" ")
        whole = _VARIABLE.fullmatch(token.strip())
        bearer = name.lower() == "authorization" and scheme.lower() == "bearer" and token.strip()
        if bearer and whole:
            self.table["auth"] = self._named(whole)
        elif bearer and not _VARIABLE.search(token):
            self.table["auth"] = self._stored("authorization", token.strip())
        elif _VARIABLE.search(value):
            headers[name] = self._with_variables(value)
        elif _holds_secret(name, value):
            self._refs[_identifier(name)] = self._stored(name, value)
            headers[name] = f"{{{_identifier(name)}}}"
        else:
            headers[name] = self._braces(value)

    def _with_variables(self, value: str) -> str:
        """A header's text: each ``${VAR}`` becomes a secret filled in at connecting."""
        made, at = "", 0
        for variable in _VARIABLE.finditer(value):
            made += self._braces(value[at : variable.start()]) + f"{{{variable[2]}}}"
            self._refs[variable[2]] = self._named(variable)
            at = variable.end()
        return made + self._braces(value[at:])

    def _plain(self, value: str, field: str) -> str:
        """A text that is not secret: each ``${VAR}`` becomes a placeholder."""
        made, at = "", 0
        for variable in _VARIABLE.finditer(value):
            made += self._braces(value[at : variable.start()]) + f"{{{variable[2]}}}"
            default = variable[3] if variable[1] != "input" else self.inputs.get(variable[2])
            if default is not None:
                self._default(variable[2], default)
            else:
                self._incomplete(f"{field} needs a value for {variable[2]}: add it to defaults")
            at = variable.end()
        return made + self._braces(value[at:])

    def _braces(self, value: str) -> str:
        """``value`` with literal ``{name}`` kept literal: a kwarg of that name fills in the same text."""
        for name in _BRACES.findall(value):
            self._default(name, f"{{{name}}}")
        return value


def _holds_secret(name: str, value: str) -> bool:
    return bool(value) and (
        secret_value(value) or (secret_name(name) and value.lower() not in ("true", "false", "0", "1"))
    )


def _is_option_secret(option: str, value: str) -> bool:
    """``--token VALUE`` or ``--token=VALUE``."""
    key, equals, inline = value.partition("=")
    if equals and key.startswith("-"):
        option, value = key, inline
    return option.startswith("-") and not value.startswith(("-", "$")) and _holds_secret(option, value)


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
