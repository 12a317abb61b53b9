"""``mooring add``, ``exec`` and ``remove``: servers of the catalog in a workspace, while the daemon runs."""

from __future__ import annotations

import os
from typing import Any

import click

from mooring.cli.attached import attached, workspace_of
from mooring.cli.call import heard, run
from mooring.cli.output import (
    json_option,
    no_spawn_option,
    print_json,
    print_table,
    say,
    visible,
    workspace_option,
)
from mooring.facade import Mooring
from mooring.nouns_registry import ActiveMount


@click.command()
@click.argument("entry_id", metavar="[ID]", required=False)
@click.option("--prefix", metavar="PREFIX", help="First part of its tools' names; default the last part of ID.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the entry; may be repeated.")
@click.option("--editor", metavar="CLIENT", help="Also write Mooring into the settings of this client.")
@workspace_option
@json_option
@no_spawn_option
def add(
    entry_id: str | None,
    prefix: str | None,
    settings: tuple[str, ...],
    editor: str | None,
    workspace: str | None,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Start a server of the catalog in a workspace.

    Its tools are offered there, also when the daemon is started anew, until mooring remove. Without ID what was added
    is listed. Secrets are set beforehand, with mooring secret set.
    """
    if entry_id is None:
        _list(workspace, as_json, not no_spawn)
        return
    given = _settings(settings)
    if editor is not None:
        from mooring.export.clients import find

        find(editor)

    async def ask(mooring: Mooring) -> ActiveMount:
        room = await workspace_of(mooring, workspace)
        return await mooring.add(room, entry_id, prefix=prefix, settings=given, heard=heard)

    mount = attached(ask, spawn=not no_spawn, limit=None)
    if as_json:
        print_json(mount)
    else:
        click.echo(f"Successfully activated: {visible(mount.name)}")
        print_table(("TOOL",), [(name,) for name in tool_names(mount)], "It has no tools.")
    if editor is not None:
        from mooring.export.ourselves import write

        say(write(editor, mount.workspace, os.environ))


@click.command("exec")
@click.argument("tool")
@click.argument("arguments", default="{}")
@workspace_option
@json_option
@no_spawn_option
def exec_(tool: str, arguments: str, workspace: str | None, as_json: bool, no_spawn: bool) -> None:
    """Call TOOL by any of its names, as registry_exec does.

    ARGUMENTS is a JSON object; "-" reads it from stdin. TOOL may have the form mcp_PREFIX_TOOL. Exit 1 when the tool
    failed, 4 when a program that its server needs is not installed.
    """
    run(Mooring.exec, tool, arguments, workspace, as_json, no_spawn)


@click.command()
@click.argument("what", metavar="ID-OR-PREFIX")
@workspace_option
@json_option
@no_spawn_option
def remove(what: str, workspace: str | None, as_json: bool, no_spawn: bool) -> None:
    """End a server that was added, and take its tools away."""

    async def ask(mooring: Mooring) -> ActiveMount:
        return await mooring.remove(await workspace_of(mooring, workspace), what)

    mount = attached(ask, spawn=not no_spawn)
    if as_json:
        print_json(mount)
    else:
        click.echo(f"Successfully deactivated: {visible(mount.name)}")


def tool_names(mount: ActiveMount) -> list[str]:
    """The tools of a mount as they are called."""
    from mooring.relay.table import advertised

    return [advertised(mount.prefix, tool) for tool in mount.tools]


def _list(workspace: str | None, as_json: bool, spawn: bool) -> None:
    rows = attached(lambda mooring: mooring.active(workspace), spawn=spawn)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("ID", "NAME", "WORKSPACE", "PREFIX", "STATE", "TOOLS", "CONTAINER", "ABOUT"),
        [
            (row.entry_id, row.name, row.workspace, row.prefix, row.state, len(row.tools), row.container_id, row.reason)
            for row in rows
        ],
        "Nothing was added. Look for servers with: mooring find WORDS",
    )


def _settings(written: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` each; a name that comes more than once has a list."""
    found: dict[str, Any] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
        if name in found:
            before = found[name]
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            found[name] = value
    return found
