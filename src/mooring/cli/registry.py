"""``mooring registry`` for the help texts: the verb itself is dispatched before click is imported (``cli.shim``)."""

from __future__ import annotations

import sys

import click

from mooring.cli.output import no_spawn_option, workspace_option


@click.command()
@workspace_option
@no_spawn_option
def registry(workspace: str | None, no_spawn: bool) -> None:
    """Speak MCP on stdin and stdout, with the registry.

    Agents may look for servers and add them. Like mooring stdio, but refuses where the workspace does not offer the
    registry (registry = true).
    """
    from mooring.cli.shim import main

    sys.exit(main([*(("-w", workspace) if workspace else ()), *(("--no-spawn",) if no_spawn else ())], "registry"))
