"""``mooring approve``: a person decides about what agents want to run."""

from __future__ import annotations

import shlex

import click

from mooring.cli.attached import attached
from mooring.cli.output import agreed, json_option, no_spawn_option, print_json, print_table, visible
from mooring.errors import ConfigError
from mooring.nouns_registry import ApprovalRow


@click.command()
@click.argument("what", metavar="[ID | list | revoke ID]", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask; for those who have read it before.")
@json_option
@no_spawn_option
def approve(what: tuple[str, ...], yes: bool, as_json: bool, no_spawn: bool) -> None:
    """Allow what an agent asks to run, or not.

    With ID it shows the exact command, where it comes from and what it may reach, and asks. What is approved is this
    command in this workspace; with any other argument it is another one. "list" (or nothing) shows what waits and what
    was approved; "revoke ID" takes an approval back, and ends what was added with it.
    """
    match what:
        case () | ("list",):
            rows = attached(lambda mooring: mooring.approvals(), spawn=not no_spawn)
            _list(rows, as_json)
        case ("revoke",):
            raise click.UsageError("say which: approve revoke ID. To see them: approve list")
        case ("revoke", id):
            row = attached(lambda mooring: mooring.approval_revoke(id), spawn=not no_spawn)
            _said(row, "Revoked", as_json)
        case (id,):
            rows = attached(lambda mooring: mooring.approvals(), spawn=not no_spawn)
            row = next((row for row in rows if row.id == id), None)
            if row is None:
                raise ConfigError(f'There is no approval "{id}". See: mooring approve list')
            if as_json and not yes:
                raise click.UsageError("--json asks nothing, so it needs --yes")
            if not as_json:
                _show(row)
            if not (yes or agreed("Approve this?")):
                raise click.Abort
            _said(attached(lambda mooring: mooring.approve(id), spawn=not no_spawn), "Approved", as_json)
        case _:
            raise click.UsageError("say one of: approve, approve ID, approve list, approve revoke ID")


def _show(row: ApprovalRow) -> None:
    click.echo(f"An agent of the workspace {row.workspace} asks to run {visible(row.entry_id)}:")
    click.echo(f"  {visible(shlex.join(row.command))}")
    click.echo(f"It comes from: {visible(row.source) or 'the agent itself; it is in no catalog'}")
    click.echo("It may reach:")
    for line in row.reach:
        click.echo(f"  {visible(line)}")


def _said(row: ApprovalRow, done: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(f"{done}: {visible(row.entry_id)} in {row.workspace}")


def _list(rows: list[ApprovalRow], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    print_table(
        ("ID", "STATE", "WORKSPACE", "ENTRY", "SOURCE", "COMMAND"),
        [
            (
                row.id,
                "waits" if row.approved_at is None else "approved",
                row.workspace,
                row.entry_id,
                row.source or "(agent)",
                shlex.join(row.command),
            )
            for row in rows
        ],
        "Nothing waits for you, and nothing was approved.",
    )
