"""The keeper and the daemon's hold on it, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mooring.launch import keeper
from mooring.launch.family import descendants, process_table
from mooring.launch.keeper import pack, run_to_end, unpack
from mooring.launch.kept import Keeper
from mooring.launch.start import start_keeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


# -- starting ---------------------------------------------------------------------------------------------------------


async def test_a_process_talks_through_its_three_pipes(bench) -> None:
    kept = await bench.spawn("/bin/sh", "-c", "read word; echo out $word; echo err $word >&2; exit 7")
    os.write(kept.stdin_fd, b"hello\n")
    assert await bench.line(kept.stdout_fd) == "out hello"
    assert await bench.line(kept.stderr_fd) == "err hello"
    assert await asyncio.wait_for(kept.exited, 5) == 7


async def test_the_daemons_pipe_ends_never_block_and_are_closed_on_exec(bench) -> None:
    kept = await bench.spawn("/bin/cat")
    for fd in (kept.stdin_fd, kept.stdout_fd, kept.stderr_fd):
        assert not os.get_blocking(fd)
        assert not os.get_inheritable(fd)


async def test_the_child_has_exactly_the_given_environment_and_folder(bench, tmp_path: Path, monkeypatch) -> None:
    """R22 A7: nothing of the daemon's environment is there."""
    monkeypatch.setenv("DAEMON_SECRET", "x")
    code = "import os, json; print(json.dumps([dict(os.environ), os.getcwd()]))"
    kept = await bench.spawn(*bench.python(code), env={"ONE": "ä", "LC_ALL": "C.UTF-8"}, cwd=str(tmp_path))
    environment, folder = json.loads(await bench.line(kept.stdout_fd))
    assert environment == {"ONE": "ä", "LC_ALL": "C.UTF-8"}
    assert folder == str(tmp_path)


async def test_the_child_may_have_an_empty_environment(bench) -> None:
    """A7"""
    kept = await bench.spawn("/usr/bin/env")
    assert await asyncio.wait_for(kept.exited, 5) == 0
    assert os.read(kept.stdout_fd, 1000) == b""


async def test_the_child_has_no_descriptor_but_its_three(bench) -> None:
    """A13: neither other servers' pipes nor the daemon's or the keeper's own."""
    await bench.spawn("/bin/cat")
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    try:
        async with Keeper() as second:
            kept = await second.spawn(bench.python("import os; print(sorted(os.listdir('/proc/self/fd')))"), {}, "/")
            listed = await bench.line(kept.stdout_fd)
            for fd in (kept.stdin_fd, kept.stdout_fd, kept.stderr_fd):
                os.close(fd)
    finally:
        os.close(leaky)
    assert listed == "['0', '1', '2', '3']"  # 3 is the listing itself


async def test_the_child_leads_its_own_session_with_default_signals(bench) -> None:
    kept = await bench.spawn("/bin/sh", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status")
    internal = 1 << 31 | 1 << 32  # two signals that the C library keeps to itself
    for _ in range(2):
        assert int((await bench.line(kept.stdout_fd)).split()[1], 16) & ~internal == 0
    kept = await bench.spawn(*bench.python("import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())"))
    assert await bench.line(kept.stdout_fd) == "True"


@pytest.mark.parametrize(
    ("argv", "cwd", "names"),
    [(["/no/such/program"], "/", "/no/such/program"), (["/bin/cat"], "/no/such/folder", "/no/such/folder")],
)
async def test_what_cannot_be_started_is_named(bench, argv: list[str], cwd: str, names: str) -> None:
    """R12"""
    with pytest.raises(FileNotFoundError) as caught:
        await bench.keeper.spawn(argv, {}, cwd)
    assert caught.value.filename == names


async def test_a_file_that_is_no_program_is_an_error_not_a_crash(bench, tmp_path: Path) -> None:
    """R12"""
    program = tmp_path / "text"
    program.write_text("no interpreter line")
    program.chmod(0o755)
    with pytest.raises(OSError, match="Exec format"):
        await bench.keeper.spawn([str(program)], {}, "/")
    assert (await bench.spawn("/bin/cat")).pid


@pytest.mark.parametrize(
    ("argv", "env"), [(["/bin/cat", "a\0b"], {}), (["/bin/cat"], {"A=B": ""}), (["/bin/cat"], {"": ""})]
)
async def test_text_that_no_process_can_be_given_is_refused_before_it_is_sent(bench, argv, env) -> None:
    with pytest.raises(ValueError, match=r"NUL|variable"):
        await bench.keeper.spawn(argv, env, "/")


async def test_large_environments_pass_and_too_large_ones_are_an_error(bench) -> None:
    value = "x" * 100_000
    kept = await bench.spawn("/bin/sh", "-c", "echo ${#V11}", env={f"V{n}": value for n in range(12)})
    assert await bench.line(kept.stdout_fd) == "100000"
    with pytest.raises(OSError, match="too long"):
        await bench.keeper.spawn(["/bin/cat"], {"V": "x" * 3_000_000}, "/")


async def test_many_spawns_at_once_each_get_their_own_pipes(bench) -> None:
    """R11"""
    kept = await asyncio.gather(*(bench.spawn("/bin/sh", "-c", f"echo {n}") for n in range(50)))
    assert [await bench.line(one.stdout_fd) for one in kept] == [str(n) for n in range(50)]


async def test_a_spawn_that_nobody_waits_for_any_more_is_undone(bench, open_descriptors) -> None:
    before = open_descriptors()
    spawning = asyncio.create_task(bench.keeper.spawn(["/bin/sleep", "1000"], {}, "/"))
    await asyncio.sleep(0)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    await bench.spawn("/bin/cat")  # the keeper has answered everything before by now
    deadline = time.monotonic() + 5
    while len(psutil.Process(bench.keeper.pid).children()) > 1:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    bench.close_all()
    assert open_descriptors() == before


# -- signals and ends -------------------------------------------------------------------------------------------------


async def test_a_signal_reaches_the_whole_group_and_the_code_is_negative(bench) -> None:
    kept = await bench.spawn("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
    child = int(await bench.line(kept.stdout_fd))
    kept.signal(signal.SIGKILL)
    assert await asyncio.wait_for(kept.exited, 5) == -signal.SIGKILL
    await bench.gone(child)
    kept.signal(signal.SIGKILL)  # nobody is hit


async def test_end_kills_what_does_not_go_by_itself_after_the_grace(bench) -> None:
    """A13 R15"""
    kept = await bench.spawn(*bench.python(bench.stubborn))
    await bench.line(kept.stdout_fd)
    began = time.monotonic()
    await kept.end(0.3)
    assert 0.3 <= time.monotonic() - began < 3
    assert kept.exited.result() == -signal.SIGKILL
    assert not bench.alive(kept.pid)
    await kept.end(0.3)  # again: nothing to do


async def test_end_lets_a_willing_process_finish(bench) -> None:
    kept = await bench.spawn("/bin/sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    await bench.line(kept.stdout_fd)
    await kept.end(10)
    assert kept.exited.result() == 5


async def test_end_reaches_helpers_that_left_group_session_and_tree(bench) -> None:
    """R15 A12: a double fork with setsid, an ignored SIGTERM and an empty environment does not escape."""
    kept = await bench.spawn(*bench.python(bench.straying + "time.sleep(1000)"))
    stray = int(await bench.line(kept.stdout_fd))
    assert psutil.Process(stray).ppid() == bench.keeper.pid
    await kept.end(0.05)
    assert not bench.alive(stray)
    assert not bench.alive(kept.pid)


async def test_helpers_of_a_process_that_has_ended_die_with_its_end_and_others_do_not(bench) -> None:
    """R15: the leader crashed long ago; the other server's stray stays."""
    ended, other = [await bench.spawn(*bench.python(bench.straying)) for _ in range(2)]
    mine, foreign = int(await bench.line(ended.stdout_fd)), int(await bench.line(other.stdout_fd))
    assert await asyncio.wait_for(ended.exited, 5) == 0
    await ended.end(0)
    assert not bench.alive(mine)
    assert bench.alive(foreign)


@pytest.mark.parametrize("ends", ["told", "with its keeper"])
async def test_a_helper_that_became_another_user_ends_with_its_server(bench, ends: str) -> None:
    """R15 A12: as the first process of a container that an engine's program had made and not started yet when it was
    killed. Root may read the mark of another user's process only with CAP_SYS_RESOURCE, which it may not have."""
    if os.getuid() != 0:
        pytest.skip("cannot become another user: run the tests as root")
    other = "import os, signal, time\nif os.fork():\n    os._exit(0)\nos.setgid(65534); os.setuid(65534)\n"
    kept = await bench.spawn(*bench.python(other + bench.stubborn))
    helper = int(await bench.line(kept.stdout_fd))
    assert await asyncio.wait_for(kept.exited, 5) == 0
    assert bench.alive(helper)
    if ends == "told":
        await kept.end(0, ask=False)
    else:
        os.kill(bench.keeper.pid, signal.SIGKILL)
        await bench.spawn("/bin/cat")  # waits until the daemon has cleared up
    assert not bench.alive(helper)


async def test_no_zombie_is_left_of_orphans(bench) -> None:
    """A13"""
    kept = await bench.spawn("/bin/sh", "-c", "for n in 1 2 3 4 5; do (setsid sh -c 'exit 3' &); done; echo done")
    await bench.line(kept.stdout_fd)
    await kept.end(1)
    deadline = time.monotonic() + 5
    while psutil.Process(bench.keeper.pid).children():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def test_fifty_stubborn_processes_end_within_three_seconds(bench) -> None:
    """A13: all at once, not one after the other."""
    kept = await asyncio.gather(*(bench.spawn(*bench.python(bench.stubborn)) for _ in range(50)))
    for one in kept:
        await bench.line(one.stdout_fd, within=30)
    began = time.monotonic()
    await asyncio.gather(*(one.end(0.5) for one in kept))
    assert time.monotonic() - began < 3
    assert not any(bench.alive(one.pid) for one in kept)


# -- the keeper's and the daemon's own ends ----------------------------------------------------------------------------


async def test_the_keeper_survives_what_a_terminal_sends(bench) -> None:
    assert os.getsid(bench.keeper.pid) == bench.keeper.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(bench.keeper.pid, number)
    kept = await bench.spawn("/bin/sh", "-c", "echo here")
    assert await bench.line(kept.stdout_fd) == "here"


async def test_leaving_the_keeper_leaves_nothing_alive(bench, open_descriptors) -> None:
    """R15 A13"""
    before = open_descriptors()
    async with Keeper(start_keeper()) as keeper:
        pid = keeper.pid
        kept = [await keeper.spawn(bench.python(code), {}, "/") for code in (bench.stubborn, bench.straying)]
        others = [int(await bench.line(one.stdout_fd)) for one in kept]
        for one in kept:
            for fd in (one.stdin_fd, one.stdout_fd, one.stderr_fd):
                os.close(fd)
    assert not any(bench.alive(one) for one in (pid, *others, *(one.pid for one in kept)))
    assert all(one.exited.done() for one in kept)
    assert open_descriptors() == before


async def test_servers_of_a_killed_keeper_die_and_the_next_start_works(bench) -> None:
    """A12: the daemon inherits them, ends them, says so, and brings a new keeper."""
    first = bench.keeper.pid
    kept = [await bench.spawn(*bench.python(code)) for code in (bench.stubborn, bench.straying + "time.sleep(1000)")]
    pids = [int(await bench.line(one.stdout_fd)) for one in kept] + [one.pid for one in kept]
    os.kill(first, signal.SIGKILL)
    after = await bench.spawn("/bin/sh", "-c", "echo again")  # at once: it waits
    assert await bench.line(after.stdout_fd) == "again"
    assert bench.keeper.pid != first
    assert [await asyncio.wait_for(one.exited, 5) for one in kept] == [None, None], "not their fault"
    assert not any(bench.alive(pid) for pid in (first, *pids))
    assert not [pid for pid in (first, *pids) if psutil.pid_exists(pid)], "a zombie is left"
    for one in kept:
        await one.end(5)  # nothing to do, no wait


async def test_a_killed_keeper_does_not_cost_the_host_its_own_children(bench) -> None:
    """As a library, Mooring lives in a process that has children of its own."""
    own = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        kept = await bench.spawn("/bin/cat")
        os.kill(bench.keeper.pid, signal.SIGKILL)
        await asyncio.wait_for(kept.exited, 5)
        await bench.spawn("/bin/cat")
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


async def test_a_start_that_meets_the_end_brings_no_other_keeper(bench, open_descriptors) -> None:
    """Nobody would end that one, and what it started."""
    before = open_descriptors()
    children = psutil.Process().children()
    async with Keeper() as keeper:
        os.kill(keeper.pid, signal.SIGSTOP)
        starting = asyncio.create_task(keeper.spawn(["/bin/sleep", "1000"], {}, "/"))
        await asyncio.sleep(0)
        os.kill(keeper.pid, signal.SIGKILL)
    for late in (starting, keeper.spawn(["/bin/sleep", "1000"], {}, "/")):
        with pytest.raises(ConnectionResetError):
            await late
    assert psutil.Process().children() == children
    assert open_descriptors() == before


async def test_a_start_that_finds_no_descriptor_free_leaves_none_open(bench, open_descriptors) -> None:
    """At any of its steps; two descriptors go with it."""
    await bench.spawn("/bin/true")  # the first one loads what it needs
    given = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    before = open_descriptors()
    free = [os.dup(given[0]) for _ in range(8)]
    for fd in free:
        os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for fd in free:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fd, hard))
            with pytest.raises(OSError, match="Too many open files"):
                await bench.keeper.spawn(["/bin/true"], {}, "/", given)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_descriptors() == before
    for fd in given:
        os.close(fd)


async def test_a_hundred_rounds_leak_no_descriptor_and_no_process(bench, open_descriptors) -> None:
    """A13"""

    async def round_trip() -> None:
        kept = await bench.spawn("/bin/cat")
        bench.close_all()
        assert await asyncio.wait_for(kept.exited, 5) == 0
        await kept.end(1)

    await round_trip()  # an answer shows that the keeper is up and has opened what it keeps open
    before = open_descriptors()
    theirs = psutil.Process(bench.keeper.pid).num_fds()
    for _ in range(100):
        await round_trip()
    assert open_descriptors() == before
    assert psutil.Process(bench.keeper.pid).num_fds() == theirs
    assert not psutil.Process(bench.keeper.pid).children()


DAEMON = """
import asyncio, json, os, sys, time
from mooring.launch.start import start_keeper
started = start_keeper()
from mooring.launch.kept import Keeper

async def main():
    codes = json.load(sys.stdin)
    async with Keeper(started) as keeper:
        pids = [keeper.pid]
        for code in codes:
            kept = await keeper.spawn(["/usr/bin/env", "-i", PYTHON, "-I", "-S", "-c", code], {}, "/")
            os.set_blocking(kept.stdout_fd, True)
            pids += [kept.pid, int(os.read(kept.stdout_fd, 100))]
        print(json.dumps([os.getuid(), pids]), flush=True)
        await asyncio.sleep(1000)

try:
    import uvloop
    run = uvloop.run
except ImportError:
    run = asyncio.run
run(main())
"""


def plain_user_python() -> str | None:
    """An interpreter that the user "nobody" may run."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        probe = [*AS_NOBODY, "/bin/sh", "-c", f"{candidate} -c 'import sys; sys.exit(sys.version_info < (3, 11))'"]
        if (
            os.path.exists("/usr/bin/setpriv")
            and subprocess.run(probe, capture_output=True, check=False).returncode == 0
        ):
            return candidate
    return None


AS_NOBODY = ["/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.mark.parametrize("user", ["own", "nobody"])
async def test_nothing_is_alive_two_seconds_after_the_daemon_was_killed(bench, source: Path, user: str) -> None:
    """A12 R15: kill -9, with servers that ignore SIGTERM, leave their session and have an empty environment."""
    interpreter, prefix = sys.executable, []
    if user == "nobody":
        interpreter, prefix = (plain_user_python() if os.getuid() == 0 else None), AS_NOBODY
        if interpreter is None:
            pytest.skip("cannot become another user, or that one has no interpreter")
    program = f"PYTHON = {interpreter!r}\n{DAEMON}"
    daemon = subprocess.Popen(
        [*prefix, interpreter, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(source)},
        cwd="/",
    )
    assert daemon.stdin
    assert daemon.stdout
    with daemon.stdin, daemon.stdout:
        daemon.stdin.write(json.dumps([bench.stubborn, bench.straying, bench.straying + "time.sleep(1000)"]).encode())
        daemon.stdin.close()
        uid, pids = json.loads(await asyncio.to_thread(daemon.stdout.readline))
        assert uid == (os.getuid() if user == "own" else 65534)
        tree = descendants(daemon.pid, process_table())
        assert set(pids) - {pids[3]} <= set(tree)  # the second server itself has ended, its stray has not
        daemon.kill()
        daemon.wait()
        await bench.gone(*tree, *pids, within=2)


async def test_a_keeper_whose_daemon_dies_before_the_first_word_ends(bench) -> None:
    """A12"""
    pid, fd = start_keeper()
    os.close(fd)
    deadline = time.monotonic() + 5
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def test_a_keeper_that_hangs_is_replaced_and_its_servers_end(bench, monkeypatch) -> None:
    """A13: every wait is bounded, also the one for the keeper."""
    monkeypatch.setattr("mooring.launch.kept.LAST_WORD", 0.2)
    kept = await bench.spawn("/bin/sleep", "1000")
    os.kill(bench.keeper.pid, signal.SIGSTOP)
    await asyncio.wait_for(kept.end(0.1), 5)
    assert not bench.alive(kept.pid)
    assert (await bench.spawn("/bin/cat")).pid


# -- frames -----------------------------------------------------------------------------------------------------------


def test_a_command_that_prints_nothing_and_lives_on_is_killed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper's last commands must not keep it: not even one that has closed its output."""
    monkeypatch.setattr(keeper, "FAREWELL", 0.5)
    begun = time.monotonic()
    assert run_to_end((b"/bin/sh", b"-c", b"exec >&-; exec sleep 60"), {}) is None
    assert time.monotonic() - begun < 5
    assert run_to_end((b"/bin/echo", b"said"), {}) == b"said\n"


def test_frames_survive_any_cut() -> None:
    messages = [("spawn", 1, (b"a", b"b"), {b"A": b"x" * 1000}, b"/"), ("signal", 2, 15), ("end", 3, 0.5)]
    stream = b"".join(map(pack, messages))
    for size in (1, 2, 3, 7, 500, len(stream)):
        buffer, taken = bytearray(), []
        for start in range(0, len(stream), size):
            buffer += stream[start : start + size]
            taken += unpack(buffer)
        assert taken == messages
        assert not buffer


def test_the_family_of_a_group_holds_its_members_and_their_descendants() -> None:
    from mooring.launch.family import _family

    table = {1: (0, 1), 10: (1, 10), 11: (10, 10), 12: (11, 12), 20: (1, 20), 13: (1, 10), 2: (0, 0)}
    assert sorted(_family(10, table)) == [10, 11, 12, 13]
    assert _family(0, table) == []
    assert sorted(descendants(1, table)) == [10, 11, 12, 13, 20]


def test_starting_a_keeper_imports_next_to_nothing(source: Path) -> None:
    """So that the daemon can do it first, and the keeper itself starts in milliseconds."""
    code = "import mooring.launch.start, sys; print(*sys.modules)"
    environment = {"PYTHONPATH": str(source)}
    loaded = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, check=True)
    assert not {"asyncio", "socket", "enum", "json", "msgspec", "ctypes"} & set(loaded.stdout.decode().split())


# -- containers -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a PID namespace of its own here")
async def test_what_runs_in_a_container_below_a_process_is_seen_until_it_ends(bench) -> None:
    """R15: told from what is not in a container, and from what is left behind it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed (as root on Debian: apt-get install util-linux)")
    script = f"{unshare} --pid --fork --kill-child /bin/sh -c 'echo in; read word'; echo out; read word"
    plain, container = await bench.spawn("/bin/cat"), await bench.spawn("/bin/sh", "-c", script)
    assert await bench.line(container.stdout_fd) == "in"
    assert bench.keeper.containing() == {container.pid}
    os.write(container.stdin_fd, b"go\n")
    assert await bench.line(container.stdout_fd) == "out"
    assert bench.keeper.containing() == set()
    assert not plain.exited.done()
    assert not container.exited.done()
