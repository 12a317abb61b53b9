"""The tables of what may be done, what is recorded and what is sent: policies, ``[audit]``, ``[telemetry]``. Pure; see
``config.schema``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from mooring.config.durations import Limit
from mooring.config.schema_base import Count, Table


class Rule(Table, frozen=True, kw_only=True):
    """Some tools: all that is said has to hold; `{}` is everything. A rule that names neither a tool nor what it does
    is about the whole server, its prompts and resources too."""

    server: str = "*"
    """Glob on the server's name."""
    tool: str = "*"
    """Glob on the server's own name of the tool."""
    read_only: bool | None = None
    """Whether it only reads; known of `trust = "trusted"` servers that say so, and else `false`."""
    destructive: bool | None = None
    """Whether it may destroy; `true` unless a trusted server says otherwise."""


class Rate(Table, frozen=True, kw_only=True):
    """So many calls in a time."""

    calls: Annotated[int, msgspec.Meta(ge=1)]
    """Calls that may be made in a row."""
    per: Limit = Limit(60)
    """Time in which they become available again, one after the other."""


class Policy(Table, frozen=True, kw_only=True):
    """What may be done, and how much of it."""

    allow: tuple[Rule, ...] = ()
    """Only what a rule covers; without rules everything."""
    deny: tuple[Rule, ...] = ()
    """Not what a rule covers, whatever `allow` says."""
    confirm: tuple[Rule, ...] = ()
    """Tools whose calls a person must agree to, one by one."""
    rate: Rate | None = None
    """How many calls in which time."""
    concurrency: Count = 0
    """Calls at the same time; 0: no limit."""
    max_result: Count = 0
    """Bytes of a result; a longer one is replaced by an error that names its size; 0: no limit."""


class Audit(Table, frozen=True, kw_only=True):
    """The record of calls and of changes of who may do what, in `state/audit.jsonl`."""

    enabled: bool = True
    """`false`: nothing is recorded."""
    arguments: tuple[Rule, ...] = ()
    """Tools whose arguments are recorded, with secrets masked."""
    max_bytes: Annotated[int, msgspec.Meta(ge=65536)] = 10_000_000
    """Size at which a file is put aside."""
    files: Annotated[int, msgspec.Meta(ge=1, le=999)] = 10
    """Files that are kept, the current one included."""


class Telemetry(Table, frozen=True, kw_only=True):
    """What an OpenTelemetry collector is sent, over OTLP/HTTP; needs `pip install 'mooring[otel]'`. Without this table
    nothing is sent. The standard variables of the daemon's environment hold for the rest, such as
    `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and `OTEL_METRIC_EXPORT_INTERVAL`."""

    endpoint: str = ""
    """Such as `http://127.0.0.1:4318`; without it `OTEL_EXPORTER_OTLP_ENDPOINT` says, else `http://localhost:4318`."""
    traces: bool = True
    """A span for each request to a server, and for each refusal."""
    metrics: bool = True
    """Requests, errors, durations, instances and starts."""

    def __post_init__(self) -> None:
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint needs to begin with http:// or https://")
