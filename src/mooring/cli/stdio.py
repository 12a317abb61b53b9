"""``mooring stdio`` for the help texts: the verb itself is dispatched before click is imported (``cli.shim``)."""

from __future__ import annotations

import sys

import click

from mooring.cli.output import no_spawn_option, workspace_option


@click.command()
@workspace_option
@no_spawn_option
def stdio(workspace: str | None, no_spawn: bool) -> None:
    """Speak MCP on stdin and stdout, for clients that start commands."""
    from mooring.cli.shim import main

    sys.exit(main([*(("-w", workspace) if workspace else ()), *(("--no-spawn",) if no_spawn else ())]))
