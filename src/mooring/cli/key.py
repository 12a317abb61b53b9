"""``mooring key create | list | rotate | revoke``: who may come in."""

from __future__ import annotations

import time

import click

from mooring.cli.attached import attached, workspace_of
from mooring.cli.output import ago, json_option, no_spawn_option, print_json, print_table, say, until
from mooring.config import durations
from mooring.facade import Mooring
from mooring.nouns import KeyRow, NewKey


@click.group()
def key() -> None:
    """Who may come in: each key opens one workspace."""


@key.command()
@click.argument("workspace", required=False)
@click.option("--name", default="", metavar="TEXT", help="What it is for; unique in the workspace.")
@click.option("--expires", metavar="DURATION", help='After how long it ends, such as "30d".')
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(["call", "list"]), help="What it may do; without it both."
)
@click.option("--variant", metavar="ID", help="Only this variant.")
@click.option("--tools", multiple=True, metavar="GLOB", help="Only tools whose advertised name matches.")
@json_option
@no_spawn_option
def create(
    workspace: str | None,
    name: str,
    expires: str | None,
    scopes: tuple[str, ...],
    variant: str | None,
    tools: tuple[str, ...],
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Make a key for WORKSPACE; its value is shown this once."""
    expires_at = None if expires is None else time.time() + _duration(expires)

    async def ask(mooring: Mooring) -> NewKey:
        return await mooring.key_create(
            await workspace_of(mooring, workspace, "mooring key create WORKSPACE"),
            name=name,
            expires_at=expires_at,
            scopes=scopes or ("call", "list"),
            variant=variant,
            tools=tools,
        )

    _show(attached(ask, spawn=not no_spawn), as_json)


@key.command("list")
@click.argument("workspace", required=False)
@json_option
@no_spawn_option
def list_(workspace: str | None, as_json: bool, no_spawn: bool) -> None:
    """Keys, never their values."""
    rows = attached(lambda mooring: mooring.key_list(workspace), spawn=not no_spawn)
    if as_json:
        print_json(rows)
        return
    columns = ("ID", "WORKSPACE", "NAME", "AGE", "EXPIRES", "SCOPES", "LIMITED TO", "STATE")
    print_table(columns, map(_cells, rows), "No keys. Make one: mooring key create WORKSPACE")


@key.command()
@click.argument("key_id")
@json_option
@no_spawn_option
def rotate(key_id: str, as_json: bool, no_spawn: bool) -> None:
    """Give a key a new value; the old one ends at once."""
    _show(attached(lambda mooring: mooring.key_rotate(key_id), spawn=not no_spawn), as_json)


@key.command()
@click.argument("key_id")
@no_spawn_option
def revoke(key_id: str, no_spawn: bool) -> None:
    """End a key at once, also for open sessions."""
    attached(lambda mooring: mooring.key_revoke(key_id), spawn=not no_spawn)
    say(f"Revoked {key_id}.")


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from None


def _show(made: NewKey, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    click.echo(made.key)
    say(f"Key {made.id} for workspace {made.workspace}; it is not shown again.")


def _cells(row: KeyRow) -> tuple[object, ...]:
    limits = (*((row.variant,) if row.variant else ()), *row.tools)
    state = "revoked" if row.revoked else row.inert or "valid"
    age = ago(time.time() - row.created_at)
    return row.id, row.workspace, row.name, age, until(row.expires_at), row.scopes, limits, state
