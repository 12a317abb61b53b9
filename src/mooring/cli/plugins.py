"""``mooring plugins``: what is installed, what each plugin brings, and why one is not used; and a new one to start."""

from __future__ import annotations

import sys

import click

from mooring.cli import configured
from mooring.cli.output import json_option, print_json, print_table, say, warn
from mooring.cli.shapes import NewPlugin, PluginRow
from mooring.plugins.found import Found, Installed


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def plugins(context: click.Context, as_json: bool) -> None:
    """Show the installed plugins and what each of them brings.

    Each is imported in a process of its own. Exit 1 when one cannot be used.
    """
    if context.invoked_subcommand is not None:
        return
    rows = [_row(plugin, installed) for installed in (configured.installed(),) for plugin in installed.plugins]
    if as_json:
        print_json(rows)
    else:
        empty = "No plugins are installed. Start one: mooring plugins new NAME"
        print_table(("NAME", "VERSION", "FROM", "SERVERS", "HOOKS", "STATE"), map(_cells, rows), empty)
        for row in rows:
            for problem in row.problems:
                warn(f"{row.name} of {row.distribution}: {problem}")
    sys.exit(any(row.problems or row.state == "skipped" for row in rows))


@plugins.command()
@click.argument("name")
@click.option("--into", metavar="FOLDER", type=click.Path(file_okay=False), help="Where to; default ./mooring-NAME.")
@json_option
def new(name: str, into: str | None, as_json: bool) -> None:
    """Write a project for a plugin with one MCP server.

    It can be installed at once, and passes its own tests.
    """
    from mooring.cli.template import written

    folder, files = written(name, into)
    if as_json:
        print_json(NewPlugin(name, folder, files))
        return
    for file in files:
        say(file)
    say(f"Install it beside Mooring: {sys.executable} -m pip install -e {folder}\nThen: mooring reload")


def _row(plugin: Found, installed: Installed) -> PluginRow:
    off = plugin.name in installed.disabled or plugin.distribution in installed.disabled
    return PluginRow(
        name=plugin.name,
        version=plugin.version,
        description=plugin.description,
        categories=plugin.categories,
        distribution=plugin.distribution,
        distribution_version=plugin.distribution_version,
        servers=tuple(server.name for server in plugin.servers),
        hooks=plugin.hooks,
        state="disabled" if off else "skipped" if plugin.skipped else "ok",
        reason=plugin.skipped,
        problems=plugin.problems,
    )


def _cells(row: PluginRow) -> tuple[object, ...]:
    origin = f"{row.distribution} {row.distribution_version}".strip()
    state = row.state if row.state == "ok" else f"{row.state}: {row.reason}"
    return row.name, row.version, origin, row.servers, row.hooks, state
