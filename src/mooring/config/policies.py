"""From written policies to those of the plan. Pure; used by ``config.resolve``."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from mooring.config import names, plan
from mooring.config.fault import Fault
from mooring.config.schema_base import Path
from mooring.config.schema_policy import Audit, Policy, Rule, Telemetry


def policy(written: Policy, name: str, servers: Iterable[str], path: Path) -> plan.Policy:
    """A policy under the ``name`` that people are told. Raises Fault."""
    if written == Policy():
        return plan.Policy()
    rate = written.rate
    return plan.Policy(
        name=name,
        allow=rules(written.allow, servers, (*path, "allow")),
        deny=rules(written.deny, servers, (*path, "deny")),
        confirm=rules(written.confirm, servers, (*path, "confirm")),
        rate=None if rate is None else plan.Rate(rate.calls, float(rate.per)),
        concurrency=written.concurrency,
        max_result=written.max_result,
    )


def audit(written: Audit, servers: Iterable[str]) -> plan.Audit:
    """What is recorded. Raises Fault."""
    arguments = rules(written.arguments, servers, ("audit", "arguments"))
    return plan.Audit(written.enabled, arguments, written.max_bytes, written.files)


def telemetry(written: Telemetry | None) -> plan.Telemetry | None:
    """What a collector is sent."""
    return written and plan.Telemetry(written.endpoint.rstrip("/"), written.traces, written.metrics)


def rules(written: Iterable[Rule], servers: Iterable[str], path: Path) -> tuple[plan.Rule, ...]:
    """Rules; one about a server that does not exist would guard nothing. Those that are added at run time have a dot in
    their names. Raises Fault."""
    made: list[plan.Rule] = []
    for position, rule in enumerate(written):
        later = rule.server in ("*", "registry") or "." in rule.server
        if not later and not any(fnmatchcase(server, rule.server) for server in servers):
            hint = names.did_you_mean(rule.server, tuple(servers))
            raise Fault(f'no server is called "{rule.server}"{hint}', (*path, position, "server"))
        made.append(plan.Rule(rule.server, rule.tool, rule.read_only, rule.destructive))
    return tuple(made)
