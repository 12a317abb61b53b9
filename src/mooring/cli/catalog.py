"""``mooring catalog``: the sources of the catalog, and what it knows about an entry."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import click

from mooring.cli.attached import attached
from mooring.cli.output import ago, fail, json_option, no_spawn_option, print_json, print_table, until, visible, warn
from mooring.nouns_registry import EntryReport, RefreshReport, SourceRow


@click.group()
def catalog() -> None:
    """Where servers that could be run are listed."""


@catalog.command()
@click.argument("sources", nargs=-1)
@click.option("--force", is_flag=True, help="Also what is still fresh.")
@json_option
@no_spawn_option
def refresh(sources: tuple[str, ...], force: bool, as_json: bool, no_spawn: bool) -> None:
    """Read SOURCES, or all sources, again. Exit 1 when one failed."""
    reports = attached(
        lambda mooring: mooring.catalog_refresh(sources, force=force, heard=_heard), spawn=not no_spawn, limit=None
    )
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        print_json(reports)
    else:
        print_table(("SOURCE", "OUTCOME", "ENTRIES", "NEW", "CHANGED", "GONE", "NEXT"), map(_outcome, reports))
    failed = [report for report in reports if report.outcome == "failed"]
    for report in failed:
        fail(f"{report.name}: {report.error}")
    for report in reports:
        for problem in report.problems:
            warn(f"{report.name}: left out {problem}")
    sys.exit(1 if failed else 0)


@catalog.command()
@json_option
@no_spawn_option
def status(as_json: bool, no_spawn: bool) -> None:
    """Every source: what it has, when it was read, what went wrong."""
    rows = attached(lambda mooring: mooring.catalog_status(), spawn=not no_spawn)
    if as_json:
        print_json(rows)
        return
    print_table(("SOURCE", "STATE", "ENTRIES", "TRUSTED", "READ", "NEXT", "PLACE", "REASON"), map(_source, rows))


@catalog.command()
@click.argument("entry_id", metavar="ID")
@json_option
@no_spawn_option
def show(entry_id: str, as_json: bool, no_spawn: bool) -> None:
    """All about one entry: how it starts, what it needs."""
    report = attached(lambda mooring: mooring.catalog_show(entry_id), spawn=not no_spawn)
    if as_json:
        print_json(report)
        return
    for line in _shown(report):
        click.echo(visible(line))


def _heard(what: str, data: Any) -> None:
    """Progress, on one line, for people only."""
    if sys.stderr.isatty():
        said = click.style(visible(f"{data['source']}: {data['entries']} entries"), dim=True)
        click.echo(f"\r\x1b[K{said}", nl=False, err=True)


def _outcome(report: RefreshReport) -> tuple[object, ...]:
    counts = (
        ("", "", "", "")
        if report.outcome in ("fresh", "failed")
        else (report.entries, report.added, report.changed, report.removed)
    )
    return report.name, report.outcome, *counts, until(report.next_at)


def _source(row: SourceRow) -> tuple[object, ...]:
    read = "" if row.refreshed_at is None else f"{ago(time.time() - row.refreshed_at)} ago"
    reason = row.error or (f"{len(row.problems)} records left out" if row.problems else "")
    if row.state == "never" and not reason:
        reason = f"not read yet: mooring catalog refresh {row.name}"
    trusted = "yes" if row.trusted else "no"
    return row.name, row.state, row.entries, trusted, read, until(row.next_at), row.place, reason


def _shown(report: EntryReport) -> list[str]:
    row, entry = report.row, report.entry
    lines = [f"{row.name}  ({row.id})", row.description, ""]
    if report.gone:
        lines[2:] = ["Its source no longer has it.", ""]
    facts: list[tuple[str, str]] = [
        ("source", f"{row.source}{'' if row.trusted else ', not trusted'}"),
        ("also in", ", ".join(report.also_in)),
        ("categories", ", ".join(row.categories)),
        ("tags", ", ".join(row.tags)),
        ("by", "its makers" if row.official else ""),
        ("status", "deprecated" if row.deprecated else ""),
        ("version", str(entry.get("version", ""))),
        ("source code", str(entry.get("repository", {}).get("url", ""))),
        ("runs as", ", ".join(row.launch) or "nothing that can be started here"),
        *(("package", f"{package['registryType']} {package['identifier']}") for package in entry.get("packages", ())),
        *(("remote", f"{remote.get('type', 'stdio')} {remote.get('url', '')}") for remote in entry.get("remotes", ())),
        *(("needs", _need(name, part)) for name, part in _needs(report).items()),
        ("add it", _add(report) if row.launch and not report.gone else ""),
        ("first seen", time.strftime("%Y-%m-%d", time.gmtime(report.first_seen))),
    ]
    lines += [f"{name:<12} {value}" for name, value in facts if value]
    if tools := entry.get("tools"):
        lines += ["", "tools", *(f"  {tool['name']}  {tool.get('description', '')}".rstrip() for tool in tools)]
    return lines


def _needs(report: EntryReport) -> dict[str, dict[str, Any]]:
    """What must be given: name to what the entry says about it."""
    said: dict[str, dict[str, Any]] = {}
    for place in ("packages", "remotes", "inputs"):
        for name, part in _parts(place, report.entry.get(place)):
            said.setdefault(name, part)
    return {name: said.get(name, {}) for name in report.row.needs}


def _need(name: str, part: dict[str, Any]) -> str:
    about = f": {part['description']}" if part.get("description") else ""
    return f"{name}{' (a secret)' if part.get('isSecret') else ''}{about}"


def _add(report: EntryReport) -> str:
    """The command that adds it; how a secret is set, that one says itself."""
    plain = (name.lstrip("-").rstrip("=") for name, part in _needs(report).items() if not part.get("isSecret"))
    return " ".join(("mooring add", report.row.id, *(f"--set {name}=..." for name in plain)))


def _parts(key: str, node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whatever has a name in a part of an entry, at any depth."""
    if isinstance(node, list):
        for one in cast("list[Any]", node):
            yield from _parts("", one)
    elif isinstance(node, dict):
        table = cast("dict[str, Any]", node)
        if name := table.get("name") or table.get("valueHint"):
            yield str(name), table
        for name, value in table.items():
            if key in ("inputs", "variables"):
                yield name, value
            yield from _parts(name, value)
