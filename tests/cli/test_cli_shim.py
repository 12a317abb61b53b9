"""``mooring stdio`` as a real process, in front of a small daemon that plays the control socket and an echo server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli import ledger, shim
from mooring.cli.ledger import Ledger
from mooring.config.home import Home
from mooring.testing import StdioClient, wait_for
from mooring.testing.flags import parser
from mooring.testing.server import Server

SHIM = [sys.executable, "-c", "import sys; from mooring.cli.shim import main; sys.exit(main(sys.argv[1:]))"]
ATTACHED = b'{"attached":true}\n'


class Daemon:
    """A double of the daemon: one echo server for each attached connection."""

    def __init__(self, home: Path, *flags: str) -> None:
        self.path = home / "run" / "control.sock"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.flags = parser().parse_args([*flags])
        self.answer = ATTACHED
        self.attached: list[dict] = []
        self.servers: list[Server] = []
        self.ended = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Daemon:
        # A socket of our own: a loop that binds the path also removes it, and later than the next daemon binds it.
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.path))
        self._listening = await asyncio.start_unix_server(self._serve, sock=listening, limit=1 << 27)
        return self

    async def __aexit__(self, *_) -> None:
        self._listening.close()
        for writer in self._writers:
            writer.transport.abort()
        self.path.unlink(missing_ok=True)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.attached.append(json.loads(await reader.readline()))
        writer.write(self.answer)
        loop = asyncio.get_running_loop()

        def write(text: str, about: object = None) -> None:
            with suppress(RuntimeError):  # the test is over, and its loop is closed
                loop.call_soon_threadsafe(writer.write, text.encode() + b"\n")

        server = Server(self.flags, write)
        self.servers.append(server)
        try:
            while line := await reader.readline():
                server.receive(line.rstrip(b"\n"))
            self.ended.set()
            await asyncio.sleep(0.05)
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()


@asynccontextmanager
async def through_shim(home: Path, *options: str, era: str = "legacy", argv: list[str] = SHIM, **env: str):
    environ = {**os.environ, "MOORING_HOME": str(home), **env}
    async with StdioClient([*argv, *(options or ("-w", "alice"))], era=era, env=environ) as client:
        yield client


def run(home: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MOORING_HOME": str(home), **env}
    argv = [*SHIM, *options]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)


@pytest.fixture
def home() -> Path:
    """A short folder: the path of a socket may have about a hundred characters."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="mrg"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_conversation_goes_through_and_ends_with_stdin(home, era):
    async with Daemon(home) as daemon, through_shim(home, era=era) as client:
        await client.open()
        assert (await client.call("echo", {"a": "é"}))["structuredContent"] == {"a": "é"}
        assert daemon.attached == [{"attach": "stdio", "workspace": "alice"}]
        assert await client.close_stdin() == 0
        assert client.stderr == ""
        assert all(line.startswith(b'{"jsonrpc"') for line in client.received)


async def test_without_a_workspace_the_daemon_chooses(home):
    async with Daemon(home) as daemon, through_shim(home, "--no-spawn") as client:
        await client.open()
        assert daemon.attached == [{"attach": "stdio", "workspace": None}]


async def test_odd_workspace_names_are_sent_as_they_are(home):
    async with Daemon(home) as daemon, through_shim(home, '--workspace=a "b"\\é') as client:
        await client.open()
        assert daemon.attached[0]["workspace"] == 'a "b"\\é'


async def test_big_frames_pass_both_ways(home):
    async with Daemon(home) as _, through_shim(home) as client:
        await client.open()
        text = "x" * 10_000_000
        assert (await client.call("echo", {"text": text}))["structuredContent"] == {"text": text}
        assert len((await client.call("huge"))["content"][0]["text"]) == 10_000_000


async def test_answers_still_come_after_the_end_of_stdin(home):
    async with Daemon(home) as daemon, through_shim(home) as client:
        await client.open()
        _, answer = client.begin("tools/call", {"name": "counter"})
        assert await client.close_stdin() == 0
        assert (await answer)["result"]["structuredContent"] == {"count": 1}
        await asyncio.wait_for(daemon.ended.wait(), 10)


async def test_it_ends_with_a_client_that_left_something_unread(home):
    """Where stdin is a socket, as with some clients, its end is a reset then."""
    ours, its = socket.socketpair()
    async with asyncio.timeout(30), Daemon(home) as daemon:
        environ = {**os.environ, "MOORING_HOME": str(home)}
        with ours, its:
            process = await asyncio.create_subprocess_exec(*SHIM, "-w", "alice", env=environ, stdin=its, stdout=its)
            await wait_for(lambda: daemon._writers and daemon.attached)
            daemon._writers[0].write(b'{"jsonrpc":"2.0","method":"x"}\n')
            await asyncio.to_thread(ours.recv, 1, socket.MSG_PEEK)
        try:
            assert await asyncio.wait_for(process.wait(), 10) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_restart_answers_what_was_lost_and_replays_the_handshake(home):
    """The daemon goes away in a call: the call fails, the conversation does not."""
    async with through_shim_ready(home) as (client, daemon):
        _, lost = client.begin("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        await wait_for(lambda: "tools/call" in daemon.servers[0].seen)
        await daemon.__aexit__()
        error = (await asyncio.wait_for(lost, 10))["error"]
        assert error["code"] == -32603
        assert "went away" in error["message"]
        received = len(client.received)
        _, held = client.begin("tools/call", {"name": "counter"})
        async with Daemon(home) as second:
            assert (await asyncio.wait_for(held, 10))["result"]["structuredContent"] == {"count": 1}
            assert second.servers[0].seen == ["initialize", "notifications/initialized", "tools/call"]
            assert len(client.received) == received + 1
            assert await client.close_stdin() == 0


@asynccontextmanager
async def through_shim_ready(home: Path):
    daemon = Daemon(home)
    await daemon.__aenter__()
    async with through_shim(home) as client:
        await client.open()
        await wait_for(lambda: daemon.servers[0].initialized)
        yield client, daemon


async def test_a_handshake_that_was_cut_off_is_answered_by_the_next_daemon(home):
    daemon = Daemon(home, "--hang", "initialize")
    await daemon.__aenter__()
    async with through_shim(home) as client:
        hello = asyncio.create_task(client.open())
        await wait_for(lambda: daemon.servers and daemon.servers[0].seen)
        await daemon.__aexit__()
        async with Daemon(home):
            assert (await asyncio.wait_for(hello, 10))["serverInfo"]["name"] == "echo"
            assert len(client.received) == 1


async def test_a_modern_conversation_survives_a_restart_too(home):
    daemon = Daemon(home)
    await daemon.__aenter__()
    async with through_shim(home, era="modern") as client:
        await client.open()
        await daemon.__aexit__()
        async with Daemon(home) as second:
            await wait_for(lambda: second.attached)
            await client.call("counter")
            assert second.servers[0].seen == ["tools/call"]


async def test_a_cancelled_call_is_not_among_the_lost(home):
    async with through_shim_ready(home) as (client, daemon):
        number, cancelled = client.begin("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        client.notify("notifications/cancelled", {"requestId": number})
        await wait_for(lambda: daemon.servers[0].cancelled)
        await daemon.__aexit__()
        async with Daemon(home) as second:
            await wait_for(lambda: second.attached)
            await client.call("counter")
        assert not cancelled.done()


async def test_it_gives_up_on_a_daemon_that_stays_away(home):
    code = "import sys; from mooring.cli import shim; shim.RECONNECT = 0.3; sys.exit(shim.main(sys.argv[1:]))"
    daemon = Daemon(home)
    await daemon.__aenter__()
    async with through_shim(home, argv=[sys.executable, "-c", code]) as client:
        await client.open()
        await daemon.__aexit__()
        assert await asyncio.wait_for(client.process.wait(), 10) == 3
        await wait_for(lambda: "went away" in client.stderr)


async def test_it_stops_when_the_new_daemon_refuses(home):
    async with through_shim_ready(home) as (client, daemon):
        await daemon.__aexit__()
        async with Daemon(home) as second:
            second.answer = b'{"error":{"message":"There is no workspace alice.","exit_code":2}}\n'
            assert await asyncio.wait_for(client.process.wait(), 10) == 2
            await wait_for(lambda: "no workspace alice" in client.stderr)


async def test_a_refusal_is_told_on_stderr_with_its_exit_code(home):
    async with Daemon(home) as daemon, through_shim(home) as client:
        daemon.answer = b'{"error":{"message":"There is no workspace alice.","exit_code":2}}\n'
        assert await asyncio.wait_for(client.process.wait(), 10) == 2
        await wait_for(lambda: client.stderr == "There is no workspace alice.\n")
        assert client.received == []


async def test_what_the_daemon_leaves_unfinished_never_reaches_stdout(home):
    async with through_shim_ready(home) as (client, daemon):
        daemon._writers[0].write(b'{"jsonrpc":"2.0","method":"notifications/half')
        await asyncio.sleep(0.05)
        await daemon.__aexit__()
        async with Daemon(home) as second:
            await wait_for(lambda: second.attached)
            await client.call("counter")
        assert not any(b"half" in line for line in client.received)


def test_without_a_daemon_it_says_what_to_do(home):
    done = run(home, "-w", "alice", "--no-spawn")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "mooring up" in done.stderr
    assert str(home) in done.stderr


def test_a_stale_socket_counts_as_no_daemon(home):
    (home / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / "run" / "control.sock"))
    assert run(home, "--no-spawn").returncode == 3


def test_unknown_options_are_refused_on_stderr(home):
    assert run(home, "--nonsense").returncode == 2
    done = run(home, "--help")
    assert (done.returncode, done.stdout) == (0, "")
    assert "usage" in done.stderr


FAKE_UP = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_cli_shim import Daemon
async def main():
    async with Daemon(Path({home!r})) as daemon:
        await asyncio.wait_for(daemon.ended.wait(), 20)
print("daemon is up", file=sys.stderr, flush=True)
asyncio.run(main())
"""


def package(folder: Path, source: str) -> str:
    """A ``mooring`` on the module path whose ``python -m mooring up`` runs ``source``."""
    import mooring

    (folder / "fake" / "mooring").mkdir(parents=True)
    init = f"__path__.append({str(Path(mooring.__file__).parent)!r})"
    (folder / "fake" / "mooring" / "__init__.py").write_text(init)
    (folder / "fake" / "mooring" / "__main__.py").write_text(source)
    return str(folder / "fake")


async def test_without_a_daemon_it_starts_one_in_the_background(home):
    path = package(home, FAKE_UP.format(tests=str(Path(__file__).parent), home=str(home)))
    async with through_shim(home, "-w", "alice", PYTHONPATH=path) as client:
        await client.open()
        await client.call("counter")
        assert await client.close_stdin() == 0
        assert client.stderr == ""
    assert "daemon is up" in (home / "state" / "daemon.log").read_text()


def test_a_daemon_that_cannot_start_is_quoted(home):
    path = package(home, "import sys; sys.exit('mooring.toml:3: nonsense')")
    start = time.monotonic()
    done = run(home, "-w", "alice", PYTHONPATH=path)
    assert done.returncode == 3
    assert "mooring.toml:3: nonsense" in done.stderr
    assert "exit code 1" in done.stderr
    assert time.monotonic() - start < 9


@pytest.mark.parametrize(
    "environ",
    [
        {"MOORING_HOME": "/srv/m"},
        {"MOORING_HOME": "~/m", "HOME": "/home/x"},
        {"MOORING_HOME": "rel/m"},
        {"XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/home/x"},
        {"XDG_STATE_HOME": "/state", "HOME": "/home/x"},
        {"XDG_STATE_HOME": "not/absolute", "HOME": "/home/x"},
        {"HOME": "/home/x"},
    ],
)
def test_the_socket_is_where_the_home_says(environ, monkeypatch):
    if "HOME" in environ:
        monkeypatch.setenv("HOME", environ["HOME"])
    assert shim.socket_path(environ) == str(Home.locate(environ).socket)


def test_it_starts_fast_and_imports_next_to_nothing():
    """At most three times a bare interpreter, with the first line already looked at."""
    code = "import sys, mooring.cli.shim, mooring.cli.ledger; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert not {"asyncio", "typing", "msgspec", "click", "subprocess", "pathlib"} & set(loaded.stdout.split())

    def cpu(source: str) -> float:
        """Seconds of processor time; the machine may be busy with other things."""
        process = subprocess.Popen([sys.executable, "-c", source])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0
        return usage.ru_utime + usage.ru_stime

    rounds = [(cpu("pass"), cpu("import mooring.cli.shim, mooring.cli.ledger")) for _ in range(9)]
    bare, started = (min(times) for times in zip(*rounds, strict=True))
    assert started < 3 * bare


# The ledger, without processes.

request_ids = st.one_of(st.integers(), st.text(max_size=20), st.just("\ud800"))
payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("id"), inner, max_size=3),
)


@given(identity=request_ids, params=payloads, result=st.booleans(), order=st.permutations(range(4)), big=st.booleans())
def test_large_messages_are_understood_from_their_ends(identity, params, result, order, big):
    payload = {"pad": '"id":1,"method":"no"}' * (4000 if big else 1), "id": "wrong", "inner": params}
    pairs = [("jsonrpc", "2.0"), ("id", identity)]
    pairs += [("result", payload)] if result else [("method", "tools/call"), ("params", payload)]
    message = dict(pairs[index] for index in order if index < len(pairs))
    seen = ledger.envelope(json.dumps(message).encode())
    assert seen["id"] == identity
    assert seen.get("method") == message.get("method")


def test_large_messages_are_not_decoded(monkeypatch):
    pad = "x" * 1_000_000
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"pad": pad}}),
        json.dumps({"method": "m", "params": {"pad": pad}, "jsonrpc": "2.0", "id": 1}),
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"pad": pad}}),
        json.dumps({"result": {"pad": pad}, "jsonrpc": "2.0", "id": 1}),
    ]
    longest = []
    loads = json.loads
    monkeypatch.setattr(ledger.json, "loads", lambda text: longest.append(len(text)) or loads(text))
    for line in lines:
        assert ledger.envelope(line.encode())["id"] == 1
    assert max(longest) < 10_000


def test_what_is_open_is_what_was_asked_and_not_answered():
    book = Ledger()
    for line in (
        b'{"id":1,"method":"initialize"}',
        b'{"method":"notifications/initialized"}',
        b'{"id":"a","method":"tools/call"}',
        b'{"id":"1","method":"tools/call"}',
        b'{"id":2,"method":"tools/call"}',
        b'{"id":9,"result":{}}',
        b"nonsense",
        b"[1]",
    ):
        book.sent(line)
    for line in (b'{"id":1,"result":{}}', b'{"id":2,"error":{}}', b'{"id":7,"method":"roots/list"}', b"nonsense"):
        assert book.received(line)
    assert [json.loads(line)["id"] for line in book.lost()] == ["a", "1"]
    assert book.lost() == []
    assert book.replay() == [b'{"id":1,"method":"initialize"}', b'{"method":"notifications/initialized"}']
    assert not book.received(b'{"id":1,"result":{}}')
    assert book.received(b'{"id":1,"result":{}}')
