"""``mooring litellm sync | status | remove``: what LiteLLM is told about servers and workspaces."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click

from mooring.cli.attached import attached
from mooring.cli.output import ago, fail, json_option, no_spawn_option, print_json, print_table, say
from mooring.nouns_litellm import LiteLLMReport, LiteLLMSkipped

LIMIT = 300.0
"""Seconds for a sync, which waits for LiteLLM when that is slow or restarts."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would change; change nothing.")


@click.group()
def litellm() -> None:
    """Keep a LiteLLM proxy in step with the workspaces.

    The daemon does so by itself when [litellm] is in the configuration: when it starts, when the configuration changes,
    and every litellm.interval.
    """


@litellm.command()
@dry_run_option
@json_option
@no_spawn_option
def sync(dry_run: bool, as_json: bool, no_spawn: bool) -> None:
    """Look at what LiteLLM has, and change what differs."""
    _show(attached(lambda mooring: mooring.litellm_sync(dry_run=dry_run), spawn=not no_spawn, limit=LIMIT), as_json)


@litellm.command()
@dry_run_option
@json_option
@no_spawn_option
def remove(dry_run: bool, as_json: bool, no_spawn: bool) -> None:
    """Take out of LiteLLM what Mooring put there.

    It stays out until the next sync by hand or start of the daemon; take [litellm] out of the configuration as well.
    """
    _show(attached(lambda mooring: mooring.litellm_remove(dry_run=dry_run), spawn=not no_spawn, limit=LIMIT), as_json)


@litellm.command()
@json_option
@no_spawn_option
def status(as_json: bool, no_spawn: bool) -> None:
    """How the last sync went, and what LiteLLM has since. Exit 1 when it failed."""
    report = attached(lambda mooring: mooring.litellm_status(), spawn=not no_spawn)
    if as_json:
        print_json(report)
    else:
        last = "never" if report.synced_at is None else f"{ago(time.time() - report.synced_at)} ago"
        print_table(
            ("LITELLM", "VIA", "STATE", "LAST SYNC"), [(report.url, report.via, report.state, last)], tag="sync"
        )
        rows = ((row.name, row.variant, row.workspaces, row.calls) for row in report.servers)
        print_table(("SERVER", "VARIANT", "WORKSPACES", "CALLS"), rows, heading="In LiteLLM", tag="server")
        _show_skipped(report.skipped)
    if report.state == "failing":
        fail(report.error)
        sys.exit(1)


def _show(report: LiteLLMReport, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    rows = ((change.action, change.kind, change.name, change.why) for change in report.changes)
    nothing = f"{report.url} is as it should be; nothing to do."
    print_table(("ACTION", "KIND", "NAME", "BECAUSE OF"), rows, nothing, tag="change")
    _show_skipped(report.skipped)
    if report.changes and not report.applied:
        say("\nNothing was changed.")


def _show_skipped(skipped: Iterable[LiteLLMSkipped]) -> None:
    rows = ((row.workspace, row.variant, row.reason) for row in skipped)
    print_table(("WORKSPACE", "VARIANT", "REASON"), rows, heading="Not in LiteLLM", tag="skipped")
