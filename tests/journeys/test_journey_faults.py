"""Servers that hang, crash and babble beside healthy ones: nobody else notices, and everybody is told why."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import HttpClient, echo, wait_for
from mooring.testing.daemon import Daemon, server, write_config
from mooring.testing.processes import alive, descendants
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
ERAS: tuple[Era, ...] = ("legacy", "modern")
PATIENCE = 3.0
"""Seconds that the first list may wait for servers it does not know yet."""

HEALTHY = {f"good{number}": server() for number in range(3)}
BROKEN = {
    "hanging": server("--hang", "initialize", "--hang", "server/discover"),
    "mute": server("--never-answer"),
    "stillborn": server("--crash-at-start"),
}
BABBLING = {"garbage": server("--garbage"), "binary": server("--non-utf8")}


def figure(line: str) -> None:
    """Something measured, for who runs this with -s."""
    sys.stderr.write(f"\n{line}\n")


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


def failure(result: dict[str, Any]) -> dict[str, Any]:
    """What a failed call says to programs."""
    assert result["isError"], result
    return result["_meta"]["mooring/error"]


async def busy(daemon: Daemon, name: str) -> bool:
    """Whether a call to this server is under way."""
    return any(row.leases for row in await daemon.rows(name))


def ended(descriptor: int) -> float:
    """Wait for the end of a process, given as a pidfd; when it came."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(10_000), "it still runs"
    now = time.perf_counter()
    os.close(descriptor)
    return now


async def took(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def median(client: HttpClient, servers: dict[str, Any], rounds: int = 15) -> float:
    """Seconds of a call to one of these servers, in the middle."""
    names = list(servers) * rounds
    return statistics.median([await took(client.call(f"{name}_echo", {"text": "hi"})) for name in names])


async def usable(client: HttpClient, tool: str, within: float = 20.0) -> dict[str, Any]:
    """The first good answer of a tool whose server failed before."""

    async def answered() -> dict[str, Any] | None:
        result = await client.call(tool)
        return None if result.get("isError") else result

    return await wait_for(answered, within, 0.02)


@pytest.mark.parametrize("era", ERAS)
async def test_broken_servers_delay_and_break_no_other(start: Start, era: Era) -> None:
    """R12, invariant 9: hanging, mute, crashing at start, crashing in calls, babbling; the others work as before."""
    alone = await start(HEALTHY)
    crashing = {"crashing": server("--crash-in-call")}
    mixed = await start({**BROKEN, **HEALTHY, **BABBLING, **crashing})
    async with await alone.client("w", era) as client:
        await client.open()
        await client.result("tools/list")
        usual = await median(client, HEALTHY)
    async with await mixed.client("w", era) as client:
        assert await took(client.open()) < PATIENCE, "a greeting waits for nobody"
        first = await took(client.result("tools/list"))
        assert first < 2 * PATIENCE, "all of them are waited for at the same time"
        assert await took(client.result("tools/list")) < PATIENCE, "only the first list is patient"
        listed = await client.result("tools/list")
        names = {tool["name"].partition("_")[0] for tool in listed["tools"]}
        assert names == {*HEALTHY, *BABBLING, "crashing"}
        assert {missing["server"] for missing in listed["_meta"]["mooring/missing"]} == set(BROKEN)

        crash = asyncio.create_task(client.call("crashing_echo"))
        now = await median(client, {**HEALTHY, **BABBLING})
        assert failure(await crash)["server"] == "crashing"
        figure(f"{era}: {usual * 1000:.2f} ms alone, {now * 1000:.2f} ms beside broken ones; first list {first:.2f} s")
        assert now < 5 * usual + 0.02, f"{now * 1000:.2f} ms instead of {usual * 1000:.2f} ms"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_to_a_server_that_never_came_up_says_why_and_when_it_is_tried_again(
    start: Start, era: Era
) -> None:
    """R12, A16: server, reason, last words and next try, for people and for programs."""
    daemon = await start({**BROKEN, "good": server()})
    async with await daemon.client("w", era) as client:
        await client.open()
        await client.result("tools/list")
        result = await client.call("stillborn_echo")
        facts = failure(result)
        assert facts["server"] == "stillborn"
        assert facts["kind"] in ("start_failed", "backing_off")
        assert facts["retry_at"] > time.time() - 1
        assert "stillborn" in text(result)
        assert "cannot start" in text(result), "its last words"
        assert re.search(r"next try in \d+ s|the next call tries again", text(result)), text(result)

        names = ("hanging", "mute")
        for name, result in zip(
            names, await asyncio.gather(*(client.call(f"{name}_echo") for name in names)), strict=True
        ):
            assert failure(result)["server"] == name
            assert name in text(result)
            assert "initialize" in text(result) or "discover" in text(result), "the step it hangs in"


async def test_a_server_that_hangs_at_start_is_given_up_with_the_step_named(start: Start) -> None:
    """R12: a start has its limit; the caller is told the step, and the next caller at once when it is tried again."""
    daemon = await start({"slow": server("--never-answer", timeouts={"initialize": "400ms"})})
    async with await daemon.client("w") as client:
        await client.open()
        await client.result("tools/list")

        async def given_up() -> bool:
            return [row.state for row in await daemon.rows("slow")] == ["backoff"]

        await wait_for(given_up, 10)
        result = await client.call("slow_echo")
        assert "slow did not answer initialize within 0.4 s" in text(result)
        assert "try" in text(result)


@pytest.mark.parametrize("era", ERAS)
async def test_a_crash_in_a_call_is_told_at_once_and_the_server_comes_back(start: Start, era: Era) -> None:
    """R13, A16: the error comes within milliseconds of the exit, others get it at once, and the server works again."""
    daemon = await start({"echo": server(), "other": server()})
    delays: list[float] = []
    async with await daemon.client("w", era) as client:
        await client.open()
        for _ in range(9):
            pid = int(text(await usable(client, "echo_pid")))
            exited = asyncio.create_task(asyncio.to_thread(ended, os.pidfd_open(pid)))
            waiting = asyncio.create_task(client.call("echo_sleep", {"seconds": 8.0}))
            await wait_for(partial(busy, daemon, "echo"))
            result = await client.call("echo_crash")
            answered = time.perf_counter()
            delays.append(answered - await exited)
            assert failure(result)["kind"] == "crashed"
            assert failure(result)["server"] == "echo"
            assert failure(result)["retry_at"] > 0
            assert "echo exited with code 1 before it answered tools/call" in text(result)
            assert "try" in text(result)
            assert failure(await waiting)["kind"] == "crashed", "whoever else waited is told, too"
            assert await took(client.call("other_echo")) < 5.0
            await daemon.mooring.restart("echo")
    middle = statistics.median(delays)
    figure(f"error after the exit: {middle * 1000:.2f} ms (median), {max(delays) * 1000:.2f} ms (longest)")
    assert middle < 0.1


async def test_a_server_that_backs_off_says_so_at_once_and_works_at_the_named_time(start: Start) -> None:
    """R12, R13, A16: no caller waits for a back-off; when it is over the next call starts the server."""
    daemon = await start({"echo": server()})
    async with await daemon.client("w") as client:
        await client.open()
        await usable(client, "echo_pid")
        assert failure(await client.call("echo_crash"))["kind"] == "crashed"
        result = await client.call("echo_pid")
        facts = failure(result)
        assert facts["kind"] == "backing_off"
        assert 0 < facts["retry_at"] - time.time() <= 1.0
        assert "exited with code 1" in text(result)
        assert "next try in 1 s" in text(result)
        await asyncio.sleep(facts["retry_at"] - time.time())
        assert not (await client.call("echo_pid")).get("isError")


@pytest.mark.slow
@pytest.mark.skipif("MOORING_CHAOS" not in os.environ, reason="takes a minute; set MOORING_CHAOS=1000 to run it")
async def test_the_first_crash_after_a_steady_minute_costs_no_wait(start: Start) -> None:
    """A16: an accident is not a habit: the very next call is served."""
    daemon = await start({"echo": server()})
    async with await daemon.client("w") as client:
        await client.open()
        await usable(client, "echo_pid")
        await asyncio.sleep(61)
        assert failure(await client.call("echo_crash"))["kind"] == "crashed"
        assert not (await client.call("echo_pid")).get("isError")


async def test_what_a_server_prints_beside_the_protocol_harms_neither_itself_nor_others(start: Start) -> None:
    """A15: text, broken JSON and bytes that are no UTF-8, before every answer."""
    daemon = await start({**BABBLING, "good": server()})
    async with await daemon.client("w") as client:
        await client.open()
        for name in ("garbage", "binary", "good"):
            results = await asyncio.gather(*(client.call(f"{name}_echo", {"n": n}) for n in range(20)))
            assert [result["structuredContent"] for result in results] == [{"n": n} for n in range(20)]
    assert any("Server is ready!" in line for line in await daemon.mooring.logs("garbage"))


async def test_five_waiters_and_a_failing_server_make_one_attempt_and_hear_one_reason(
    start: Start, tmp_path: Path
) -> None:
    """R11, R12: one start however many wait for it, and one reason for all of them."""
    attempts, broken = tmp_path / "attempts", tmp_path / "broken"
    attempts.touch()
    command, *args = echo("--era", "legacy")  # a probe that ends a server is followed by a second process
    script = f'test -e {broken} || exec "$0" "$@"; echo attempt >>{attempts}; sleep 0.3; echo "no luck" >&2; exit 3'
    daemon = await start({"moody": {"command": "sh", "args": ["-c", script, command, *args], "idle_timeout": "50ms"}})
    async with await daemon.client("w") as client:
        await client.open()
        await usable(client, "moody_pid")
        broken.touch()

        async def stopped() -> bool:
            return [row.state for row in await daemon.rows("moody")] == ["stopped"]

        await wait_for(stopped, 10)
        results = await asyncio.gather(*(client.call("moody_echo") for _ in range(5)))
        assert attempts.read_text().split() == ["attempt"]
        assert len({text(result) for result in results}) == 1
        assert {failure(result)["kind"] for result in results} == {"start_failed"}
        told = text(results[0])
        assert "moody" in told
        assert "exited with code 3" in told
        assert "no luck" in told
        assert re.search("next try in [1-9] s", told), told
        assert len({failure(result)["retry_at"] for result in results}) == 1

        facts = failure(await client.call("moody_echo"))
        assert facts["kind"] == "backing_off"
        assert time.time() < facts["retry_at"], "no caller waits for it"
        broken.unlink()
        await usable(client, "moody_echo")


async def test_ten_first_calls_at_once_make_one_start(start: Start) -> None:
    """R11: and all ten are answered."""
    daemon = await start({"echo": server("--start-delay", "0.3")})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await daemon.client("w", ERAS[n % 2])) for n in range(10)]
        await asyncio.gather(*(client.open() for client in clients))
        results = await asyncio.gather(*(client.call("echo_pid") for client in clients))
    assert len({text(result) for result in results}) == 1
    (row,) = await daemon.rows("echo")
    assert (row.state, row.restarts) == ("ready", 0)


async def test_idling_never_cuts_a_call(start: Start) -> None:
    """R14: a server that is forever about to idle is stopped again and again, and no call is lost to it."""
    daemon = await start({"echo": server(idle_timeout="20ms"), "twin": server("--era", "legacy", idle_timeout="30ms")})
    ends = time.monotonic() + 4.0
    seen: set[str] = set()

    async def caller(number: int) -> int:
        count = 0
        async with await daemon.client("w", ERAS[number % 2]) as client:
            await client.open()
            while time.monotonic() < ends:
                tool = ("echo_pid", "twin_pid")[(number + count) % 2]
                result = await client.call(tool)
                assert not result.get("isError"), result
                seen.add(text(result))
                count += 1
                await asyncio.sleep(0.005 * ((number * 7 + count * 13) % 14))  # around the idle time, both sides
            result = await client.call("echo_sleep", {"seconds": 0.2})
            assert not result.get("isError"), result
        return count

    counts = await asyncio.gather(*(caller(number) for number in range(2)))
    figure(f"{sum(counts)} calls, {len(seen)} processes")
    assert len(seen) > 3, "it did idle in between"

    async def all_gone() -> bool:
        return not any(alive(int(pid)) for pid in seen)

    await wait_for(all_gone, 10)


async def test_many_slow_servers_start_side_by_side(start: Start) -> None:
    """R11, A11: twenty servers that take half a second each are ready in little more than that: a second or two on an
    idle machine, ten seconds one after the other."""
    daemon = await start({f"slow{number}": server("--start-delay", "0.5") for number in range(20)})
    began = time.perf_counter()
    async with await daemon.client("w") as client:
        await client.open()
        results = await asyncio.gather(*(client.call(f"slow{number}_pid") for number in range(20)))
        seconds = time.perf_counter() - began
    figure(f"20 servers ready and called {seconds:.2f} s after the endpoint was there")
    assert len({text(result) for result in results}) == 20
    assert seconds < 8.0


async def test_a_storm_of_reloads_leaves_what_did_not_change_alone(start: Start, tmp_path: Path) -> None:
    """R8: unchanged instances keep their pid and every call; the last configuration holds."""
    steady = {"steady": server(), "calm": server("--era", "legacy")}
    daemon = await start(steady)
    file = daemon.home / "mooring.toml"
    async with asyncio.timeout(20):  # on a busy machine a first look may take longer than a call waits for it
        while not {row.name for row in await daemon.mooring.tool_rows("w")} >= {"steady_pid", "calm_pid"}:
            await asyncio.sleep(0.05)
    stop = asyncio.Event()
    pids: dict[str, set[str]] = {name: set() for name in steady}

    async def caller(number: int) -> int:
        count = 0
        async with await daemon.client("w", ERAS[number % 2]) as client:
            await client.open()
            while not stop.is_set():
                name = tuple(steady)[count % 2]
                result = await client.call(f"{name}_pid")
                assert not result.get("isError"), result
                pids[name].add(text(result))
                count += 1
        return count

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(caller(number)) for number in range(4)]
        for number in range(30):
            extra = {f"extra{n}": server("--name", f"{number}") for n in range(number % 3)}
            write_config(file, {**extra, **steady})
            if number % 5 == 0:
                assert (await daemon.mooring.reload()).applied
            await asyncio.sleep(0.05)
        write_config(file, {**steady, "last": server()})

        async def settled() -> bool:
            return {row.server for row in await daemon.mooring.ps()} == {*steady, "last"}

        await wait_for(settled, 20)
        stop.set()
    figure(f"{sum(task.result() for task in callers)} calls during 31 configurations")
    assert all(len(found) == 1 for found in pids.values()), pids


async def test_calls_to_a_server_whose_definition_changes_all_the_time_are_all_served(start: Start) -> None:
    """R8: the new instance starts, the old one drains: each call is answered by one or the other."""
    daemon = await start({"moving": server("--name", "0")})
    stop = asyncio.Event()
    seen: set[str] = set()

    async def caller(number: int) -> int:
        count = 0
        async with await daemon.client("w", ERAS[number % 2]) as client:
            await client.open()
            while not stop.is_set():
                result = await client.call("moving_sleep", {"seconds": 0.05, "steps": 1})
                assert not result.get("isError"), result
                result = await client.call("moving_pid")
                assert not result.get("isError"), result
                seen.add(text(result))
                count += 2
        return count

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(caller(number)) for number in range(3)]
        for number in range(1, 11):
            write_config(daemon.home / "mooring.toml", {"moving": server("--name", f"{number}")})
            known = len(seen)
            assert (await daemon.mooring.reload()).applied
            if number % 2:  # else two definitions follow each other at once
                await wait_for(lambda known=known: len(seen) > known, 20)
        stop.set()
    figure(f"{sum(task.result() for task in callers)} calls to {len(seen)} definitions")
    await wait_for(lambda: sum(alive(int(pid)) for pid in seen) <= 1, 10)


async def test_a_call_that_never_ends_is_ended_and_the_server_goes_on(start: Start) -> None:
    """A15: the caller is told the limit; the server, which still answers, is kept."""
    daemon = await start({"dull": server("--hang", "tools/call", timeouts={"call": "300ms"}), "good": server()})
    async with await daemon.client("w") as client:
        await client.open()
        began = time.perf_counter()
        result, other = await asyncio.gather(client.call("dull_echo"), client.call("good_echo"))
        assert time.perf_counter() - began < 5.0
        assert failure(result)["kind"] == "timed_out"
        assert "dull was silent for 0.3 s in tools/call" in text(result)
        assert not other.get("isError")
        (row,) = await daemon.rows("dull")
        assert row.state == "ready"


async def test_a_frozen_server_is_found_out_and_replaced(start: Start) -> None:
    """A16: a call times out, so does a ping; the next call gets another process."""
    daemon = await start({"echo": server(timeouts={"call": "300ms", "close": "400ms"})})
    async with await daemon.client("w", timeout=20.0) as client:
        await client.open()
        pid = int(text(await usable(client, "echo_pid")))
        os.kill(pid, signal.SIGSTOP)
        assert failure(await client.call("echo_pid"))["kind"] == "timed_out"
        assert int(text(await usable(client, "echo_pid"))) != pid
    await wait_for(lambda: not alive(pid), 10)


async def test_a_flood_on_stderr_blocks_nothing(start: Start) -> None:
    """R15, A14: five megabytes before the first answer; the tail is kept, the rest is not."""
    daemon = await start({"loud": server("--stderr-noise", "5000000")})
    async with await daemon.client("w") as client:
        await client.open()
        await usable(client, "loud_pid")
    (row,) = await daemon.rows("loud")
    assert "noise" in row.stderr
    assert len(row.stderr) < 100_000


async def test_an_invalid_configuration_changes_nothing_and_is_told_everywhere(start: Start) -> None:
    """R4: exit code 2 with the line, /healthz and status name it, calls go on; a good file clears it."""
    daemon = await start({"echo": server()})
    file = daemon.home / "mooring.toml"
    good = file.read_text()
    async with await daemon.client("w") as client:
        await client.open()
        pid = text(await usable(client, "echo_pid"))
        file.write_text(good + "\n[nonsense]\nx = 1\n")
        code, _, complaint = await daemon.command("reload")
        assert code == 2
        assert "mooring.toml" in complaint
        assert "nonsense" in complaint

        async def health() -> str | None:
            async with client.exchange("GET", b"", {}) as reply:  # any path but /mcp
                return (await reply.body()).decode()

        url, client.url = client.url, client.url.removesuffix("/mcp") + "/healthz"
        assert "nonsense" in str(await health())
        assert "nonsense" in (await daemon.mooring.status()).config_error
        client.url = url
        assert text(await client.call("echo_pid")) == pid

        file.write_text(good)
        code, _, _ = await daemon.command("reload")
        assert code == 0
        assert not (await daemon.mooring.status()).config_error
        assert text(await client.call("echo_pid")) == pid


async def test_failed_starts_leave_no_process_behind(start: Start) -> None:
    """R13, R15: neither the server that crashed nor its grandchildren."""
    flags = ("--crash-at-start", "--spawn-grandchild", "--ignore-term")
    daemon = await start({"bad": server(*flags, timeouts={"close": "400ms"}), "good": server()})
    async with await daemon.client("w") as client:
        await client.open()
        await usable(client, "good_pid")
        assert failure(await client.call("bad_echo"))["server"] == "bad"

    def tidy() -> bool:
        return len(descendants(daemon.process.pid)) == 2  # the keeper and the good one

    await wait_for(tidy, 10)
