"""``mooring check``: what the configuration means, before anything is started."""

from __future__ import annotations

import shlex
import sys
from itertools import starmap

import click
import msgspec

from mooring.cli import configured
from mooring.cli.output import json_option, print_json, print_table, say
from mooring.config.plan import Plan
from mooring.config.schema import Loaded
from mooring.errors import ConfigError
from mooring.nouns import Problem
from mooring.nouns_check import AccessRow, AdmissionRow, CheckReport, IssuerRow, MountRow, ProbeRow, VariantRow


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--as", "who", metavar="KEY-ID", help="Show what this key may do, and why; or SUBJECT@ISSUER.")
@click.option("--claim", "claims", metavar="NAME=VALUE", multiple=True, help="What the token of the SUBJECT says.")
@click.option("-w", "--workspace", metavar="NAME", help="Where the SUBJECT calls; default the first place it may.")
@click.option("--probe", is_flag=True, help="Ask SMCP servers which credentials they know.")
@json_option
def check(
    file: str | None, who: str | None, claims: tuple[str, ...], workspace: str | None, probe: bool, as_json: bool
) -> None:
    """Validate the configuration (or FILE) and explain it.

    Starts nothing, but with --probe each SMCP server with --credentials-schema, without secrets, to compare its answer
    with its credentials. Shows which servers would be run how, who shares which instance, and what is wrong. Exit 2
    when something is an error. Secrets that are variables are looked up in the environment of this command, not in the
    daemon's.
    """
    report = _report(file, probe)
    if who is not None and report.files:
        from mooring.cli.permissions import permitted

        plan = configured.planned(configured.loaded(file))
        report = msgspec.structs.replace(report, access=permitted(plan, who, claims, workspace))
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report.ok:
        sys.exit(ConfigError.exit_code)


def _report(file: str | None, probe: bool) -> CheckReport:
    try:
        written = configured.loaded(file)
        plan = configured.planned(written)
        report = configured.checked(written, plan)
        return _probed(report, written, plan) if probe else report
    except ConfigError as error:
        place = error.details
        message = str(ConfigError(error.args[0]))
        problem = Problem("error", message, place.get("path", ""), place.get("file", ""), place.get("line"))
        return CheckReport(ok=False, files=(), variants=(), mounts=(), problems=(problem,))


def _probed(report: CheckReport, written: Loaded, plan: Plan) -> CheckReport:
    from mooring.cli import probing

    rows = probing.probed(written, plan)
    found = tuple(dict.fromkeys(probing.problems(written, rows)))  # variants of one server say the same
    wrong = any(problem.level == "error" for problem in found)
    return msgspec.structs.replace(report, ok=report.ok and not wrong, probes=rows, problems=(*report.problems, *found))


def _print(report: CheckReport) -> None:
    columns = ("VARIANT", "KIND", "RUNS", "ENV", "CREDENTIALS")
    print_table(columns, map(_runs, report.variants), heading="Servers", tag="server")
    columns = ("VARIANT", "INSTANCES", "SHARING", "SHARED BY", "IDLE", "DIALOGUE", "UNAVAILABLE")
    print_table(columns, map(_shares, report.variants), heading="Instances", tag="instance")
    if about := next((row.dialogue for row in report.variants if row.dialogue), ""):
        say(f'DIALOGUE "off if old": {about}.')
    confined = [row for row in report.variants if row.confined]
    print_table(("VARIANT", "GETS"), map(_gets, confined), heading="Containers", tag="container")
    columns = ("WORKSPACE", "PREFIX", "SERVER", "VARIANT", "SHARING")
    print_table(columns, map(_mount, report.mounts), heading="Workspaces", tag="mount")
    columns = ("ISSUER", "URL", "AUDIENCE", "KEYS", "ALGORITHMS", "SCOPES", "LEEWAY")
    print_table(columns, map(_issuer, report.identity), heading="Identity", tag="issuer")
    admitted = [(issuer, row) for issuer in report.identity for row in issuer.admit]
    columns = ("ISSUER", "WORKSPACE", "CLAIMS", "MAY", "TOOLS", "AS KEY")
    print_table(columns, starmap(_admission, admitted), heading="Admissions", tag="admission")
    columns = ("VARIANT", "REQUIRED", "OPTIONAL", "MISSING", "UNKNOWN", "ERROR")
    print_table(columns, map(_probe, report.probes), heading="Credentials", tag="probe")
    columns = ("KIND", "NAME", "SERVER", "LISTED", "CALL", "WHY")
    print_table(columns, map(_access, report.access), heading="Access", tag="access")
    print_table(("LEVEL", "WHERE", "PROBLEM"), map(_problem, report.problems), heading="Problems", tag="problem")
    if report.ok:
        say(f"The configuration is valid ({', '.join(report.files)}).")


def _runs(row: VariantRow) -> tuple[object, ...]:
    given = None if row.credentials is None else _pairs(row.credentials) or "none"
    return row.id, row.kind, shlex.join(row.command), _pairs(row.env), given


def _pairs(values: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _shares(row: VariantRow) -> tuple[object, ...]:
    idle = f"{row.idle_timeout:g}s" if row.idle_timeout else "never"
    dialogue = "off if old" if row.dialogue else "on"
    return row.id, row.instance_keys, row.sharing, row.shared_by, idle, dialogue, row.unavailable


def _gets(row: VariantRow) -> tuple[object, ...]:
    return row.id, row.confined


def _mount(row: MountRow) -> tuple[object, ...]:
    return row.workspace, row.prefix, row.server, row.variant, row.sharing


def _issuer(row: IssuerRow) -> tuple[object, ...]:
    keys = row.jwks or "by metadata"
    return row.name, row.url, row.audience, keys, row.algorithms, row.scopes, f"{row.leeway:g}s"


def _admission(issuer: IssuerRow, row: AdmissionRow) -> tuple[object, ...]:
    claims = [f"{claim}: {' or '.join(globs)}" for claim, globs in row.claims.items()] or "everybody"
    return issuer.name, row.workspace, claims, row.scopes, row.tools or "all", row.key


def _probe(row: ProbeRow) -> tuple[object, ...]:
    return row.variant, list(row.required), list(row.optional), row.missing, row.unknown, row.error


def _access(row: AccessRow) -> tuple[object, ...]:
    return row.kind, row.name, row.server, "yes" if row.listed else "no", row.call, row.reason


def _problem(problem: Problem) -> tuple[object, ...]:
    place = ":".join(str(part) for part in (problem.file, problem.line) if part)
    return problem.level, " ".join(part for part in (place, problem.path) if part), problem.message
