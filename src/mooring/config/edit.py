"""Changes to the configuration files that keep comments, order and everything else as it was.

Called by ``mooring server`` and ``mooring import``. An edit is text first (``added``, ``switched``, ``removed``);
``apply`` tries it together with all other files and only then writes, each file atomically. An invalid result changes
nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any

import msgspec

from mooring.config.files import held, mode_of, read_text, write_atomically
from mooring.config.load import load
from mooring.config.locate import spans_of
from mooring.config.names import did_you_mean, server_fault
from mooring.config.resolve import resolve
from mooring.config.schema import Loaded
from mooring.config.schema_base import Path
from mooring.errors import ConfigError

_BY_HAND = "it is written in a way that has to be edited by hand"
_LAYERS = ("workspaces", "teams", "agents")


class Edit(msgspec.Struct, frozen=True):
    """New texts for some files of a configuration."""

    loaded: Loaded
    texts: dict[str, str]
    """File to its new text, in the order of writing."""

    def check(self) -> None:
        """Raises ConfigError when the result would not be valid, or a file cannot be written."""
        main = File(self.loaded.files[0])
        resolve(load(main, self.texts, self.loaded.extend), fingerprint=lambda _: "", unsupported=lambda _: "")
        for name in self.texts:
            _check_writable(File(name), self.loaded.sources.get(name))

    def apply(self) -> tuple[str, ...]:
        """Write; returns the files written. Raises ConfigError, and then nothing was changed. Of two edits at the same
        time, one is refused: none is lost."""
        folder = File(self.loaded.files[0]).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(folder):
            self.check()
            for name, text in self.texts.items():
                file = File(name)
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomically(file, text.encode(), mode=mode_of(file, 0o600))
        return tuple(self.texts)


def added(loaded: Loaded, servers: Mapping[str, Mapping[str, Any]]) -> Edit:
    """Define new servers at the end of the main file. Raises ConfigError when one is defined already."""
    for name in servers:
        if message := server_fault(name):
            raise ConfigError(message)
        if name in loaded.config.mcp_servers and not brought_by(loaded, name):
            file, line = loaded.place(("mcp_servers", name))
            raise ConfigError(f'there is a server "{name}" already', file=file, line=line, path=f"mcp_servers.{name}")
    main = loaded.files[0]
    before = loaded.sources.get(main, "")
    blank = "" if not before or before.endswith("\n\n") else "\n" if before.endswith("\n") else "\n\n"
    return _checked(loaded, {main: before + blank + written(servers)}, "mcp_servers")


def written(servers: Mapping[str, Mapping[str, Any]]) -> str:
    """``servers`` as TOML: a table each, what is nested on one line."""
    import tomlkit  # edits only

    blocks: list[str] = []
    for name, table in servers.items():
        body = tomlkit.table()
        for key, value in table.items():
            body.add(key, _inline(value))
        parent = tomlkit.table(is_super_table=True)
        parent.add(name, body)
        document = tomlkit.document()
        document.add("mcp_servers", parent)
        blocks.append(tomlkit.dumps(document))
    return "\n".join(blocks)


def _inline(value: Any) -> Any:
    import tomlkit

    if not isinstance(value, Mapping):
        return value
    table = tomlkit.inline_table()
    for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType] -- our own tables
        table.append(str(key), _inline(inner))  # pyright: ignore[reportUnknownArgumentType]
    return table


def switched(loaded: Loaded, name: str, enabled: bool) -> Edit:
    """Enable or disable a server. No texts when it is so already. Raises ConfigError when there is none."""
    file = _file_of(loaded, name)
    if loaded.config.mcp_servers[name].enabled == enabled:
        return Edit(loaded, {})
    if plugin := brought_by(loaded, name):
        return added(loaded, {name: {"plugin": plugin, "enabled": enabled}})
    text, path = loaded.sources[file], ("mcp_servers", name)
    word = "true" if enabled else "false"
    header = next((span for span in spans_of(text) if span.header and span.path == path), None)
    if header is None or "enabled" in tomllib.loads(text)["mcp_servers"][name]:
        import tomlkit

        document: Any = tomlkit.parse(text)
        document["mcp_servers"][name]["enabled"] = enabled
        return _checked(loaded, {file: tomlkit.dumps(document)}, f"mcp_servers.{name}")
    lines = text.splitlines(keepends=True)
    lines[header.last - 1] = lines[header.last - 1].rstrip("\r\n") + "\n"
    lines.insert(header.last, f"enabled = {word}\n")
    return _checked(loaded, {file: "".join(lines)}, f"mcp_servers.{name}")


def removed(loaded: Loaded, name: str) -> Edit:
    """Take a server out, and out of every group, layer and kwargs table. Raises ConfigError when there is none."""
    home = _file_of(loaded, name)
    if plugin := brought_by(loaded, name):
        raise ConfigError(
            f'"{name}" comes with the plugin "{plugin}"; switch it off (mooring server disable {name}), or uninstall '
            "its package"
        )
    texts: dict[str, str] = {}
    for file in sorted(loaded.sources, key=lambda other: other == home):  # the definition goes last
        text = _without_mentions(loaded.sources[file], name)
        if file == home:
            text = _without(text, ("mcp_servers", name))
            if name in tomllib.loads(text).get("mcp_servers", {}):
                raise ConfigError(_BY_HAND, file=file, path=f"mcp_servers.{name}")
        if text != loaded.sources[file]:
            texts[file] = text
    return _checked(loaded, texts, f"mcp_servers.{name}")


def _without_mentions(text: str, name: str) -> str:
    import tomlkit

    document: Any = tomlkit.parse(text)
    tables = tomllib.loads(text)
    lists: list[tuple[str, ...]] = [("mcp_groups", group) for group in tables.get("mcp_groups", {})]
    layers: list[tuple[str, ...]] = [(kind, layer) for kind in _LAYERS for layer in tables.get(kind, {})]
    layers.append(("agent_pool",))
    for place in lists + [(*layer, "mcp_servers") for layer in layers]:
        found = _at(document, place)
        for position in reversed(range(len(found or ()))):
            if found[position] == name:
                del found[position]
    text = tomlkit.dumps(document)
    for layer in layers:
        text = _without(text, (*layer, "mcp", name))
    return text


def _at(document: Any, place: Path) -> Any:
    for step in place:
        document = document.get(step)
        if document is None:
            return None
    return document


def _without(text: str, path: Path) -> str:
    """``text`` without the table at ``path``: its headers and pairs go, comments between them and behind stay only
    when they belong to something else."""
    lines = text.splitlines(keepends=True)
    start, end = None, 0
    cuts: list[tuple[int, int]] = []
    for span in spans_of(text):
        mine = span.path[: len(path)] == path
        if mine and start is None:
            start = span.first
        if not mine and start is not None:
            cuts.append((start, end))
            start = None
        end = span.last
    if start is not None:
        cuts.append((start, end))
    for first, last in reversed(cuts):
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        while first > 1 and last < len(lines) and not lines[first - 2].strip() and not lines[last].strip():
            last += 1
        if first > 1 and last == len(lines) and not lines[first - 2].strip():
            first -= 1  # the blank line that ``added`` put in front
        del lines[first - 1 : last]
    return "".join(lines)


def brought_by(loaded: Loaded, name: str) -> str:
    """The plugin whose server this is when no file mentions it; else ""."""
    plugin = getattr(loaded.config.mcp_servers[name], "plugin", "")
    written = any(name in tomllib.loads(text).get("mcp_servers", {}) for text in loaded.sources.values())
    return "" if written else plugin


def _file_of(loaded: Loaded, name: str) -> str:
    if name not in loaded.config.mcp_servers:
        raise ConfigError(f'there is no server "{name}"{did_you_mean(name, loaded.config.mcp_servers)}')
    return loaded.file_of(("mcp_servers", name))


def _checked(loaded: Loaded, texts: dict[str, str], path: str) -> Edit:
    """Texts that are TOML still; what is written in a way this editor does not know is left to its writer."""
    for file, text in texts.items():
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            raise ConfigError(_BY_HAND, file=file, path=path) from None
    return Edit(loaded, texts)


def _check_writable(file: File, before: str | None) -> None:
    if file.exists() and not mode_of(file, 0) & 0o200:
        raise ConfigError("the file is read-only", file=str(file))
    if (read_text(file) if file.exists() else None) != before:
        raise ConfigError("the file was changed by somebody else just now; try again", file=str(file))
