"""Reading the audit back: all its files, oldest first, and what comes while one looks. Used by ``mooring audit``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

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


def following(file: str) -> Iterator[AuditRow]:
    """Every record from now on; never ends by itself."""
    at = os.stat(file).st_size if os.path.exists(file) else 0
    inode, rest = _inode(file), b""
    while True:
        if _inode(file) != inode:  # rotated
            inode, at, rest = _inode(file), 0, b""
        if inode:
            with open(file, "rb") as source:
                source.seek(at)
                data = source.read()
            at += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (row for line in lines if (row := _row(line)))
        time.sleep(PAUSE)


def _inode(file: str) -> int:
    try:
        return os.stat(file).st_ino
    except FileNotFoundError:
        return 0


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
