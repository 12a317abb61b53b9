"""Pipes that the event loop takes over: each descriptor is closed exactly once, whoever else opens files meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from typing import Any

import pytest
import uvloop

from loops import cancelled_after, run
from mooring.launch.base import Pipes
from mooring.wire.pipes import taken_over

ROUNDS = 3000


def _opening(stop: threading.Event, lost: list[int]) -> None:
    while not stop.is_set():
        descriptor = os.open(os.devnull, os.O_RDONLY)
        try:
            os.close(descriptor)
        except OSError:
            lost.append(descriptor)


async def _rounds() -> None:
    for _ in range(ROUNDS):
        (reader, theirs), (mine, writer) = os.pipe(), os.pipe()
        for transport in await taken_over(Pipes(reader, writer), asyncio.Protocol, asyncio.BaseProtocol):
            transport.close()
        await asyncio.sleep(0)
        os.close(theirs)
        os.close(mine)


class Derived(uvloop.Loop):
    """Of a program that Mooring is a library of."""


LOOPS = pytest.mark.parametrize(
    "loops", [uvloop.new_event_loop, Derived, asyncio.new_event_loop], ids=["uvloop", "derived", "asyncio"]
)


@LOOPS
def test_what_other_threads_open_meanwhile_stays_theirs(loops: Any) -> None:
    """What a thread opened between two closes of one descriptor was closed under its hands, and what it wrote then
    went to whoever got the number next: records of the audit to a client."""
    lost: list[int] = []
    stop = threading.Event()
    threads = [threading.Thread(target=_opening, args=(stop, lost)) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        run(_rounds(), loops)
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join(30)
    assert lost == []


@LOOPS
@pytest.mark.parametrize("ticks", [1, 2, 3, 4])
def test_one_that_is_cancelled_leaves_nothing_open(loops: Any, ticks: int) -> None:
    async def cancelled() -> None:
        (reader, theirs), (mine, writer) = os.pipe(), os.pipe()
        taking = await cancelled_after(ticks, taken_over(Pipes(reader, writer), asyncio.Protocol, asyncio.BaseProtocol))
        if not taking.cancelled():
            for transport in taking.result():
                transport.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        gc.collect()  # a file that is left open is an error here
        for descriptor in (reader, writer):
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        os.close(theirs)
        os.close(mine)

    run(cancelled(), loops)
