"""``mooring server add | list | show | test | enable | disable | remove``: what can be run.

Works on the configuration files, with or without a daemon; a running daemon takes changes up at once.
"""

from __future__ import annotations

import shlex
import tomllib
from typing import Any

import click

from mooring.cli import configured, masking
from mooring.cli.attached import tell_daemon
from mooring.cli.output import json_option, print_json, print_table, say, warn, workspace_option
from mooring.cli.shapes import OfferedTool, ServerReport, ServerRow, TrialReport
from mooring.config.edit import brought_by
from mooring.config.names import did_you_mean
from mooring.config.references import expand
from mooring.config.resolve import DEFAULT_WORKSPACE
from mooring.config.schema import Config, Loaded
from mooring.config.schema_servers import SERVER_KINDS
from mooring.errors import ConfigError


@click.group()
def server() -> None:
    """Add, look at, try, switch and remove servers."""


@server.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARGS]...]")
@click.option("--url", metavar="URL", help="A remote server.")
@click.option("--image", metavar="IMAGE", help="A container; what follows -- are its arguments.")
@click.option("--env", "variables", multiple=True, metavar="K=V", help="An environment variable that is not secret.")
@click.option(
    "--secret", "secrets", multiple=True, metavar="NAME[=REF]", help="A variable whose value is secret; see above."
)
@click.option("-w", "--workspace", "workspaces", multiple=True, metavar="NAME", help="Give it to this workspace.")
def add(
    name: str,
    command: tuple[str, ...],
    url: str | None,
    image: str | None,
    variables: tuple[str, ...],
    secrets: tuple[str, ...],
    workspaces: tuple[str, ...],
) -> None:
    """Define the server NAME.

    It is a command, or with --url a remote, or with --image a container.

    \b
      mooring server add time -- uvx mcp-server-time --local-timezone UTC
      mooring server add github --secret TOKEN=store:github -- github-mcp-server stdio
      mooring server add linear --url https://mcp.linear.app/mcp

    REF says where a secret is found: env:VARIABLE, file:PATH, keyring:ENTRY, or store:NAME (mooring secret set NAME);
    without it, in the store under the variable's own name.
    """
    from mooring.cli import adding
    from mooring.config.edit import added

    table = adding.definition(command, url, image, variables, secrets)
    written = configured.loaded()
    edit = adding.granted(added(written, {name: table}), name, workspaces)
    files = edit.apply()
    say(f"Added {name} to {', '.join(files)}.")
    for variable in adding.suspicious(variables):
        warn(
            f"{variable} looks like a secret and can be read in the file: mooring secret set {variable}, and add the"
            f" server with --secret {variable}"
        )
    if not _workspaces(configured.loaded().config, name):
        warn(f"no workspace has {name} yet; add it to mcp_servers of one, or add it with -w WORKSPACE")
    tell_daemon()


@server.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Every server that is defined, and who has it."""
    written = configured.loaded()
    rows = [_row(written, name) for name in written.config.mcp_servers]
    if as_json:
        print_json(rows)
        return
    columns = ("NAME", "KIND", "STATE", "RUNS", "WORKSPACES", "DEFINED IN")
    print_table(columns, map(_cells, rows), "No servers are defined. Add one: mooring server add NAME -- COMMAND")


@server.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print NAME's definition, with secrets masked.

    Also what it becomes in the workspaces that have it.
    """
    written = configured.loaded()
    _check_known(written, name)
    row = _row(written, name)
    report = configured.checked(written, configured.planned(written))
    variants = tuple(variant for variant in report.variants if variant.server == name)
    shown = masking.definition(_table(written, row.file, name))
    if as_json:
        print_json(ServerReport(row.name, row.kind, row.enabled, row.file, row.line, shown, variants))
        return
    from mooring.config.edit import written as toml

    click.echo(f"# {row.file}:{row.line}\n{toml({name: shown})}", nl=False)
    cells = (
        (variant.id, shlex.join(variant.command), variant.shared_by, variant.unavailable or "startable")
        for variant in variants
    )
    print_table(("VARIANT", "RUNS", "WORKSPACES", "STATE"), cells, f"No workspace has {name}.", tag="# variant")


@server.command()
@click.argument("name")
@workspace_option
@json_option
def test(name: str, workspace: str | None, as_json: bool) -> None:
    """Start NAME once and list what it offers.

    It runs apart from the daemon, with the kwargs of the workspace, without -w of the first that has it. Exit 1 when
    it does not answer, 4 when its program is not installed.
    """
    from mooring.cli.trial import tried

    written = configured.loaded()
    _check_known(written, name)
    report = tried(written, name, workspace)
    if as_json:
        print_json(report)
        return
    say(f"{name} answered in {report.seconds:.1f} s (protocol {report.version}): {_offer(report)}.")
    print_table(("TOOL", "DESCRIPTION"), map(_tool, report.tools))
    for problem in report.problems:
        warn(problem)


@server.command()
@click.argument("name")
def enable(name: str) -> None:
    """Offer NAME again."""
    _switch(name, True)


@server.command()
@click.argument("name")
def disable(name: str) -> None:
    """Keep NAME in the file, but do not offer it."""
    _switch(name, False)


@server.command()
@click.argument("name")
def remove(name: str) -> None:
    """Take NAME out of the configuration.

    Out of every group and workspace too.
    """
    from mooring.config.edit import removed

    files = removed(configured.loaded(), name).apply()
    say(f"Removed {name} from {', '.join(files)}.")
    tell_daemon()


def _switch(name: str, on: bool) -> None:
    from mooring.config.edit import switched

    files = switched(configured.loaded(), name, on).apply()
    word = "enabled" if on else "disabled"
    say(f"{name} is {word}." if files else f"{name} was {word} already.")
    if files:
        tell_daemon()


def _check_known(written: Loaded, name: str) -> None:
    known = written.config.mcp_servers
    if name not in known:
        raise ConfigError(f'there is no server "{name}"{did_you_mean(name, known)}')


def _row(written: Loaded, name: str) -> ServerRow:
    file, line = written.place(("mcp_servers", name))
    table = _table(written, file, name)
    kind = "plugin" if "plugin" in table else next(kind for kind in SERVER_KINDS if kind in table)
    runs = masking.argv([str(table[kind]), *map(str, table.get("args", ()))])
    enabled = written.config.mcp_servers[name].enabled
    return ServerRow(name, kind, enabled, runs, _workspaces(written.config, name), file, line)


def _table(written: Loaded, file: str, name: str) -> dict[str, Any]:
    """The server's table as it stands in the file; of one that only a plugin brings, what it would be there."""
    tables = tomllib.loads(written.sources.get(file, "")).get("mcp_servers", {})
    return tables.get(name) or {"plugin": brought_by(written, name)}


def _workspaces(config: Config, server: str) -> tuple[str, ...]:
    """Who has it, agents too. Where nobody defines either there is the default one, with every server."""
    given = {name: [workspace.mcp_servers] for name, workspace in config.workspaces.items()}
    if config.agents:
        from mooring.agents.layers import layers, sessions  # most configurations have none

        for name, session in sessions(config, {}).items():
            given[name] = [layer.mcp_servers for _, layer in layers(config, session)]
    if not given:
        return (DEFAULT_WORKSPACE,)
    return tuple(name for name, lists in given.items() if any(server in expand(config, each) for each in lists))


def _cells(row: ServerRow) -> tuple[object, ...]:
    state = "enabled" if row.enabled else "disabled"
    place = row.file if row.line is None else f"{row.file}:{row.line}"
    return row.name, row.kind, state, shlex.join(row.runs), row.workspaces, place


def _offer(report: TrialReport) -> str:
    counts = ((len(report.tools), "tool"), (report.prompts, "prompt"), (report.resources, "resource"))
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)


def _tool(tool: OfferedTool) -> tuple[str, str]:
    return tool.name, tool.description.strip().partition("\n")[0]
