"""``mooring tools``: what a workspace offers."""

from __future__ import annotations

import click

from mooring.cli.attached import attached, workspace_of
from mooring.cli.output import gist, json_option, no_spawn_option, print_json, print_table, warn, workspace_option
from mooring.facade import Mooring
from mooring.nouns import ToolRow


@click.command()
@workspace_option
@json_option
@no_spawn_option
def tools(workspace: str | None, as_json: bool, no_spawn: bool) -> None:
    """What a workspace offers, as its clients see it."""

    async def ask(mooring: Mooring) -> tuple[list[ToolRow], list[str]]:
        name = await workspace_of(mooring, workspace)
        rows = await mooring.tool_rows(name)
        known = [row for row in await mooring.ps() if name in row.workspaces]
        silent = [f"not listed: {row.server}: {row.last_error or row.reason}" for row in known if row.tools is None]
        partial = [f"not complete: {row.server}: {row.unlisted}" for row in known if row.unlisted]
        return rows, [*silent, *dict.fromkeys(partial)]

    rows, silent = attached(ask, spawn=not no_spawn)
    if as_json:
        print_json(rows)
    else:
        cells = ((row.name, row.server, gist(row.description)) for row in rows)
        print_table(
            ("TOOL", "SERVER", "DESCRIPTION"), cells, "No tools. Add a server: mooring server add NAME -- COMMAND"
        )
    for line in silent:
        warn(line)
