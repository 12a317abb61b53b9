"""Reading the audit back: all its files, oldest first, and what comes while one looks. Used by ``mooring audit``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from typing import BinaryIO

import msgspec

from mooring.nouns import AuditRow
from mooring.wire import jsonrpc

PAUSE = 0.2
"""Seconds between two looks for new lines."""
MAX_FILES = 1000


def rows(file: str) -> Iterator[AuditRow]:
    """Every record there is; lines that cannot be read are left out."""
    numbered = [f"{file}.{number}" for number in range(1, MAX_FILES) if os.path.exists(f"{file}.{number}")]
    for path in (*reversed(numbered), file):
        try:
            with open(path, "rb") as source:
                yield from (row for line in source if (row := _row(line)))
        except FileNotFoundError:
            continue


def following(file: str) -> Generator[AuditRow]:
    """Every record from now on; never ends by itself."""
    source, rest = _opened(file), b""
    if source is not None:
        source.seek(0, os.SEEK_END)
    try:
        while True:
            replaced = source is None or not _same(file, source)  # asked first: what it got before that is read below
            if source is not None:
                *lines, rest = (rest + source.read()).split(b"\n")
                yield from (row for line in lines if (row := _row(line)))
            if replaced and (newer := _opened(file)) is not None:
                if source is not None:
                    source.close()
                source, rest = newer, b""
                continue
            time.sleep(PAUSE)
    finally:
        if source is not None:
            source.close()


def _opened(file: str) -> BinaryIO | None:
    try:
        return open(file, "rb")
    except FileNotFoundError:
        return None


def _same(file: str, source: BinaryIO) -> bool:
    """Whether ``source`` is what has that name now."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(source.fileno()))
    except FileNotFoundError:
        return False


def _row(line: bytes) -> AuditRow | None:
    try:
        return msgspec.json.decode(line, type=AuditRow)
    except msgspec.DecodeError:
        pass
    try:  # arguments may hold half a character; nobody hides a call by that
        whole = json.dumps(jsonrpc.value(line), ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(whole, type=AuditRow)
    except (ValueError, RecursionError):
        return None
