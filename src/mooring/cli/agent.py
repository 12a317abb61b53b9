"""``mooring agent``: run an agent of the configuration, or explain which tools it has from where."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from mooring.cli import configured
from mooring.cli.output import json_option, print_json, print_table, say, visible
from mooring.config import report
from mooring.config.home import Home
from mooring.errors import DaemonAbsent
from mooring.nouns import AgentServerRow
from mooring.nouns_check import AgentReport

if TYPE_CHECKING:
    from mooring.agents.events import AnyEvent
    from mooring.agents.handler import Approval, Verdict
    from mooring.facade import Mooring


@click.group()
def agent() -> None:
    """Agents, and how they get their tools."""


@agent.command()
@click.argument("name")
@json_option
def explain(name: str, as_json: bool) -> None:
    """Show the servers of agent NAME: from where, which way, why.

    Starts nothing.
    """
    found = report.agent(configured.planned(configured.loaded(None)), name)
    if as_json:
        print_json(found)
    else:
        _print(found)


@agent.command()
@click.argument("name")
@click.argument("prompt")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def run(name: str, prompt: str, as_json: bool) -> None:
    """Run agent NAME with PROMPT and print what happens as it comes.

    NAME may be a team: then each member gets the prompt. "-" reads the prompt from stdin. The agent runs in this
    process and ends with it. It has the servers of the daemon when one is running, else servers of its own. Calls that
    need approval are asked for on a terminal and not made without one. Exit 1 unless every run came to its end.
    """
    given = sys.stdin.read() if prompt == "-" else prompt
    try:
        done = asyncio.run(_run(name, given, as_json))
    except KeyboardInterrupt:
        done = False
    sys.exit(0 if done else 1)


async def _run(name: str, prompt: str, as_json: bool) -> bool:
    """Whether all runs were done."""
    from mooring.agents.events import Finished
    from mooring.agents.handler import Handler

    handler = Handler(approve=_approve if sys.stdin.isatty() else None)
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context((await _mooring(stack)).agents(handler))
        if name in pool.teams and name not in pool.names:
            runs = pool.team(name).stream(prompt)
        else:
            runs = (await stack.enter_async_context(pool.agent(name))).stream(prompt)
        done = True
        async with aclosing(runs) as events:
            async for event in events:
                _show(event, as_json)
                done = done and (not isinstance(event, Finished) or event.stop == "done")
        return done


async def _mooring(stack: AsyncExitStack) -> Mooring:
    """The daemon's servers, or without a daemon those of this process."""
    import mooring

    try:
        return await stack.enter_async_context(mooring.connect())
    except DaemonAbsent:
        return await stack.enter_async_context(mooring.open(Home.locate().config_file))


def _show(event: AnyEvent, as_json: bool) -> None:
    from mooring.agents.events import Finished, Text, ToolCall, ToolResult

    if as_json:
        click.echo(msgspec.json.encode(event))
        return
    match event:
        case Text():
            click.echo(visible(event.text), nl=False)
        case ToolCall():
            said = msgspec.json.encode(event.arguments).decode()
            click.echo(click.style(f"\n[{event.agent}] {visible(event.tool)} {visible(said)}", dim=True), err=True)
        case ToolResult(failed=True):
            click.echo(click.style(f"[{event.agent}] failed: {visible(event.text)}", fg="yellow"), err=True)
        case Finished():
            click.echo("")
            if event.stop != "done":
                click.echo(f"[{event.agent}] {event.stop}{': ' + visible(event.text) if event.text else ''}", err=True)
        case _:
            pass


async def _approve(approval: Approval) -> Verdict:
    """Ask on the terminal; beside it, other agents go on."""
    said = msgspec.json.encode(approval.arguments).decode()
    asked = f"\n{approval.agent} wants to call {visible(approval.tool)} {visible(said)}: {approval.why}.\nAllow it?"
    choices = click.Choice(["yes", "no", "abort"])
    answer = await asyncio.to_thread(click.prompt, asked, default="no", type=choices, err=True)
    return {"yes": "allow", "abort": "abort"}.get(answer, "skip")  # pyright: ignore[reportReturnType]


def _print(found: AgentReport) -> None:
    teams = f", in {', '.join(found.teams)}" if found.teams else ""
    say(f"{found.agent}: {found.type}{teams}; its workspace is {found.workspace}")
    columns = ("SERVER", "FROM", "PREFIX", "WAY", "WHY")
    print_table(columns, map(_row, found.servers), heading="Servers", tag="server")
    if found.functions:
        say(f"Own functions: {', '.join(found.functions)}")


def _row(row: AgentServerRow) -> tuple[object, ...]:
    return row.server, row.layers, row.prefix, row.way, row.why
