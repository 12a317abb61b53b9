"""``mooring check --probe``: what SMCP servers say about their credentials, beside what the configuration gives them.

Each server is launched as the daemon would, with ``--credentials-schema`` behind its arguments, without any secret and
for a bounded time. It answers with the keys it knows and exits before any handshake. Nothing is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import msgspec

from mooring.config.names import did_you_mean
from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Container, Process, credentials
from mooring.config.schema import Loaded
from mooring.errors import MooringError, StartFailed
from mooring.launch.base import Launched, Launcher, Pipes, Preparing, unheard
from mooring.launch.kept import Keeper
from mooring.nouns import Problem
from mooring.nouns_check import ProbeRow
from mooring.plugins.hooks import Context
from mooring.plugins.manager import collect
from mooring.serve.builtin import Builtin
from mooring.serve.containers import Containers
from mooring.serve.kinds import unsupported
from mooring.serve.starter import kind
from mooring.wire.pipes import taken_over

FLAG = "--credentials-schema"
TOGETHER = 8
"""Servers that are asked at the same time."""
LIMIT = 1024 * 1024
"""Bytes of a schema."""


class Schema(msgspec.Struct, frozen=True):
    """What a server prints: key to description."""

    required: dict[str, str] = {}
    optional: dict[str, str] = {}


def probed(written: Loaded, plan: Plan) -> tuple[ProbeRow, ...]:
    """Ask every SMCP server of the plan that is enabled and can be started here."""
    asked = [
        variant
        for variant in plan.variants.values()
        if written.config.mcp_servers[variant.server].enabled
        and credentials(variant.launch) is not None
        and not unsupported(variant.launch)
    ]
    import uvloop  # as the daemon runs

    return uvloop.run(_probed(asked, plan.gateway.engine)) if asked else ()


def problems(written: Loaded, rows: tuple[ProbeRow, ...]) -> Iterator[Problem]:
    """What is wrong with the credentials of these servers, with its place."""
    for row in rows:
        path = f"mcp_servers.{row.server}.credentials"
        file, line = written.place(("mcp_servers", row.server, "credentials"))
        if row.error:
            yield Problem("warning", f'"{row.server}" was not compared: {row.error}', path, file, line)
        for key in row.missing:
            message = f'"{row.server}" needs the credential {key} ({row.required[key]})'
            yield Problem("error", message, path, file, line)
        for key in row.unknown:
            hint = did_you_mean(key, (*row.required, *row.optional))
            file, line = written.place(("mcp_servers", row.server, "credentials", key))
            yield Problem("warning", f'"{row.server}" knows no credential {key}{hint}', f"{path}.{key}", file, line)


def compared(variant: Variant, schema: Schema) -> ProbeRow:
    """A server's schema beside the credentials of ``variant``. Pure."""
    given = credentials(variant.launch) or {}
    return ProbeRow(
        variant=variant.id,
        server=variant.server,
        required=schema.required,
        optional=schema.optional,
        missing=tuple(key for key in schema.required if key not in given),
        unknown=tuple(key for key in given if key not in schema.required and key not in schema.optional),
    )


async def _probed(asked: list[Variant], engine: str) -> tuple[ProbeRow, ...]:
    places = asyncio.Semaphore(TOGETHER)
    async with Keeper() as keeper:
        containers = Containers(keeper, None, lambda: engine, unheard)
        launchers = collect({"mooring": Builtin(keeper, unheard, containers)}, Context("")).by_kind()
        return tuple(await asyncio.gather(*(_probe(variant, launchers, places) for variant in asked)))


async def _probe(variant: Variant, launchers: Mapping[str, Launcher], places: asyncio.Semaphore) -> ProbeRow:
    try:
        async with places:
            return compared(variant, await _schema(variant, launchers[kind(variant)]))
    except MooringError as error:
        return ProbeRow(variant.id, variant.server, error=str(error))


async def _schema(variant: Variant, launcher: Launcher) -> Schema:
    """Launch it with the flag and read what it prints. Raises MooringError."""
    limit = variant.timeouts.ready
    asked = msgspec.structs.replace(variant, launch=_asking(variant.launch))
    if isinstance(launcher, Preparing):
        try:
            async with asyncio.timeout(variant.timeouts.pull):
                await launcher.prepare(asked, _unseen, _unseen)
        except TimeoutError:
            raise StartFailed(f"it could not be got within {variant.timeouts.pull:g} s (timeouts.pull)") from None
    async with launcher.launch(asked, asked.key("probe"), {}) as launched:
        try:
            async with asyncio.timeout(limit):
                printed = await _printed(launched)
        except TimeoutError:
            raise StartFailed(f"it did not answer {FLAG} within {limit:g} s (timeouts.ready)") from None
        try:
            return msgspec.json.decode(printed, type=Schema)
        except msgspec.DecodeError:
            said = launched.stderr.text(3)
            why = "it does not know" if b"+READY" in printed else "it printed no schema for"
            raise StartFailed(f"{why} {FLAG}{f'; it said: {said}' if said else ''}") from None


def _unseen(_: str) -> None:
    """Nobody watches the steps."""


def _asking(launch: object) -> Process | Container:
    """The launch with the flag, and with nothing that is secret."""
    match launch:
        case Process():
            return msgspec.structs.replace(launch, argv=(*launch.argv, FLAG), secrets={}, credentials=None)
        case Container():
            return msgspec.structs.replace(launch, args=(*launch.args, FLAG), secrets={}, credentials=None)
        case _:
            raise TypeError(launch)


async def _printed(launched: Launched) -> bytes:
    """All of its stdout, as far as it is short. Its stdin ends at once: one that does not know the flag and waits for
    credentials gives up then."""
    pipes = launched.endpoint
    assert isinstance(pipes, Pipes)
    reader = asyncio.StreamReader()
    transport, stdin = await taken_over(pipes, lambda: asyncio.StreamReaderProtocol(reader), asyncio.BaseProtocol)
    stdin.close()
    try:
        printed = pipes.leftover
        while len(printed) < LIMIT and (piece := await reader.read(65536)):
            printed += piece
        return printed
    finally:
        transport.close()
