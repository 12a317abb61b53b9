"""SQL files: named blocks, statements, numbered migrations."""

from __future__ import annotations

import re
import sqlite3

import pytest

from mooring.store import sql


def test_a_block_runs_from_its_name_to_the_next_name() -> None:
    text = (
        "-- About this file; with a semicolon.\n-- name: one\n-- Why.\nSELECT 1;\n\n-- name: two\nDELETE;\nINSERT\nx;\n"
    )
    assert sql.blocks(text) == {"one": ("-- Why.\nSELECT 1",), "two": ("DELETE", "INSERT\nx")}


def test_text_without_names_has_no_blocks() -> None:
    assert sql.blocks("-- nothing\n") == {}


@pytest.mark.parametrize("text", ["-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n", "-- name: empty\n\n"])
def test_a_name_that_comes_twice_or_holds_nothing_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match="twice or empty"):
        sql.blocks(text)


def test_a_name_in_two_files_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_files", lambda folder: ["a.sql", "b.sql"])
    monkeypatch.setattr(sql, "_text", lambda folder, file: "-- name: same\nSELECT 1;\n")
    with pytest.raises(ValueError, match="'same' is defined twice"):
        sql.load_queries()


def test_migrations_are_numbered_without_gaps() -> None:
    assert list(sql.migrations()) == list(range(1, len(sql.migrations()) + 1))


def test_every_query_fits_the_schema_that_all_migrations_make() -> None:
    connection = sqlite3.connect(":memory:")
    for file in sql.migrations().values():
        for statement in sql.load_migration(file):
            connection.execute(statement)
    for statements in sql.load_queries().values():
        for statement in statements:
            names = set(re.findall(r":(\w+)", re.sub(r"--.*", "", statement)))
            connection.execute(f"EXPLAIN {statement}", dict.fromkeys(names, "[]"))


def test_every_table_has_a_query_that_writes_it_and_one_that_reads_it() -> None:
    connection = sqlite3.connect(":memory:")
    for file in sql.migrations().values():
        for statement in sql.load_migration(file):
            connection.execute(statement)
    kinds = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'")
    tables = {name for name, kind in kinds if kind not in ("shadow", "view")} - {"sqlite_schema"}
    tables -= {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%fts5vocab%'")}
    texts = ["\n".join(statements) for statements in sql.load_queries().values()]
    texts += [text for (text,) in connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")]
    for table in tables:
        assert any(re.search(rf"INSERT (OR \w+ )?INTO {table} ", text) for text in texts), table
        assert any(re.search(rf"(FROM|JOIN) {table}\b", text) and "SELECT" in text for text in texts), table
