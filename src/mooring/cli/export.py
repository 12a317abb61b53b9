"""``mooring export``: write Mooring into the configuration file of a client, or take it out again."""

from __future__ import annotations

import os

import click

from mooring.cli.attached import attached, workspace_of
from mooring.cli.output import json_option, no_spawn_option, print_json, say, workspace_option
from mooring.cli.shapes import ExportReport
from mooring.errors import DaemonAbsent
from mooring.export import documents
from mooring.export.clients import CLIENTS, Address, Client, Target, find
from mooring.export.ourselves import stdio_command
from mooring.facade import Mooring


@click.command()
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@workspace_option
@click.option("--http", is_flag=True, help="Write the URL and a key of its own, instead of a command without a key.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Another file of that client, such as one in a project.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing and make no key.")
@click.option("--remove", is_flag=True, help="Take Mooring out again, and end the key made for --http.")
@json_option
@no_spawn_option
def export(
    client: str,
    workspace: str | None,
    http: bool,
    file: str | None,
    dry_run: bool,
    remove: bool,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Write Mooring into the configuration file of a CLIENT.

    Clients: claude-code, claude-desktop, codex, cursor, gemini, opencode, vscode, windsurf, zed. What else is in the
    file stays as it is; a copy of it from before is kept beside it.
    """
    known = find(client)
    place = os.path.abspath(file) if file else known.file(os.environ)
    if remove:
        change = documents.unregistered(known, place)
    else:
        change = documents.registered(known, place, _target(known, workspace, http, dry_run, not no_spawn))
    if not dry_run:
        change.apply()
        if remove:
            documents.finish(change)
            _end_key(known)
    _report(change, known, "" if dry_run else "Took Mooring out of" if remove else "Wrote Mooring to", as_json)


def _target(client: Client, workspace: str | None, http: bool, dry_run: bool, spawn: bool) -> Target:
    async def ask(mooring: Mooring) -> Target:
        chosen = await workspace_of(mooring, workspace)
        if not http:
            return stdio_command(chosen, os.environ)
        client.entry(Address("", ""))  # before a key is made: some clients take no URL
        url = (await mooring.status()).public_url
        key = "mrg_" if dry_run else (await mooring.key_create(chosen, name=_key_name(client), replace=True)).key
        return Address(url, key)

    return attached(ask, spawn=spawn)


def _key_name(client: Client) -> str:
    return f"export-{client.name}"


def _end_key(client: Client) -> None:
    """The key that ``--http`` made, in whichever workspace."""

    async def end(mooring: Mooring) -> None:
        for row in await mooring.key_list():
            if row.name == _key_name(client) and not row.revoked:
                await mooring.key_revoke(row.id)

    try:
        attached(end, spawn=False)
    except DaemonAbsent:
        say("The daemon does not run; a key made by --http stays valid until: mooring key revoke")


def _report(change: documents.Change, client: Client, done: str, as_json: bool) -> None:
    if as_json:
        print_json(ExportReport(change.client, change.file, not change.empty, bool(done), change.diff()))
    elif change.empty:
        say(f"{change.file} is as it should be; nothing to do.")
    elif not done:
        click.echo(change.diff())
    else:
        say(f"{done} {change.file}. {client.advice}".rstrip())
