"""``mooring doctor``: looks at everything Mooring stands on, and says what to do about what is wrong."""

from __future__ import annotations

import sys

import click

from mooring.cli.output import json_option, print_json, print_table, say
from mooring.cli.shapes import DoctorReport, Finding


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Look for what is wrong, and say what to do about it.

    Looks at folders, daemon, endpoint, keyring, configuration, and at what each server needs. Starts nothing. Exit 1
    when something is wrong. Programs are looked up with the PATH of this command.
    """
    from mooring.cli.examination import examined

    findings = tuple(examined())
    report = DoctorReport(ok=all(finding.level != "error" for finding in findings), findings=findings)
    if as_json:
        print_json(report)
    else:
        print_table(("CHECK", "STATE", "FINDING"), map(_cells, findings))
        say("Nothing is wrong." if report.ok else "Something is wrong; see above.")
    if not report.ok:
        sys.exit(1)


def _cells(finding: Finding) -> tuple[str, str, str]:
    return finding.check, finding.level, f"{finding.message}. {finding.advice}" if finding.advice else finding.message
