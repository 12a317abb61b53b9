"""Packages are got once, by whatever program runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mooring.errors import LaunchMissing, PullFailed
from mooring.launch.kept import Keeper
from mooring.launch.packages import Packages


@pytest.fixture
async def packages() -> AsyncIterator[Packages]:
    async with Keeper() as keeper:
        yield Packages(keeper)


def script(file: Path, text: str) -> str:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


async def test_many_who_want_one_package_get_it_once(tmp_path: Path, packages: Packages) -> None:
    """R11 R33: later starts do not ask again."""
    count = tmp_path / "count"
    fetch = (script(tmp_path / "get", f'echo getting "$1" >&2; echo x >> {count}'), "acme")
    phases: list[str] = []
    said: list[str] = []
    await asyncio.gather(*(packages.get(fetch, "acme", phases.append, said.append) for _ in range(3)))
    await packages.get(fetch, "acme", phases.append, said.append)
    assert count.read_text() == "x\n"
    assert phases == ["resolve"] * 3
    assert said == ["getting acme"]


async def test_what_failed_is_tried_again(tmp_path: Path, packages: Packages) -> None:
    """R36: with what the installer said."""
    flag = tmp_path / "flag"
    fetch = (script(tmp_path / "get", f"test -e {flag} || {{ echo not found >&2; exit 3; }}"),)
    with pytest.raises(PullFailed, match="ended with code 3 and said:\nnot found") as failed:
        await packages.get(fetch, "acme", lambda _: None, lambda _: None)
    assert failed.value.facts() == {"kind": "pull_failed", "server": "acme", "phase": "resolve"}
    flag.touch()
    await packages.get(fetch, "acme", lambda _: None, lambda _: None)


async def test_a_missing_program_is_named(tmp_path: Path, packages: Packages) -> None:
    with pytest.raises(LaunchMissing, match="npy-x"):
        await packages.get(("npy-x", "acme"), "acme", lambda _: None, lambda _: None)
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(PullFailed, match="could not be run"):
        await packages.get((str(broken),), "acme", lambda _: None, lambda _: None)
