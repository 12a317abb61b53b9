"""Faults of every class, many times: nothing is left, nothing is lost, everybody is answered, nobody else notices.

``make chaos`` does a thousand of each class; the short form does 25. ``MOORING_CHAOS=100`` makes it that many, and
``MOORING_CHAOS_SEED`` repeats a run (the seed is in the table's last line).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos_arena import CALL, Arena, keeper_of, marked
from chaos_containers import CONTAINER_FAULTS
from chaos_faults import FAULTS, Fault

from mooring.testing import wait_for
from mooring.testing.processes import alive, descendants, descriptors

COUNT = int(os.environ.get("MOORING_CHAOS", "25"))
SEED = int(os.environ.get("MOORING_CHAOS_SEED", str(random.SystemRandom().randrange(1 << 32))))
DELAY = 10.0
"""Seconds that a call to another server may take in the worst case, on a machine busy with a hundred starts; the
table shows what it was."""


@contextmanager
def place(fault: Fault, home: Path) -> Generator[None]:
    """The home, on a small file system of its own where the fault is a full one."""
    home.mkdir()
    if fault.name != "disk full":
        yield
        return
    state = home / "state"
    state.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={4 + COUNT // 200}m,mode=0700", "chaos", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


@pytest.mark.timeout(180 + 2 * COUNT)
@pytest.mark.parametrize("fault", [*FAULTS, *CONTAINER_FAULTS], ids=lambda fault: fault.name.replace(" ", "-"))
async def test_nothing_is_left_or_lost_and_nobody_else_is_hurt(
    fault: Fault, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """R11, R12, R13, R14, R15, A12, A13, A14, A15, A16: seen from outside."""
    if why := fault.needs():
        pytest.skip(why)
    with place(fault, tmp_path / "home"), fault.around():
        async with Arena(tmp_path / "home", fault.servers, SEED, fault.gateway) as arena:
            await arena.all_well()
            await arena.promise()
            await arena.reconnect()
            before = await arena.count()
            began, late = time.perf_counter(), 0
            work = fault.happen(arena, COUNT)
            try:
                await (arena.beside(work) if fault.beside else work)
            except* TimeoutError:
                late += 1
                raise
            finally:
                seconds = time.perf_counter() - began
            await arena.all_well()
            lost = await arena.lost()
            await arena.reconnect()

            await wait_for(lambda: not arena.orphans() and not arena.zombies(), CALL, 0.02)
            await wait_for(arena.no_strays, CALL, 0.1)
            root, keeper = arena.root, keeper_of(arena.root)
            await arena.none_more(before.family)

            def leaked() -> int:
                return max(descriptors(root) - before.daemon, 0) + max(descriptors(keeper) - before.keeper, 0)

            def clean() -> tuple[int, int] | None:
                found = (len(arena.zombies()), leaked())
                return None if any(found) else found

            counted = await wait_for(clean, CALL, 0.05)
            everyone = descendants(arena.root)
            output = arena.running.output
        left = marked(arena.mark) | {pid for pid in everyone if alive(pid)} | arena.contained()
        middle, longest = arena.delay
        ok = arena.outcomes.pop("ok", 0)
        figures = (arena.faults, f"{seconds:.1f}", ok, arena.outcomes.total(), late, len(arena.bystander))
        delays = (f"{middle:.1f}", f"{longest:.0f}") if arena.bystander else ("", "")
        row = (fault.name, *map(str, figures), *delays, str(len(left)), *map(str, counted), str(lost))
        record_property("chaos", row)
        record_property("chaos run", f"MOORING_CHAOS={COUNT} MOORING_CHAOS_SEED={SEED}")
    assert not left, "something outlived the daemon"
    assert lost == 0, "an acknowledged key is gone"
    assert arena.faults >= COUNT
    assert longest < DELAY * 1000, f"seed {SEED}: somebody else's call took {longest:.0f} ms"
    assert "Traceback" not in output or fault.name in ("file size limit", "disk full"), output
