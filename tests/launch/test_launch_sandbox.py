"""Processes in a sandbox, with real ones: what they can see, write, reach and leave behind. The last test runs all the
others as a plain user, where the suite itself runs as root."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Sandbox, SecretRef, Timeouts
from mooring.errors import LaunchMissing, StartFailed
from mooring.launch import sandbox as sandboxes
from mooring.launch.base import Pipes, Url
from mooring.launch.process import ProcessLauncher
from mooring.testing import echo
from small_web import web

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap"),
]

NOBODY = {"user": 65534, "group": 65534, "extra_groups": ()}
SOURCE = str(Path(__file__).parents[2] / "src")
INTERPRETER = tuple(dict.fromkeys((sys.prefix, sys.base_prefix, SOURCE, *sys.path[-1:])))
"""Where the Python of these tests is."""


class Reports:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, str]]] = []

    def __call__(self, name: str, variant: Variant, data: dict[str, str]) -> None:
        self.told.append((name, data))


@pytest.fixture
def reports() -> Reports:
    return Reports()


def variant(argv: tuple[str, ...], close: float = 5.0, **more: object) -> Variant:
    members = {name: more.pop(name) for name in ("env", "cwd", "port", "secrets") if name in more}
    readable = (*INTERPRETER, *more.pop("readable", ()))
    launch = Process(argv, sandbox=Sandbox(readable=readable, **more), **members)
    return Variant("it", "it", "{}", "d" * 8, launch, timeouts=Timeouts(close=close))


@asynccontextmanager
async def launched(bench, what: Variant, report=None, **secrets: str) -> AsyncIterator:
    launcher = ProcessLauncher(bench.keeper, report) if report else ProcessLauncher(bench.keeper)
    async with launcher.launch(what, what.key(), secrets) as it:
        mine = [it.endpoint.reader, it.endpoint.writer] if isinstance(it.endpoint, Pipes) else []
        bench.mine += mine
        try:
            yield it
        finally:
            for fd in mine:
                bench.close(fd)


async def said(bench, code: str, report=None, **more: object) -> dict[str, object]:
    """The JSON that a small program prints inside."""
    async with launched(bench, variant((sys.executable, "-I", "-S", "-c", code), **more), report) as it:
        try:
            return json.loads(await bench.line(it.endpoint.reader))
        except AssertionError as error:
            raise AssertionError(f"{error}: {it.stderr.text()}") from None


FILES = """
import json, os, sys
def tried(work):
    try: work(); return "ok"
    except OSError as error: return os.strerror(error.errno)
written = {path: tried(lambda: open(path, "w").close()) for path in json.loads(%r)}
listed = {path: sorted(os.listdir(path)) if os.path.isdir(path) else None for path in json.loads(%r)}
print(json.dumps([written, listed]))
"""


async def test_only_declared_paths_are_seen_and_only_some_written(bench, tmp_path: Path, monkeypatch) -> None:
    home = tmp_path / "home"
    for name in ("data", "notes", "secret"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(name)
    monkeypatch.setenv("HOME", str(home))
    writes = [f"{home}/data/new", f"{home}/notes/new", f"{home}/scratch", "/tmp/x", "/etc/x", "/usr/x", "/x", "/opt/x"]
    reads = [str(home), f"{home}/data", f"{home}/notes", "/tmp", "/etc/ssh", "/root", "/run", "/var", "/home"]
    written, listed = await said(
        bench,
        FILES % (json.dumps(writes), json.dumps(reads)),
        writable=(f"{home}/data",),
        readable=(f"{home}/notes",),
    )
    denied = "Read-only file system"
    assert [written[path] for path in writes[:4]] == ["ok", denied, "ok", "ok"]
    assert set(list(written.values())[4:]) <= {denied, "No such file or directory", "Permission denied"}
    assert listed[str(home)] == ["data", "notes", "scratch"]
    assert listed[f"{home}/data"] == ["file", "new"]
    assert listed[f"{home}/notes"] == ["file"]
    assert all(listed[path] in (None, []) for path in ("/etc/ssh", "/run", "/var"))
    assert (home / "data" / "new").exists()
    assert not (home / "scratch").exists()


async def test_the_narrower_declaration_counts(bench, tmp_path: Path) -> None:
    (tmp_path / "data" / "fixed").mkdir(parents=True)
    writes = [f"{tmp_path}/data/a", f"{tmp_path}/data/fixed/a"]
    written, _ = await said(
        bench,
        FILES % (json.dumps(writes), "[]"),
        writable=(f"{tmp_path}/data",),
        readable=(f"{tmp_path}/data/fixed",),
    )
    assert list(written.values()) == ["ok", "Read-only file system"]


async def test_other_processes_are_not_seen_nor_reached(bench) -> None:
    code = "import json, os; print(json.dumps([[int(p) for p in os.listdir('/proc') if p.isdigit()], os.getppid()]))"
    pids, parent = await said(bench, code)
    assert len(pids) <= 3
    assert parent == 1


async def test_it_has_no_privileges_and_gets_none(bench) -> None:
    """Not even as root: no capability, and no user namespace to get any in."""
    code = """
import ctypes, json, os
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
libc = ctypes.CDLL(None)
unshared = [libc.unshare(kind) for kind in (0x10000000, 0x40000000)]
print(json.dumps([status["CapEff"], status["CapBnd"], status["NoNewPrivs"], *unshared]))
"""
    effective, bounding, sealed, user, net = await said(bench, code)
    assert (int(effective, 16), int(bounding, 16), sealed) == (0, 0, "1")
    assert (user, net) == (-1, -1)


async def test_environment_secrets_and_folder_are_as_without_a_sandbox(bench, tmp_path: Path, monkeypatch) -> None:
    """R22"""
    monkeypatch.setenv("DAEMON_SECRET", "x")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.access('.', os.W_OK)]))"
    what = variant(
        (sys.executable, "-c", code), env={"MODE": "dark"}, secrets={"TOKEN": SecretRef("env", "T")}, cwd=str(tmp_path)
    )
    async with launched(bench, what, TOKEN="t") as it:
        environment, cwd, writable = json.loads(await bench.line(it.endpoint.reader))
    assert environment.items() >= {"MODE": "dark", "TOKEN": "t", "TMPDIR": "/tmp"}.items()
    assert "DAEMON_SECRET" not in environment
    assert (cwd, writable) == (str(tmp_path), False)
    _, cwd, writable = await said(bench, code.replace("dict(os.environ)", "0"))
    assert (cwd, writable) == (os.environ["HOME"], True)


REACHES = """
import json, os, socket, urllib.request
def tried(work):
    try: return work()
    except OSError as error: return getattr(error, "code", None) or str(error)
peers = json.loads(%r)
def get(peer): return urllib.request.urlopen(f"http://{peer}/", timeout=20).read().decode()
def direct(peer):
    host, _, port = peer.rpartition(":")
    socket.create_connection((host, int(port)), 5).close(); return "open"
direct_ones = {peer: tried(lambda: direct(peer)) for peer in peers}
print(json.dumps([{peer: tried(lambda: get(peer)) for peer in peers}, direct_ones, os.environ.get("HTTP_PROXY", "")]))
"""


async def test_a_list_is_all_that_it_reaches(bench, reports: Reports) -> None:
    """Through the proxy in its environment, from its first instruction on; what it may not is told once."""
    async with web() as allowed, web() as other:
        peers = [allowed, other, "localhost:1"]
        fetched, direct, proxy = await said(bench, REACHES % json.dumps(peers), reports, network=(allowed,))
    assert proxy == "http://127.0.0.1:3128"
    assert fetched[allowed] == "hi"
    assert fetched[other] == 403
    assert all("refused" in direct[peer] or "unreachable" in direct[peer] for peer in peers)
    (event,) = reports.told
    assert event == ("egress.denied", {"peer": other, "reason": event[1]["reason"]})


async def test_none_reaches_nothing(bench) -> None:
    async with web() as other:
        _, direct, proxy = await said(bench, REACHES % json.dumps([other, "example.org:80"]), network="none", env={})
    assert "refused" in direct[other]
    assert "open" not in direct.values()
    assert proxy == os.environ.get("HTTP_PROXY", "")


async def test_open_is_the_network_of_this_machine(bench) -> None:
    async with web() as other:
        _, direct, _ = await said(bench, REACHES % json.dumps([other]))
    assert direct == {other: "open"}


SERVES = """
import http.server, os, signal, socket, sys
class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6 if sys.argv[1] == "::1" else socket.AF_INET
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "5"); self.end_headers(); self.wfile.write(b"hello")
def end(*_):
    open(sys.argv[2], "w").write("ended"); os._exit(0)
signal.signal(signal.SIGTERM, end)
Server((sys.argv[1], int(os.environ["PORT"])), Handler).serve_forever()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_http_server_without_a_network_is_reached_and_ends_by_itself(bench, tmp_path: Path, host: str) -> None:
    """Nothing is published on this machine; SIGTERM lets it say goodbye, as without a sandbox."""
    from mooring.wire.http_client import HttpClient

    argv = (sys.executable, "-c", SERVES, host, str(tmp_path / "end"))
    what = variant(argv, port=1, network="none", writable=(str(tmp_path),))
    async with launched(bench, what) as it:
        assert isinstance(it.endpoint, Url)
        assert it.endpoint.socket is not None
        port = int(it.endpoint.url.rpartition(":")[2].partition("/")[0])
        async with HttpClient("it", it.endpoint.url, {}, it.endpoint.socket) as http:
            await answers(http)
            for _ in range(3):
                async with asyncio.timeout(20), http.exchange("GET", {}) as reply:
                    assert await reply.body() == b"hello"
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection(host, port)
        path = it.endpoint.socket
        assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
    assert (tmp_path / "end").read_text() == "ended"
    assert not os.path.exists(os.path.dirname(path))


async def answers(http) -> None:
    """Wait until somebody listens."""
    from mooring.errors import Crashed

    async with asyncio.timeout(20):
        while True:
            try:
                async with http.exchange("GET", {}):
                    return
            except Crashed:
                await asyncio.sleep(0.02)


async def test_the_echo_server_answers_through_it(bench) -> None:
    command = echo()
    async with launched(bench, variant(tuple(command), network="none", env={"PYTHONPATH": SOURCE})) as it:
        os.write(it.endpoint.writer, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert json.loads(await bench.line(it.endpoint.reader))["id"] == 1
        inside = psutil.Process(it.pid).children(recursive=True)
    assert it.exited.result() == 0
    await bench.gone(it.pid, *(process.pid for process in inside))


async def test_killing_what_holds_it_kills_all_of_it(bench) -> None:
    """Whatever it started, in whatever session: kill -9 of bubblewrap leaves nothing, not even for a moment."""
    async with launched(bench, variant((sys.executable, "-I", "-S", "-c", STRAYS))) as it:
        await bench.line(it.endpoint.reader)
        inside = psutil.Process(it.pid).children(recursive=True)
        assert len(inside) >= 3
        os.kill(it.pid, signal.SIGKILL)
        await bench.gone(it.pid, *(process.pid for process in inside))
        async with asyncio.timeout(20):
            assert await asyncio.shield(it.exited) == -9


STRAYS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(1000)
time.sleep(1000)
"""


async def test_what_ignores_every_hint_is_gone_when_the_block_is_left(bench) -> None:
    async with launched(bench, variant((sys.executable, "-I", "-S", "-c", STRAYS), close=0.2)) as it:
        await bench.line(it.endpoint.reader)
        inside = [process.pid for process in psutil.Process(it.pid).children(recursive=True)]
    assert not [pid for pid in (it.pid, *inside) if bench.alive(pid)]


async def test_nothing_is_left_open_when_it_ends(bench, open_descriptors) -> None:
    async def once() -> None:
        async with web() as allowed:
            await said(bench, "print(1)", network=(allowed,))

    await once()
    before = open_descriptors()
    await once()
    assert len(open_descriptors()) == len(before)


async def test_a_program_that_cannot_be_seen_is_said_with_the_way_out(bench, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    with pytest.raises(StartFailed, match=f'add "{tmp_path}:ro"'):
        async with launched(bench, variant((str(program),))):
            pass
    async with launched(bench, variant((str(program),), readable=(str(tmp_path),))) as it:
        os.write(it.endpoint.writer, b"ping\n")
        assert await bench.line(it.endpoint.reader) == "ping"


async def test_a_variable_that_would_be_lost_is_said(bench) -> None:
    with pytest.raises(StartFailed, match=r'"my\.name" cannot get into a sandbox'):
        async with launched(bench, variant(("cat",), env={"my.name": "x"})):
            pass


async def test_the_path_of_the_server_is_its_own(bench) -> None:
    """What sets the sandbox up is not looked up there."""
    async with launched(bench, variant(("/bin/cat",), env={"PATH": "/nowhere"}, network=("a:1",))) as it:
        os.write(it.endpoint.writer, b"ping\n")
        assert await bench.line(it.endpoint.reader) == "ping"


async def test_a_declared_path_that_is_missing_is_said(bench, tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="does not exist: create it"):
        async with launched(bench, variant(("cat",), writable=(str(tmp_path / "no"),))):
            pass


async def test_without_bubblewrap_the_error_says_how_to_get_it(bench, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "cat").symlink_to(shutil.which("cat"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchMissing, match="apt-get install bubblewrap"):
        async with launched(bench, variant(("cat",), readable=(str(tmp_path),))):
            pass


async def test_a_sandbox_that_cannot_be_set_up_is_a_failed_start_with_its_words(bench, monkeypatch) -> None:
    """A server with a list never starts without its proxy."""
    monkeypatch.setattr(sandboxes.bubblewrap, "ISOLATION", ("--no-such-option",))
    with pytest.raises(StartFailed, match="could not be set up") as failed:
        async with launched(bench, variant(("cat",), network=("a:1",))):
            pass
    assert "no-such-option" in failed.value.details["stderr"]


async def test_a_network_that_is_not_its_own_is_a_failed_start(bench, monkeypatch) -> None:
    """Never open: the proxy would stand in this machine's network, and the server would not need it."""
    whole = sandboxes.bubblewrap.command
    monkeypatch.setattr(
        sandboxes.bubblewrap, "command", lambda *a, **k: [part for part in whole(*a, **k) if part != "--unshare-net"]
    )
    with pytest.raises(StartFailed, match="no network of its own"):
        async with launched(bench, variant(("cat",), network=("a:1",))):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="limits need root")
async def test_limits_are_kept(bench, reports: Reports) -> None:
    code = """
import json, os, sys, time
forks = 0
try:
    while forks < 100:
        if os.fork() == 0: time.sleep(1000)
        forks += 1
except OSError as error: print(json.dumps([forks, error.errno]), flush=True)
"""
    forks, number = await said(bench, code, reports, pids=32)
    if reports.told:
        pytest.skip(f"this machine gives no control groups: {reports.told}")
    assert 5 < forks < 32
    assert number == 11
    code = "import sys; x = bytearray(300 << 20); x[::4096] = b'x' * len(x[::4096]); print(len(x))"
    what = variant((sys.executable, "-I", "-S", "-c", code), memory="64m")
    async with launched(bench, what, reports) as it, asyncio.timeout(20):
        assert await asyncio.shield(it.exited) in (137, -9)
    left = [name for parent in ("pids", "memory", "") for name in os.listdir(f"/sys/fs/cgroup/{parent}")]
    assert not [name for name in left if name.startswith(f"mooring-{os.getpid()}-")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may limit")
async def test_limits_that_cannot_be_kept_are_said(bench, reports: Reports) -> None:
    assert await said(bench, "print(1)", reports, pids=32, memory="64m") == 1
    ((name, data),) = reports.told
    assert name == "limits.ignored"
    assert "not kept here" in data["reason"]


async def test_it_costs_little_to_start(bench) -> None:
    """Measured beside the same program without one, in turns."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(7):
        for inside in (True, False):
            plain = Variant("it", "it", "{}", "d" * 8, Process(("/bin/cat",)))
            begun = time.perf_counter()
            async with launched(bench, variant(("/bin/cat",)) if inside else plain) as it:
                os.write(it.endpoint.writer, b"x\n")
                await bench.line(it.endpoint.reader)
                taken[inside].append(time.perf_counter() - begun)
    cost = statistics.median(taken[True]) - statistics.median(taken[False])
    assert cost < 0.25, f"a sandbox costs {cost * 1000:.1f} ms"


def usable_by_nobody() -> str | None:
    """An interpreter like this one that any user may run."""
    for program in dict.fromkeys((os.path.realpath(sys.executable), "/usr/bin/python3")):
        code = "import sys; print(sys.version_info[:2])"
        try:
            run = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False, **NOBODY)
        except OSError:
            continue
        if run.returncode == 0 and run.stdout.strip() == str(sys.version_info[:2]):
            return program
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite runs as a plain user already")
def test_a_plain_user_gets_the_same() -> None:
    """All of this file again, by a user without privileges."""
    if (python := usable_by_nobody()) is None:
        pytest.skip("needs an interpreter like this one that every user may run")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    with tempfile.TemporaryDirectory() as home:  # below tmp_path nobody else can be sure to get
        os.chown(home, NOBODY["user"], NOBODY["group"])
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PYTHONPATH": os.pathsep.join((SOURCE, *packages)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        options = ("-p", "no:cacheprovider", f"--basetemp={home}/tmp", "-W", "ignore::pytest.PytestConfigWarning")
        run = subprocess.run(
            [python, "-m", "pytest", *options, __file__],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
            **NOBODY,
        )
    if "No module named pytest" in run.stderr:
        pytest.skip(f"{python} cannot load the packages of this one for any user")
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert " passed" in run.stdout
