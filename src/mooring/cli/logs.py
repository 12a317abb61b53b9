"""``mooring logs``: what a server said on stderr."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
import msgspec

from mooring.cli.attached import attached
from mooring.cli.output import json_option, no_spawn_option, print_json, visible


@click.command()
@click.argument("server")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="How many of the last lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until interrupted.")
@json_option
@no_spawn_option
def logs(server: str, lines: int, follow: bool, as_json: bool, no_spawn: bool) -> None:
    """What SERVER wrote to stderr, over all its instances.

    With --follow, --json prints one JSON string a line.
    """

    def heard(_: str, line: Any) -> None:
        click.echo(msgspec.json.encode(line) if as_json else visible(line))

    with suppress(KeyboardInterrupt):
        last = attached(
            lambda mooring: mooring.logs(server, lines, follow, heard if follow else None),
            spawn=not no_spawn,
            limit=None,
        )
        if as_json:
            print_json(last)
        else:
            for line in last:
                click.echo(visible(line))
