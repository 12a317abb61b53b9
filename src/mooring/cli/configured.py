"""The configuration of this home, read and resolved without a daemon; for verbs that explain or edit it.

Reads files and secrets; starts nothing and writes nothing (but for the installation key, once, where there is a secret
to fingerprint).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from mooring.access.pins import Pins
from mooring.cli import masking
from mooring.config import report
from mooring.config.home import Home
from mooring.config.load import Loaded, load
from mooring.config.plan import Plan
from mooring.config.plan_servers import references
from mooring.config.resolve import resolve
from mooring.config.secrets import Secrets
from mooring.nouns import Problem
from mooring.nouns_check import CheckReport, VariantRow
from mooring.observe.events import Events
from mooring.plugins.found import Installed
from mooring.relay import client_names
from mooring.relay.listings import Listings
from mooring.relay.table import build
from mooring.serve.kinds import unsupported
from mooring.serve.plugins import Plugins
from mooring.store.sqlite import SqliteStore


def loaded(file: str | os.PathLike[str] | None = None) -> Loaded:
    """What is written, in ``file`` or in this home, and what plugins add to it. Raises ConfigError."""
    return load(file or Home.locate().config_file, extend=_plugins(Home.locate().state).plugged)


def planned(written: Loaded) -> Plan:
    """What ``written`` means here, with this home's secrets. Raises ConfigError."""
    home = Home.locate()
    plugins, secrets = _plugins(home.state), Secrets(home)
    secrets.resolvers = plugins.collected.resolvers
    plan = resolve(written, fingerprint=secrets.fingerprint, unsupported=unsupported)
    return msgspec.structs.replace(plan, problems=(*plan.problems, *plugins.problems))


def installed() -> Installed:
    """The installed plugins, as this home's settings have them. Raises ConfigError."""
    plugins = Plugins(Home.locate().state, keep=False)
    plugins.forget()
    load(Home.locate().config_file, extend=plugins.plugged)
    return plugins.installed


@cache
def _plugins(state: str) -> Plugins:
    """The plugins as ``loaded`` found them: looking at them takes a process each."""
    return Plugins(state, keep=False)


def checked(written: Loaded, plan: Plan) -> CheckReport:
    """The plan for people, masked."""
    made = report.check(plan, written)
    clashing = clashes(plan)
    return msgspec.structs.replace(
        made,
        ok=made.ok and not any(problem.level == "error" for problem in clashing),
        variants=tuple(_masked(row, plan) for row in made.variants),
        problems=(*made.problems, *clashing),
    )


def clashes(plan: Plan) -> tuple[Problem, ...]:
    """Tools, prompts and resources that get in each other's way, tools whose names some client changes, and tools that
    are not as they were pinned, by what the servers offered when they were last listed; servers that nobody has listed
    yet say nothing. Raises StoreError."""
    file = Home.locate().store_file
    return asyncio.run(_clashes(plan, file)) if os.path.exists(file) else ()


async def _clashes(plan: Plan, file: str) -> tuple[Problem, ...]:
    async with SqliteStore(file) as store:
        listings = Listings(store)
        listings.load(plan.variants.values())
        known = listings.of(plan.variants)
        pins = Pins(store, Events())
        pins.load()
    tables = {name: build(workspace.mounts, plan.variants, known) for name, workspace in plan.workspaces.items()}
    clashing = (
        msgspec.structs.replace(problem, path=f"workspaces.{name}")
        for name, table in tables.items()
        for problem in (*table.problems, *client_names.problems(table.tools.values()))
    )
    return (*clashing, *_unapproved(plan, pins.waiting()))


def _unapproved(plan: Plan, waiting: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    blocked = " and are blocked" if plan.gateway.pins == "strict" else ""
    for id, tools in waiting.items():
        if id in plan.variants:
            server = plan.variants[id].server
            named = ", ".join(f"{tool} ({why})" for tool, why in tools.items())
            message = f"tools of {id} are not as they were pinned{blocked}: {named}; see: mooring pins diff {server}"
            yield Problem("warning", message, f"mcp_servers.{server}")


def _masked(row: VariantRow, plan: Plan) -> VariantRow:
    shown = {str(ref) for ref in references(plan.variants[row.id].launch).values()}
    env = {name: value if value in shown else masking.text(value, name) for name, value in row.env.items()}
    return msgspec.structs.replace(row, command=masking.argv(row.command), env=env)
