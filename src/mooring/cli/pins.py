"""``mooring pins list | diff | approve``: tools whose definition is not the one they were first seen with."""

from __future__ import annotations

import time

import click

from mooring.cli.attached import attached
from mooring.cli.output import ago, json_option, no_spawn_option, print_json, print_table, say
from mooring.nouns import PinRow


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
    rows = attached(lambda mooring: mooring.pins(server), spawn=not no_spawn)
    waiting = [row for row in rows if row.state != "pinned" and tool in (None, row.tool)]
    if as_json:
        print_json(waiting)
        return
    _print(waiting)
    if not waiting:
        say("Nothing waits for approval.")


@pins.command()
@click.argument("server")
@click.argument("tool", required=False)
@json_option
@no_spawn_option
def approve(server: str, tool: str | None, as_json: bool, no_spawn: bool) -> None:
    """Pin what SERVER's tools, or one of them, are now.

    Prints what was approved, as it was at that moment.
    """
    rows = attached(lambda mooring: mooring.pins_approve(server, tool), spawn=not no_spawn)
    if as_json:
        print_json(rows)
        return
    _print(rows)
    say(f"Approved: {len(rows)}.")


def _print(rows: list[PinRow]) -> None:
    for row in rows:
        click.echo(f"{row.server} {row.tool}: {row.why} ({row.variant}, now {row.fingerprint})")
        click.echo(f"{row.diff}\n")


def _cells(row: PinRow) -> tuple[object, ...]:
    return row.server, row.variant, row.tool, row.state, row.fingerprint, ago(time.time() - row.since), row.why
