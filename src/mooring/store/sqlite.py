"""The store on SQLite: a file, or ``:memory:`` for the library face and for tests.

Opened by ``serve.daemon`` and ``serve.library`` as an async context manager. One thread owns the connection and does
all the work, in the order it was asked for; the event loop never touches the disk. Never retries and never repairs: a
damaged file is an error that says what to do, since starting over in silence would throw all keys away.

Ends by finishing what was asked for, then closing the file; after ``CLOSE_LIMIT`` seconds it stops waiting (a hanging
disk must not keep the daemon alive; what was acknowledged is on disk already).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from mooring import __version__
from mooring.errors import StoreError
from mooring.store import sql
from mooring.store.base import Row

MEMORY = ":memory:"
CLOSE_LIMIT = 5.0
"""Seconds that leaving the block waits for what is still queued."""
BUSY_LIMIT = 5.0
"""Seconds to wait for another process that holds the file, such as a CLI verb without the daemon."""
BUSY_PAUSE = 0.01
"""Seconds between two tries to switch a new file to write-ahead logging."""

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

Job = Callable[[sqlite3.Connection], Any]


class SqliteStore:
    """``store.base.Store`` on one SQLite file. Every method raises StoreError once the block is left."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """``path``: the file, made when missing (mode 0600, its folder must exist), or ``:memory:``."""
        self._path = os.fspath(path)
        self._queries = sql.load_queries()
        self._migrations = sql.migrations()
        self._jobs: SimpleQueue[tuple[Job, Future[Any]] | None] = SimpleQueue()
        self._opened: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._closed = True

    async def __aenter__(self) -> Self:
        """Open, create or migrate the file. Raises StoreError when it is damaged, newer than this Mooring, or cannot
        be opened."""
        # A daemon thread: the interpreter would join any other at its end, without a limit.
        threading.Thread(target=self._work, name="mooring-store", daemon=True).start()
        try:
            await asyncio.shield(asyncio.wrap_future(self._opened))
        except BaseException:
            self._jobs.put(None)
            raise
        self._closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._jobs.put(None)
        await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=CLOSE_LIMIT)

    async def run(self, query: str, then: Callable[[], None] | None = None, /, **parameters: Any) -> None:
        """See ``store.base.Store.run``."""
        written = asyncio.wrap_future(self._ask(_write, query, parameters))
        if then:
            # Before the caller's own wake-up is registered, so that memory is right when run returns.
            written.add_done_callback(lambda done: then() if done.exception() is None else None)
        # What was asked for is written even if the caller is cancelled: ``then`` keeps its memory in step.
        await asyncio.shield(written)

    async def read(self, query: str, /, **parameters: Any) -> list[Row]:
        """See ``store.base.Store.read``."""
        return await asyncio.wrap_future(self._ask(_read, query, parameters))

    def rows(self, query: str, /, **parameters: Any) -> list[Row]:
        """See ``store.base.Store.rows``."""
        return self._ask(_read, query, parameters).result()

    def _ask(
        self,
        work: Callable[[sqlite3.Connection, sql.Statements, dict[str, Any]], Any],
        query: str,
        parameters: dict[str, Any],
    ) -> Future[Any]:
        """Queue one query for the thread. An unknown name is a KeyError: a mistake in the code, not in the file."""
        statements = self._queries[query]
        if self._closed:
            raise StoreError(f"The store {self._path} is closed.")
        future: Future[Any] = Future()
        self._jobs.put((lambda connection: work(connection, statements, parameters), future))
        return future

    def _work(self) -> None:
        """The thread: open, do what is asked until told to stop, close."""
        try:
            connection = self._open()
        except Exception as error:
            self._opened.set_exception(self._explain(error))
            return
        self._opened.set_result(None)
        while (asked := self._jobs.get()) is not None:
            job, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job(connection))
            except Exception as error:
                future.set_exception(self._explain(error))
        connection.close()
        self._ended.set_result(None)

    def _open(self) -> sqlite3.Connection:
        if self._path != MEMORY:
            _make_private(self._path)
        connection = sqlite3.connect(self._path, timeout=BUSY_LIMIT, isolation_level=None)
        try:
            # FULL, not NORMAL: with WAL the latter may lose the last commits in a power cut, and a revoked key would
            # open doors again. Writes are rare and off the loop, so one fsync each is affordable.
            connection.execute("PRAGMA synchronous = FULL")
            if self._version(connection) < max(self._migrations):
                _use_wal(connection)
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _version(self, connection: sqlite3.Connection) -> int:
        """The file's schema version; 0 is a new file."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > max(self._migrations):
            writer = _read(connection, self._queries["meta"], {"name": "mooring"})
            raise StoreError(
                f"The store {self._path} was written by a newer Mooring ({writer[0][0] if writer else 'unknown'}; this "
                f"is {__version__}). Install that version again, or move the file away to start without keys.",
                file=self._path,
            )
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the schema up to date, all steps or none; another process may be doing the same."""
        connection.execute("BEGIN IMMEDIATE")
        version = self._version(connection)
        for number, file in self._migrations.items():
            if number > version:
                for statement in sql.load_migration(file):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
        for statement in self._queries["put_meta"]:
            connection.execute(statement, {"name": "mooring", "value": __version__})
        connection.execute("COMMIT")

    def _explain(self, error: Exception) -> StoreError:
        """What went wrong, in words a person can act on."""
        if isinstance(error, StoreError):
            return error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:  # the rest is the extended code
            text = (
                f"The store {self._path} is damaged ({error}). Stop Mooring and put a backup in its place, or move the "
                f"file away (with its -wal and -shm files) to start with an empty store; keys must be made anew then."
            )
        else:
            text = f"The store {self._path} could not be used: {error}"
        explained = StoreError(text, file=self._path)
        explained.__cause__ = error
        return explained


def _write(connection: sqlite3.Connection, statements: sql.Statements, parameters: dict[str, Any]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement, parameters)
        connection.execute("COMMIT")
    except BaseException:
        # A failed COMMIT (disk full) may have ended the transaction by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _read(connection: sqlite3.Connection, statements: sql.Statements, parameters: dict[str, Any]) -> list[Row]:
    (statement,) = statements
    return connection.execute(statement, parameters).fetchall()


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. SQLite does not wait by itself here while another process does the same."""
    deadline = time.monotonic() + BUSY_LIMIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_PAUSE)


def _make_private(path: str) -> None:
    """Nobody but the owner may read the store; SQLite gives its side files the mode of the file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        os.chmod(path, 0o600)
