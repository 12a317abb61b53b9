"""``mooring import``: servers that other programs' configuration files know."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mooring.cli import configured, masking
from mooring.cli.attached import tell_daemon
from mooring.cli.output import json_option, print_json, print_table, say, warn
from mooring.cli.shapes import ImportReport
from mooring.config.edit import written as toml
from mooring.config.home import Home
from mooring.config.importer import Import, plan_import
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--write", is_flag=True, help="Do it: add the servers and store their secrets.")
@json_option
def import_(file: str, write: bool, as_json: bool) -> None:
    """Take over MCP servers from another program's FILE.

    Without --write it only says what would be added. Reads what Claude, Cursor, VS Code and others keep ("mcpServers"
    or "servers" JSON), and mcp_config / smcp_config arrays. Secrets that stand in it are moved to the secret store.
    """
    written = configured.loaded()
    found = plan_import(_text(Path(file)), written, Path(file).name)
    files = found.write(written, Secrets(Home.locate())) if write else ()
    report = _report(found, files, write)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if files:
        tell_daemon()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("not text", file=str(file)) from None


def _report(found: Import, files: tuple[str, ...], written: bool) -> ImportReport:
    return ImportReport(
        written=written,
        servers={name: masking.definition(table) for name, table in found.servers.items()},
        secrets=tuple(found.secrets),
        wanted=found.wanted,
        unchanged=found.unchanged,
        problems=found.problems,
        files=files,
    )


def _print(report: ImportReport) -> None:
    if report.servers and not report.written:
        click.echo(toml(report.servers), nl=False)
        say("")
    word = "added" if report.written else "would be added"
    rows = [*((name, word) for name in report.servers), *((name, "unchanged") for name in report.unchanged)]
    if report.written or sys.stdout.isatty():
        print_table(("SERVER", "WHAT"), rows, "Nothing to add.")
    for name in report.secrets:
        say(f"Secret {name} {'was moved' if report.written else 'would be moved'} to the secret store.")
    for problem in report.problems:
        warn(problem)
    for name in report.wanted:
        warn(f"a secret has to be given: mooring secret set {name}")
    if report.servers and not report.written:
        say("Nothing was changed. To do it, say --write.")
    elif report.files:
        say(f"Written to {', '.join(report.files)}.")
