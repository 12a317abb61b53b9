"""``mooring agent``: run an agent of the configuration, or explain which tools it has from where."""

from __future__ import annotations

import click

from mooring.cli import configured
from mooring.cli.output import json_option, print_json, print_table, say
from mooring.config import report
from mooring.nouns import AgentReport, AgentServerRow


@click.group()
def agent() -> None:
    """Agents, and how they get their tools."""


@agent.command()
@click.argument("name")
@json_option
def explain(name: str, as_json: bool) -> None:
    """Show where each server of agent NAME comes from, which way it goes, and why. Starts nothing."""
    found = report.agent(configured.planned(configured.loaded(None)), name)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: AgentReport) -> None:
    teams = f", in {', '.join(found.teams)}" if found.teams else ""
    say(f"{found.agent}: {found.type}{teams}; its workspace is {found.workspace}")
    columns = ("SERVER", "FROM", "PREFIX", "WAY", "WHY")
    print_table(columns, map(_row, found.servers), heading="Servers", tag="server")
    if found.functions:
        say(f"Own functions: {', '.join(found.functions)}")


def _row(row: AgentServerRow) -> tuple[object, ...]:
    return row.server, row.layers, row.prefix, row.way, row.why
