"""A client's configuration file with Mooring in it, or without. Called by the ``export`` verb and the registry.

What else is in the file stays as it is. The file as it was before is kept beside it until Mooring is taken out again;
if nobody changed the file meanwhile, taking out puts back exactly that. A file is replaced whole or not at all.
"""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from typing import Any

import msgspec

from mooring.config import jsonc
from mooring.config.files import mode_of, write_atomically
from mooring.errors import ConfigError
from mooring.export import json_text
from mooring.export.clients import NAME, Address, Client, Target

BACKUP = ".before-mooring"
"""Ending of the file as it was."""
_MASK = "****"


class Change(msgspec.Struct, frozen=True):
    """What would be written. Holds a key when the target has one: it never prints it."""

    client: str
    file: str
    before: str | None
    """None: there is no such file."""
    after: str | None
    """None: the file goes."""
    private: str = ""
    """A key that may not be shown."""
    keep: bool = False
    """Whether ``before`` has to be kept: Mooring was not in it."""

    def __repr__(self) -> str:
        return f"Change({self.client}, {self.file})"

    @property
    def empty(self) -> bool:
        """Whether nothing has to be done."""
        return self.before == self.after

    def diff(self) -> str:
        """The lines that change, without those around them, which may hold other people's secrets."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(), (self.after or "").splitlines(), self.file, self.file, n=0, lineterm=""
        )
        text = "\n".join(lines)
        return text.replace(self.private, _MASK) if self.private else text

    def apply(self) -> None:
        """Write it. Raises OSError, and ConfigError when somebody else has changed it; the file is as it was then."""
        if self.empty:
            return
        if _read(self.file) != self.before:
            raise ConfigError("the file was changed by somebody else just now; try again", file=self.file)
        if self.after is None:
            os.unlink(self.file)
        else:
            mode = mode_of(self.file, 0o600)
            os.makedirs(os.path.dirname(self.file), exist_ok=True)
            if self.before is not None and self.keep:
                write_atomically(self.file + BACKUP, self.before.encode(), mode=mode)
            write_atomically(self.file, self.after.encode(), mode=mode & 0o600 if self.private else mode)


def registered(client: Client, file: str, target: Target) -> Change:
    """Mooring in ``file``, in place of an earlier entry of its own. Raises ConfigError when the file is not what the
    client would read."""
    before = _read(file)
    private = target.key if isinstance(target, Address) else ""
    after = _put(client, file, before or "", client.entry(target))
    keep = before is not None and _entry(client, file, before) is None
    return Change(client.name, file, before, after, private, keep)


def unregistered(client: Client, file: str) -> Change:
    """``file`` without Mooring. Raises ConfigError as ``registered`` does."""
    before = _read(file)
    entry = _entry(client, file, before or "")
    if before is None or entry is None:
        return Change(client.name, file, before, before)
    original = _read(file + BACKUP)
    if _put(client, file, original or "", entry) == before:
        return Change(client.name, file, before, original)
    return Change(client.name, file, before, _drop(client, file, before))


def finish(change: Change) -> None:
    """After a removal: the kept file has done its service."""
    with suppress(FileNotFoundError):
        os.unlink(change.file + BACKUP)


def _read(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8", newline="") as handle:
            return handle.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise ConfigError("not text", file=file) from None


def _put(client: Client, file: str, text: str, entry: dict[str, Any]) -> str:
    if _entry(client, file, text) == entry:
        return text
    if client.format == "json":
        try:
            return json_text.put(text, (*client.path, NAME), entry)
        except ValueError as error:
            raise ConfigError(f"{error}; it was left as it is", file=file) from None
    document = _toml(file, text)
    import tomlkit

    table = document
    for name in client.path:
        if name not in table:
            table.append(name, tomlkit.table(is_super_table=True))
        table = table[name]
    table[NAME] = entry
    return tomlkit.dumps(document)


def _drop(client: Client, file: str, text: str) -> str:
    if client.format == "json":
        return json_text.drop(text, (*client.path, NAME))
    document = _toml(file, text)
    import tomlkit

    table = document
    for name in client.path:
        table = table[name]
    del table[NAME]
    return tomlkit.dumps(document)


def _entry(client: Client, file: str, text: str) -> dict[str, Any] | None:
    """What ``text`` says about Mooring. Raises ConfigError."""
    try:
        document = _toml(file, text).unwrap() if client.format == "toml" else jsonc.loads(text or "{}")
        for name in (*client.path, NAME):
            document = document.get(name, {})
    except ValueError as error:
        raise ConfigError(f"not valid JSON: {error}; it was left as it is", file=file) from None
    except AttributeError:
        raise ConfigError(f"{'.'.join(client.path)} is no table; it was left as it is", file=file) from None
    return document or None


def _toml(file: str, text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text.removeprefix("\ufeff"))  # of an editor on Windows
    except TOMLKitError as error:
        raise ConfigError(f"not valid TOML: {error}; it was left as it is", file=file) from None
