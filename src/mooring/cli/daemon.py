"""``mooring up | stop | reload | restart``: the daemon's life."""

from __future__ import annotations

import os
import sys
import time

import click

from mooring.cli.attached import attached
from mooring.cli.output import json_option, no_spawn_option, print_json, print_table, say
from mooring.config.home import Home
from mooring.errors import ConfigError, MooringError
from mooring.facade import Mooring

STOP_LIMIT = 30.0
"""Seconds to wait for a daemon that was told to stop."""


@click.command()
@click.option("--config", metavar="FILE", help="A TOML file other than the home's mooring.toml.")
def up(config: str | None) -> None:
    """Run the daemon in the foreground, until it is stopped."""
    from mooring.cli.up import up as run

    sys.exit(run(config))


@click.command()
def stop() -> None:
    """End the daemon, and every server with it."""
    pid = attached(_stop, spawn=False)
    deadline = time.monotonic() + STOP_LIMIT
    file = Home.locate().pid_file
    while _holds(file, pid):
        if time.monotonic() > deadline:
            raise MooringError(f"The daemon (pid {pid}) is still running after {STOP_LIMIT:g} s.")
        time.sleep(0.02)
    say(f"The daemon (pid {pid}) has ended.")


def _holds(file: str, pid: int) -> bool:
    """Whether the home still belongs to process ``pid``, which gives it back when all its servers have ended. Whether
    somebody has reaped it by then says nothing."""
    try:
        os.kill(pid, 0)
        with open(file, encoding="ascii") as handle:
            return handle.read().strip() == str(pid)
    except (ProcessLookupError, FileNotFoundError):
        return False


async def _stop(mooring: Mooring) -> int:
    pid = (await mooring.status()).pid
    await mooring.stop()
    return pid


@click.command()
@json_option
def reload(as_json: bool) -> None:
    """Read the configuration again and apply what changed.

    Exit 2 when it is not valid; nothing is changed then.
    """
    report = attached(lambda mooring: mooring.reload(), spawn=False)
    if as_json:
        print_json(report)
    if not report.applied:
        raise ConfigError(f"Nothing was changed. {report.error}")
    if as_json:
        return
    rows = [
        *(("added", name) for name in report.added),
        *(("removed", name) for name in report.removed),
        *(("changed", name) for name in report.changed),
        *(("needs a restart of the daemon", name) for name in report.needs_restart),
    ]
    print_table(("WHAT", "NAME"), rows, "Nothing changed.")


@click.command()
@click.argument("server")
@no_spawn_option
def restart(server: str, no_spawn: bool) -> None:
    """Start SERVER's running instances anew.

    Failed ones are started without waiting for their next try.
    """
    count = attached(lambda mooring: mooring.restart(server), spawn=not no_spawn)
    say(
        f"Restarted {count} instance{'' if count == 1 else 's'} of {server}."
        if count
        else f"{server} is not running; the next call starts it."
    )
