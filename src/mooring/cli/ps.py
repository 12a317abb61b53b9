"""``mooring ps``: what runs, for whom, and why not."""

from __future__ import annotations

import time

import click

from mooring.cli.attached import attached
from mooring.cli.output import ago, json_option, no_spawn_option, print_json, print_table, size, until
from mooring.nouns import InstanceRow

_PROCESS = ("PID", "PROCS", "MEMORY", "UP", "IDLE")
_COLUMNS = ("SERVER", "INSTANCE", "STATE", *_PROCESS, "LEASES", "TOOLS", "WORKSPACES", "REASON")


@click.command()
@json_option
@no_spawn_option
def ps(as_json: bool, no_spawn: bool) -> None:
    """What runs, for whom, and what could run.

    PROCS and MEMORY count a server's processes with all they started; memory that they share counts for each.
    """
    rows = attached(lambda mooring: mooring.ps(), spawn=not no_spawn)
    if as_json:
        print_json(rows)
        return
    print_table(_COLUMNS, map(_cells, rows), "No servers are configured. Add one: mooring server add NAME -- COMMAND")


def _cells(row: InstanceRow) -> tuple[object, ...]:
    reason = row.reason or row.unlisted
    if row.retry_at is not None and row.state == "backoff":
        waits = row.retry_at > time.time()
        reason = f"{reason} (next try {until(row.retry_at)})" if waits else f"{reason} (the next call tries again)"
    if row.denied:
        reason = "; ".join(filter(None, (reason, f"refused to reach {', '.join(row.denied)}")))
    if row.unapproved:
        waiting = f"{row.unapproved} unapproved tools: mooring pins diff {row.server}"
        reason = "; ".join(filter(None, (reason, waiting)))
    where = row.container or row.pid
    return (
        row.server,
        row.instance or f"{row.variant} {row.scope}".rstrip(),
        row.state,
        where,
        row.processes,
        size(row.memory),
        ago(row.uptime),
        ago(row.idle),
        row.leases or "",
        row.tools,
        row.workspaces,
        reason,
    )
