"""Whatever ends the daemon, its keeper, the engine's program or the server: nothing is left, nothing foreign goes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
from container_kit import LIMIT, Kept, Table, agree, answer, called

from mooring.testing import containers, wait_for
from mooring.testing.processes import alive

BAD = ("--ignore-eof", "--ignore-term")


async def nothing_left(kept: Kept, home: Path, within: float = LIMIT) -> None:
    """Until the engine has no container of this home."""
    await wait_for(lambda: not kept.names(home), within, 0.05)


@pytest.mark.parametrize("flags", [(), BAD], ids=["good", "bad"])
async def test_a_killed_daemon_leaves_no_container(
    kept: Kept, tmp_path: Path, echo: Table, flags: tuple[str, ...]
) -> None:
    """R15 A12: the keeper has the engine remove them, also those that ignore everything."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo(*flags), "two": echo(*flags, "--name", "two")}) as daemon:
        await called(daemon, "one_echo")
        await called(daemon, "two_echo")
        keepers = [child.pid for child in psutil.Process(daemon.process.pid).children()]
        daemon.process.kill()
        await daemon.process.wait()
        await nothing_left(kept, home)
        await wait_for(lambda: not any(map(alive, keepers)), LIMIT, 0.05)


async def test_a_start_that_a_kill_interrupts_leaves_no_container(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15: the engine may be in the middle of making it."""
    home = tmp_path / "home"
    servers = {f"s{number}": echo(*BAD) for number in range(6)}
    async with kept.daemon(home, servers) as daemon:
        await wait_for(lambda: "instance.starting" in daemon.output and kept.names(home), LIMIT, 0.01)
        keepers = [child.pid for child in psutil.Process(daemon.process.pid).children()]
        daemon.process.kill()
        await daemon.process.wait()
        await wait_for(lambda: not any(map(alive, keepers)), LIMIT, 0.05)
        assert not kept.names(home)


async def test_a_killed_keeper_takes_its_containers_along(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15 A13: the daemon ends them, and starts them again on the next call."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo(*BAD)}) as daemon:
        await called(daemon, "one_echo")
        first = kept.ids(home)
        (keeper,) = psutil.Process(daemon.process.pid).children()
        keeper.kill()
        await wait_for(lambda: not kept.names(home), LIMIT, 0.05)

        async def again() -> bool:
            return bool(await called(daemon, "one_echo", n=1))

        await wait_for(again, LIMIT, 0.2)
        await agree(kept, daemon, 1)
        assert kept.ids(home).isdisjoint(first)


@pytest.mark.parametrize("flags", [(), BAD], ids=["good", "bad"])
async def test_a_killed_engine_program_takes_its_container_along(
    kept: Kept, tmp_path: Path, echo: Table, flags: tuple[str, ...]
) -> None:
    """R13 R15: its end is seen at once, and the next call finds a new one."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo(*flags)}) as daemon:
        await called(daemon, "one_echo")
        first = kept.ids(home)
        (row,) = await daemon.rows("one")
        assert row.pid is not None
        os.kill(row.pid, signal.SIGKILL)

        async def another() -> bool:
            answered = await called(daemon, "one_echo", n=1)
            now = kept.ids(home)  # one look: the first one may still be there, and be gone at the next
            return bool(answered) and len(now) == 1 and now.isdisjoint(first)

        await wait_for(another, LIMIT, 0.2)
        await agree(kept, daemon, 1)


async def test_an_idle_stop_ends_what_ignores_it(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15: end of input, SIGTERM, then the engine's kill, within the limit of its close."""
    servers = {"one": echo(*BAD, idle_timeout=0.3, timeouts={"close": 1})}
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        await called(daemon, "one_echo")
        await agree(kept, daemon, 0)
        (row,) = await daemon.rows("one")
        assert row.state == "stopped"


async def test_a_server_that_crashes_is_seen_at_once(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R13: with its exit code and its last words; nothing is left of it."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo("--crash-at-start")}) as daemon:
        began = asyncio.get_running_loop().time()
        result = await answer(daemon, "one_echo")
        assert result["isError"]
        assert "cannot start" in str(result)
        assert asyncio.get_running_loop().time() - began < LIMIT / 2
        await nothing_left(kept, home)


async def test_what_an_earlier_daemon_left_is_ended_and_nothing_else(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15: found by label at the next start, which does not wait for it; running or exited, foreign ones untouched."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo()}) as daemon:
        await called(daemon, "one_echo")
    label = kept.label(home)
    base = ["run", "--detach", "--network=none", "--volume=/usr:/usr:ro"]
    sleep = [containers.IMAGE, "/usr/bin/sleep", "600"]
    ours, foreign, exited = (f"mooring-test-{name}-{os.getpid()}" for name in ("left", "foreign", "exited"))
    try:
        containers.command(kept.engine, *base, f"--name={ours}", f"--label={label}", *sleep)
        other = "mooring.installation=0123456789abcdef"
        containers.command(kept.engine, *base, f"--name={foreign}", f"--label={other}", *sleep)
        containers.command(
            kept.engine, *base, f"--name={exited}", f"--label={label}", containers.IMAGE, "/usr/bin/true"
        )
        async with kept.again(home) as daemon:
            await wait_for(lambda: not kept.names(home) & {ours, exited}, LIMIT, 0.05)
            assert foreign in containers.names(kept.engine)
            await called(daemon, "one_echo")
    finally:
        containers.remove(kept.engine, [ours, foreign, exited])


async def test_leftovers_are_ended_also_when_no_container_is_configured_any_more(
    kept: Kept, tmp_path: Path, echo: Table
) -> None:
    """R15: the home remembers which engines it has used."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo(*BAD)}) as daemon:
        await called(daemon, "one_echo")
        (keeper,) = psutil.Process(daemon.process.pid).children()
        keeper.suspend()
        daemon.process.kill()
        await daemon.process.wait()
        keeper.kill()
        assert kept.names(home)
    async with kept.daemon(home, {}, {"w": {}}):
        await nothing_left(kept, home)


async def test_two_homes_never_touch_each_other(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15: the same configuration twice; one daemon is killed and started again while the other goes on."""
    one, other = tmp_path / "one", tmp_path / "other"
    servers = {"one": echo()}
    async with kept.daemon(one, servers) as first, kept.daemon(other, servers) as second:
        await called(first, "one_counter")
        await called(second, "one_counter")
        (name,) = kept.names(other)
        assert kept.names(one).isdisjoint({name})
        first.process.kill()
        await first.process.wait()
        await nothing_left(kept, one)
        async with kept.again(one) as third:
            await called(third, "one_counter")
            assert kept.names(other) == {name}
            assert (await called(second, "one_counter"))["count"] == 2


async def test_a_second_daemon_on_the_same_home_names_the_first(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R15: it refuses, and the containers stay."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo()}) as daemon:
        await called(daemon, "one_counter")
        before = kept.names(home)
        code, _, err = await daemon.command("up")
        assert code != 0
        assert f"pid {daemon.process.pid}" in err
        assert kept.names(home) == before
        assert (await called(daemon, "one_counter"))["count"] == 2


@pytest.mark.parametrize("delay", [0.2, 0.4, 0.6])
async def test_a_daemon_that_stops_during_starts_leaves_nothing(
    kept: Kept, tmp_path: Path, echo: Table, delay: float
) -> None:
    """R15: SIGTERM can end the engine's program after it has made the container and before it starts it."""
    servers = {"ends": containers.python("-c", "pass", port=8000), "one": echo(port=8000), "two": echo(network="none")}
    home = tmp_path / "home"
    async with kept.daemon(home, servers):
        await asyncio.sleep(delay)  # wherever that is in the start: there is nothing to wait for
    assert not kept.names(home)
