"""Reads ``mooring.toml``, what it includes, and ``conf.d``; called by boot, reload, ``check`` and the editor.

Everything that can be wrong with the text alone is an error here, with file, line and key path; what the text means
together is ``config.resolve``'s. Reads files only; starts and changes nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from os import PathLike
from pathlib import Path as File
from typing import Any

from mooring.config import decode, references
from mooring.config.files import read_text
from mooring.config.locate import line_of
from mooring.config.schema import Config, Loaded
from mooring.config.schema_base import Path, dotted
from mooring.errors import ConfigError

__all__ = ["Loaded", "load"]


def load(
    file: str | PathLike[str],
    texts: dict[str, str] | None = None,
    extend: Callable[[Config], Config] = lambda written: written,
) -> Loaded:
    """Read the configuration that begins at ``file``. A missing ``file`` is the default configuration.

    ``texts`` (absolute path to text) stands in for files, so that an edit can be tried before it is written.
    ``extend`` adds what is not written, such as servers of plugins. Raises ConfigError.
    """
    reader = _Reader(texts or {}, extend)
    main = File(file).expanduser().absolute()
    if main.is_file() or str(main) in reader.texts:
        reader.read_main(main)
    else:
        reader.files.append(str(main))
    for extra in sorted((main.parent / "conf.d").glob("*.toml")):
        reader.read(extra)
    return reader.loaded()


class _Reader:
    """Collects the tables of all files, and which file each came from."""

    def __init__(self, texts: dict[str, str], extend: Callable[[Config], Config]) -> None:
        self.texts = texts
        self.extend = extend
        self.files: list[str] = []
        self.sources: dict[str, str] = {}
        self.tables: dict[str, Any] = {}
        self.owners: dict[Path, str] = {}

    def read_main(self, main: File) -> None:
        """Read the main file and, right after it, what it includes."""
        tables = self._parse(main)
        include = tables.pop("include", [])
        if not isinstance(include, list):
            raise self._error("include is a list of files", ("include",), str(main))
        self._merge(tables, str(main))
        for position, name in enumerate(include):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] -- TOML
            place: Path = ("include", position)
            if not isinstance(name, str):
                raise self._error("include is a list of files", place, str(main))
            included = main.parent / File(name).expanduser()
            if not included.is_file() and str(included) not in self.texts:
                raise self._error(f"there is no file {included}", place, str(main))
            if str(included) in self.sources:
                raise self._error(f"{included} is included twice", place, str(main))
            self.read(included)

    def read(self, file: File) -> None:
        """Read a file that is not the main one."""
        if str(file) in self.sources:
            return
        tables = self._parse(file)
        if "include" in tables:
            raise self._error("only the main file may include others", ("include",), str(file))
        self._merge(tables, str(file))

    def _parse(self, file: File) -> dict[str, Any]:
        name = str(file)
        self.files.append(name)
        try:
            text = self.texts[name] if name in self.texts else read_text(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=name) from error
        self.sources[name] = text
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message, line = _toml_error(str(error), text)
            raise ConfigError(f"not valid TOML: {message}", file=name, line=line) from None
        except RecursionError:
            raise ConfigError("not valid TOML: nested too deeply", file=name) from None

    def _merge(self, tables: dict[str, Any], file: str) -> None:
        for table, content in tables.items():
            if not isinstance(content, dict):
                self._own((table,), file)
                self.tables[table] = content
                continue
            into = self.tables.setdefault(table, {})
            if not isinstance(into, dict):
                raise self._twice((table,), file)
            self.owners.setdefault((table,), file)
            for name, value in content.items():  # pyright: ignore[reportUnknownVariableType]
                self._own((table, str(name)), file)  # pyright: ignore[reportUnknownArgumentType]
                into[name] = value

    def _own(self, path: Path, file: str) -> None:
        if path in self.owners:
            raise self._twice(path, file)
        self.owners[path] = file

    def _twice(self, path: Path, file: str) -> ConfigError:
        first = self.owners[path]
        place = f"{first}:{line_of(self.sources[first], path) or 1}"
        return self._error(f"already defined in {place}; a name is defined once", path, file)

    def _error(self, message: str, path: Path, file: str) -> ConfigError:
        return ConfigError(message, file=file, line=line_of(self.sources[file], path), path=dotted(path))

    def file_of(self, path: Path) -> str:
        """The file that has ``path``; the main file for what none has."""
        return self.owners.get(path[:2]) or self.owners.get(path[:1]) or self.files[0]

    def place(self, path: Path) -> tuple[str, int | None]:
        """File and line of ``path``."""
        file = self.file_of(path)
        return file, line_of(self.sources.get(file, ""), path)

    def loaded(self) -> Loaded:
        """What was read. Raises ConfigError."""
        try:
            config = self.extend(decode.config(self.tables))
            references.check(config)
        except decode.Fault as fault:
            file, line = self.place(fault.path)
            raise ConfigError(fault.message, file=file, line=line, path=dotted(fault.path)) from None
        return Loaded(config, tuple(self.files), self.sources, self.file_of, self.place, str(File.home()), self.extend)


def _toml_error(message: str, text: str) -> tuple[str, int | None]:
    """tomllib says "... (at line 3, column 5)" or "(at end of document)"."""
    reason, _, where = message.rpartition(" (at ")
    line = where.removeprefix("line ").partition(",")[0]
    return reason or message, int(line) if line.isdigit() else text.count("\n") + 1
