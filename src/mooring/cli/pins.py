"""``mooring pins list | diff | approve``: tools whose definition is not the one they were first seen with."""

from __future__ import annotations

import sys
import time

import click

from mooring.cli.attached import attached
from mooring.cli.output import (
    ago,
    agreed,
    fail,
    json_option,
    no_spawn_option,
    print_json,
    print_table,
    say,
    visible,
)
from mooring.errors import ConfigError
from mooring.nouns import PinRow

SHOWN = 12
"""Characters of a fingerprint that people see."""


@click.group()
def pins() -> None:
    """Tool definitions, pinned when a server was first listed."""


@pins.command("list")
@click.argument("server", required=False)
@json_option
@no_spawn_option
def list_(server: str | None, as_json: bool, no_spawn: bool) -> None:
    """All pinned tools, and what became of them."""
    rows = attached(lambda mooring: mooring.pins(server), spawn=not no_spawn)
    if as_json:
        print_json(rows)
        return
    columns = ("SERVER", "VARIANT", "TOOL", "STATE", "DEFINITION", "AGE", "WHY")
    print_table(columns, map(_cells, rows), "Nothing is pinned yet: servers are pinned when they are first listed.")


@pins.command()
@click.argument("server", required=False)
@click.argument("tool", required=False)
@json_option
@no_spawn_option
def diff(server: str | None, tool: str | None, as_json: bool, no_spawn: bool) -> None:
    """What changed in tools that wait for approval."""
    waiting = _waiting(server, tool, no_spawn)
    if as_json:
        print_json(waiting)
        return
    _print(waiting)
    if not waiting:
        say("Nothing waits for approval.")


@pins.command()
@click.argument("server")
@click.argument("tool", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@no_spawn_option
def approve(server: str, tool: str | None, yes: bool, as_json: bool, no_spawn: bool) -> None:
    """Pin what SERVER's tools, or one of them, are now.

    Shows what changed, and asks. What is approved is what was shown: a tool that changes again meanwhile goes on
    waiting, and the exit code is 1.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nothing, so it needs --yes")
    shown = _waiting(server, tool, no_spawn)
    if tool is not None and not shown:
        raise ConfigError(f'No tool "{tool}" of {server} waits for approval; see: mooring pins list')
    if not as_json:
        _print(shown)
    if shown and not (yes or agreed("Approve this?")):
        raise click.Abort
    wanted = [row.fingerprint for row in shown]
    approved = attached(lambda mooring: mooring.pins_approve(server, wanted), spawn=not no_spawn) if shown else []
    if as_json:
        print_json(approved)
    else:
        say(f"Approved: {len(approved)}." if shown else "Nothing waits for approval.")
    if len(approved) < len(shown):
        fail(f"what changed since it was shown was not approved; look again: mooring pins diff {server}")
        sys.exit(1)


def _waiting(server: str | None, tool: str | None, no_spawn: bool) -> list[PinRow]:
    rows = attached(lambda mooring: mooring.pins(server), spawn=not no_spawn)
    return [row for row in rows if row.state != "pinned" and tool in (None, row.tool)]


def _print(rows: list[PinRow]) -> None:
    for row in rows:
        what = f"{row.server} {row.tool}: {row.why} ({row.variant}, now {row.fingerprint[:SHOWN]})"
        click.echo(visible(f"{what}\n{row.diff}\n"))


def _cells(row: PinRow) -> tuple[object, ...]:
    age = ago(time.time() - row.since)
    return row.server, row.variant, row.tool, row.state, row.fingerprint[:SHOWN], age, row.why
