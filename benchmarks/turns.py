"""What the suites share: peers brought up together, turns taken by them, one checked call, medians.

Peers whose costs are compared are all up at once and take turns within every round, so that a busy machine hits all
alike. A peer that fails gets a row that says why, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.client import Session, WrongAnswerError
from benchmarks.direct import DirectSession
from benchmarks.peers import PEERS, Running, Server, running

SMALL, LARGE = 100, 1_000_000
TURN_LIMIT = 120.0
"""Seconds after which a peer's turn has failed."""

Row = dict[str, float | str]
Table = dict[str, Row]
Caller = Session | DirectSession
Call = Callable[[Caller, str, int], Awaitable[float]]
"""Makes one call of a tool, with a number to tell it from others; the seconds it took."""


class Effort(msgspec.Struct, frozen=True):
    """How long is measured."""

    rounds: int = 5
    seconds: float = 1.0
    """Length of one peer's turn."""
    calls: int = 300
    """Most calls in a turn of sequential calls."""


def median(values: Sequence[float], digits: int = 4) -> float:
    """Rounded."""
    return round(statistics.median(values), digits)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def failed(error: BaseException) -> Row:
    """The row of a peer that could not be measured."""
    if isinstance(error, BaseExceptionGroup):
        return failed(error.exceptions[0])
    return {"failed": f"{type(error).__name__}: {error}"}


SETTLED = 2.0
"""Seconds that an earlier life goes on once all is there: what a gateway keeps for its next start is written then."""


@contextlib.asynccontextmanager
async def bring_up(
    name: str, behind: list[Server], *, lives: int = 1, before: Callable[[], object] | None = None
) -> AsyncIterator[Running]:
    """A peer in its last life; before that it was up and complete ``lives - 1`` times on the same folder. ``before`` is
    called right before the last one."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        peer = PEERS[name](behind, Path(folder))
        peer.prepare()
        for _ in range(lives - 1):
            async with running(peer) as up:
                await up.complete()
                await asyncio.sleep(SETTLED)
        if before is not None:
            before()
        async with running(peer) as up:
            yield up


@contextlib.asynccontextmanager
async def all_up(names: list[str], behind: list[Server], table: Table) -> AsyncIterator[dict[str, Running]]:
    """Every peer up and complete; one that fails gets its row at once."""
    async with contextlib.AsyncExitStack() as stack:
        ups: dict[str, Running] = {}
        for name in names:
            try:
                up = await stack.enter_async_context(bring_up(name, behind))
                await up.complete()
                ups[name] = up
            except Exception as error:
                table[name] = failed(error)
        yield ups


async def in_turns(
    ups: dict[str, Running], table: Table, rounds: int, measure: Callable[[Running], Awaitable[None]]
) -> None:
    """Each peer once a round; one that fails leaves ``ups`` and gets its row."""
    for _ in range(rounds):
        for name, up in list(ups.items()):
            try:
                async with asyncio.timeout(TURN_LIMIT):
                    await measure(up)
            except Exception as error:
                del ups[name]
                table[name] = failed(error)


async def small_call(caller: Caller, tool: str, number: int) -> float:
    """One checked echo of 100 bytes; its seconds."""
    text = f"{number}.".ljust(SMALL, "x")
    answer, seconds = await caller.call(tool, {"text": text})
    if answer != text:
        raise WrongAnswerError(f"wanted {text!r}, got {answer[:200]!r}")
    return seconds


async def large_call(caller: Caller, tool: str, number: int) -> float:
    """One checked answer of 1 MB; its seconds."""
    answer, seconds = await caller.call(tool, {"size": str(LARGE), "tag": f"<{number}>"})
    if len(answer) != LARGE + len(f"<{number}>") or not answer.startswith(f"<{number}>x"):
        raise WrongAnswerError(f"call {number} got {len(answer)} characters that begin with {answer[:40]!r}")
    return seconds


async def call_for(caller: Caller, call: Call, tool: str, effort: Effort, *, share: float = 1.0) -> list[float]:
    """Call after call for a share of a turn; the seconds of each."""
    taken: list[float] = []
    end = time.perf_counter() + effort.seconds * share
    while len(taken) < 3 or (time.perf_counter() < end and len(taken) < effort.calls * share):
        taken.append(await call(caller, tool, len(taken)))
    return taken
