"""``mooring audit``: who did what, and what was refused."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from fnmatch import fnmatchcase

import click
import msgspec

from mooring.cli.output import json_option, print_table, visible
from mooring.config import durations
from mooring.config.home import Home
from mooring.nouns import AuditRow
from mooring.observe import audit_files

_COLUMNS = ("TIME", "WHAT", "WORKSPACE", "KEY", "INSTANCE", "TARGET", "DECISION", "OUTCOME", "SECONDS", "WHY")


@click.command()
@click.option("-w", "--workspace", metavar="NAME", help="Only of this workspace.")
@click.option("--server", metavar="NAME", help="Only of this server.")
@click.option("--tool", metavar="GLOB", help="Only tools whose advertised name matches.")
@click.option("--method", metavar="GLOB", help='Only requests whose method matches, such as "resources/*".')
@click.option("--since", metavar="DURATION", help='Not older than this, such as "2h".')
@click.option("--denied", is_flag=True, help="Only what was refused.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="How many of the last records; 0: all.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new records until interrupted.")
@json_option
def audit(
    workspace: str | None,
    server: str | None,
    tool: str | None,
    method: str | None,
    since: str | None,
    denied: bool,
    lines: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Who did what, what was refused, and who changed the rules.

    Reads the files of this home, without the daemon. --json prints one JSON object a line.
    """
    oldest = time.time() - _duration(since) if since else 0.0

    def wanted(row: AuditRow) -> bool:
        return (
            row.ts >= oldest
            and workspace in (None, row.workspace)
            and server in (None, row.server)
            and (tool is None or fnmatchcase(row.tool, tool))
            and (method is None or fnmatchcase(row.method, method))
            and (not denied or row.refused)
        )

    file = Home.locate().audit_file
    last = deque(filter(wanted, audit_files.rows(file)), lines or None)
    if as_json:
        for row in last:
            click.echo(msgspec.json.encode(row))
    else:
        print_table(_COLUMNS, map(_cells, last), "" if last or follow else _nothing(file))
    if follow:
        with suppress(KeyboardInterrupt):
            for row in filter(wanted, audit_files.following(file)):
                click.echo(msgspec.json.encode(row) if as_json else visible("\t".join(map(str, _cells(row)))))


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None


def _nothing(file: str) -> str:
    some = next(iter(audit_files.rows(file)), None)
    return "Nothing was recorded yet." if some is None else "Nothing of what was recorded matches."


def _cells(row: AuditRow) -> tuple[object, ...]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.ts))
    data = row.data or {}
    why = (
        row.reason
        or row.error
        or " ".join(f"{name}={value}" for name, value in data.items() if name not in ("diff", "key"))
    )
    seconds = f"{row.seconds:.3f}" if row.outcome else ""
    key = row.key or data.get("key", "")
    what, where, target = row.method or row.event, row.instance or row.server, row.tool or row.target
    return at, what, row.workspace, key, where, target, row.decision, row.outcome, seconds, why
