"""``mooring find`` and ``mooring catalog`` in front of a real daemon."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from mooring.testing.daemon import Daemon, daemon

OWN = """
[ours]
name = "Our Thing"
description = "Counts the teapots of the office."
categories = ["office"]
tags = ["teapots"]
packages = [{ registryType = "pypi", identifier = "ours", environmentVariables = { OUR_KEY = { isSecret = true, isRequired = true } } }]
tools = { count_teapots = "How many there are" }
"""  # noqa: E501
CONFIG = """
[gateway]
listen = ["127.0.0.1:0"]
[catalog.sources.own]
kind = "files"
path = "../entries"
trusted = true
[catalog.sources.official]
kind = "registry"
url = "http://127.0.0.1:1"
interval = "1h"
"""


@pytest.fixture
async def running(place: Path) -> AsyncGenerator[Daemon]:
    (place / "entries").mkdir()
    (place / "entries" / "ours.toml").write_text(OWN)
    (place / "conf.d").mkdir()
    (place / "conf.d" / "catalog.toml").write_text(CONFIG.partition("[catalog")[1] + CONFIG.partition("[catalog")[2])
    async with daemon(place, {}) as started:
        yield started


async def said(running: Daemon, *words: str, code: int = 0) -> Any:
    """Run a verb with ``--json``; its data."""
    exit_code, out, err = await running.command(*words, "--json")
    assert exit_code == code, err
    return json.loads(out)


async def test_find_works_offline_from_the_first_moment(running: Daemon) -> None:
    """R31 R32 R39: nothing was configured or fetched, and no container engine is asked for."""
    (row,) = await said(running, "find", "sqllite")
    assert row == {
        "id": "docker/sqlite",
        "name": "SQLite",
        "description": ANY,
        "source": "starter",
        "launch": ["container"],
        "needs": [],
        "categories": ["database"],
        "tags": ["sqlite", "sql", "file"],
        "official": True,
        "featured": True,
        "trusted": True,
        "deprecated": False,
        "tools": ANY,
    }
    code, out, _ = await running.command("find", "post a message to the team chat", "--category", "communication")
    assert code == 0
    assert out.startswith("docker/slack\tSlack\tcontainer, npm\tSLACK_BOT_TOKEN, team_id\t(deprecated) ")
    assert len(await said(running, "find", "--featured", "--official", "--limit", "3")) == 3


async def test_filters_that_nothing_can_pass_name_the_valid_ones(running: Daemon) -> None:
    """R31"""
    code, _, err = await running.command("find", "x", "--source", "nope")
    assert (code, "There are: docker, official, own, starter" in err) == (2, True)
    code, _, err = await running.command("find", "x", "--category", "databse")
    assert (code, "Did you mean database" in err) == (2, True)


async def test_sources_are_read_and_shown_one_by_one(running: Daemon) -> None:
    """R31 R32: list and status agree; success and failure per source; exit 1 when one failed."""
    reports = {
        report["name"]: report for report in await said(running, "catalog", "refresh", "own", "official", code=1)
    }
    assert reports["own"]["outcome"] in ("refreshed", "unchanged")  # a search may have been faster
    assert reports["official"]["outcome"] == "failed"
    assert "cannot be reached" in reports["official"]["error"]
    rows = {row["name"]: row for row in await said(running, "catalog", "status")}
    assert {name: (row["state"], row["trusted"]) for name, row in rows.items()} == {
        "starter": ("ok", True),
        "own": ("ok", True),
        "official": ("failed", False),
        "docker": ("never", False),
    }
    assert rows["own"]["entries"] == 1 == len(await said(running, "find", "--source", "own"))
    assert rows["starter"]["entries"] == len(await said(running, "find", "--source", "starter", "--limit", "100"))
    (found,) = await said(running, "find", "teapots")
    assert (found["id"], found["needs"]) == ("own/ours", ["OUR_KEY"])
    code, _, err = await running.command("catalog", "refresh", "nope")
    assert (code, 'no catalog source "nope"' in err) == (2, True)


async def test_show_says_all_about_an_entry(running: Daemon) -> None:
    await said(running, "catalog", "refresh", "own")
    report = await said(running, "catalog", "show", "own/ours")
    assert (report["row"]["id"], report["gone"], report["also_in"]) == ("own/ours", False, [])
    assert report["document"]["tools"] == [{"name": "count_teapots", "description": "How many there are"}]
    code, out, _ = await running.command("catalog", "show", "docker/sqlite")
    assert code == 0
    assert "package      oci docker.io/mcp/sqlite" in out
    assert "  list_tables  Names of all tables" in out
    code, out, _ = await running.command("catalog", "show", "docker/resend")
    assert "needs        RESEND_API_KEY (a secret)\nneeds        sender: Address that mail comes from\n" in out
    assert "add it       mooring add docker/resend --set sender=... --set reply_to=...\n" in out
    code, _, err = await running.command("catalog", "show", "docker/sqlit")
    assert code == 2
    assert "Did you mean docker/sqlite?" in err


async def test_a_source_that_is_switched_off_is_found_no_more(running: Daemon, place: Path) -> None:
    await said(running, "catalog", "refresh", "own")
    assert await said(running, "find", "teapots")
    file = place / "conf.d" / "catalog.toml"
    file.write_text(file.read_text().replace("trusted = true", "enabled = false"))
    assert (await said(running, "reload"))["applied"]
    assert await said(running, "find", "teapots") == []
    assert "own" not in {row["name"] for row in await said(running, "catalog", "status")}


async def test_a_damaged_entry_in_the_store_hides_no_other(running: Daemon, place: Path) -> None:
    """R32: a damaged cache recovers with the next refresh."""
    assert await said(running, "find", "sqlite")
    with sqlite3.connect(place / "state" / "mooring.db", timeout=10) as store:
        store.execute("UPDATE catalog SET entry = '{broken' WHERE id = 'docker/sqlite'")
    store.close()
    assert await said(running, "find", "database")
    await said(running, "catalog", "refresh", "starter")  # or what the search began by itself was faster
    assert (await said(running, "find", "docker/sqlite"))[0]["id"] == "docker/sqlite"


def test_the_catalog_costs_nothing_at_boot() -> None:
    """What the daemon imports to get ready has no part of the catalog in it."""
    import subprocess

    code = "import sys, mooring.serve.daemon; print([m for m in sys.modules if m.startswith(('mooring.catalog', 'rapidfuzz', 'yaml'))])"  # noqa: E501
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
