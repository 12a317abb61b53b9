"""The credential handshake: its words in any pieces, and real servers that were written against its text alone."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Timeouts
from mooring.errors import StartFailed
from mooring.launch.base import Pipes, Url
from mooring.launch.process import ProcessLauncher
from mooring.launch.smcp import LINE, Answers, Broken, handshake
from mooring.testing import smcp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

KEY = "sk-wire-4711"
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def outcome(pieces: list[bytes]) -> tuple[str, bytes]:
    """What comes of a stream that arrives in these pieces and then ends: a word, and what it is about."""
    answers, rest = Answers(), b""
    try:
        for number, piece in enumerate(pieces):
            answers.feed(piece)
            if answers.ok:
                rest = b"".join(pieces[number + 1 :])
                break
    except Broken as broken:
        return str(broken), broken.said
    if answers.ok:
        return "ok", answers.rest + rest
    ended = answers.ended("ended")
    return str(ended), ended.said


line = st.one_of(
    st.sampled_from(
        [b"+READY", b"+OK", b"+ERR", b"+ERR no such key", b"+READY\r", b"+OK\r", b"", b"+ready", b"+ERRATIC", b" +OK"]
    ),
    st.sampled_from([HELLO.strip(), b'{"KEY":"value"}', b"x" * LINE, b"x" * (LINE + 1)]),
    st.binary(max_size=20),
)
streams = st.builds(
    lambda lines, end, start: start + b"\n".join(lines) + end,
    st.lists(line, max_size=5),
    st.sampled_from([b"\n", b""]),
    st.sampled_from([b"", b"+READY\n", b"+READY\n+OK\n"]),
)


@given(streams, st.lists(st.integers(0, 200_000), max_size=8))
def test_the_pieces_in_which_it_arrives_change_nothing(stream: bytes, cuts: list[int]) -> None:
    """A4 A2: pipes cut where they like."""
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[start:end] for start, end in pairwise(places)]
    expected = outcome([stream])
    assert outcome(pieces) == expected
    if len(stream) < 500:
        assert outcome([bytes([byte]) for byte in stream]) == expected


@pytest.mark.parametrize(
    ("stream", "ends"),
    [
        (b"+READY\n+OK\n", "ok"),
        (b"+READY\r\n+OK\r\n" + HELLO, "ok"),
        (b"+READY\n", "ended before it answered its credentials"),
        (b"", "ended before +READY"),
        (b"+READ", "printed {} and ended before +READY"),
        (b"+READY", "printed {} and ended before +READY"),
        (b" +READY\n", "printed {} before +READY"),
        (b"+OK\n", "printed {} before +READY"),
        (b"\n+READY\n", "printed {} before +READY"),
        (HELLO, "speaks MCP at once"),
        (b"+ERR locked\n", "refused its credentials"),
        (b"+READY\n+ERR\n", "refused its credentials"),
        (b"+READY\n+ERROR\n", "answered its credentials with {}"),
        (b"+READY\n+READY\n", "answered its credentials with {}"),
        (b"+READY\n" + b"x" * (LINE + 1), "printed a line of more than 65536 bytes instead of +OK"),
    ],
)
def test_only_the_words_of_the_protocol_count(stream: bytes, ends: str) -> None:
    """A2 A5: exactly +READY and +OK, with a carriage return at most."""
    assert outcome([stream])[0].startswith(ends)


class Bench:
    """Launches a fixture server and shakes hands with it."""

    def __init__(self, bench) -> None:
        self._bench = bench
        self.masks: list[str] = []
        self.sent = 0
        self.pid = 0
        self.code: int | None = None

    @asynccontextmanager
    async def shaken(self, argv: list[str], values: Mapping[str, str], **timeouts: float):
        limits = Timeouts(**{"close": 4.0, "ready": 20.0, "credentials": 20.0, **timeouts})
        what = Variant("it", "it", "{}", "d", Process(tuple(argv)), timeouts=limits)
        async with ProcessLauncher(self._bench.keeper).launch(what, what.key(), {}) as launched:
            self.pid = launched.pid

            def sent() -> None:
                self.sent += 1

            def redact(text: str) -> str:
                return text.replace("elsewhere", "****")

            try:
                pipes = await handshake(launched, values, server="it", timeouts=limits, redact=redact, sent=sent)
                self._bench.mine += [pipes.reader, pipes.writer]
                yield pipes
                for fd in (pipes.reader, pipes.writer):
                    self._bench.close(fd)
            finally:
                self.stderr = launched.stderr
        self.code = launched.exited.result()

    async def refused(self, argv: list[str], values: Mapping[str, str] | None = None, **timeouts: float) -> str:
        """The text of the failure; the server is gone and nobody was left behind."""
        with pytest.raises(StartFailed) as caught:
            async with self.shaken(argv, {"KEY": KEY} if values is None else values, **timeouts):
                pass
        assert caught.value.facts() == {"kind": "start_failed", "server": "it", "phase": "credentials"}
        assert not self._bench.alive(self.pid)
        return caught.value.message

    async def ask(self, pipes: Pipes, message: bytes) -> bytes:
        """Send a message and take what comes within the next line, leftover included."""
        os.write(pipes.writer, message)
        if pipes.leftover:
            return pipes.leftover
        return (await self._bench.line(pipes.reader)).encode()


@pytest.fixture
def hands(bench) -> Bench:
    return Bench(bench)


CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","_meta":'
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":'
    b'{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}\n'
)


async def received(hands: Bench, bench, pipes: Pipes) -> dict[str, str]:
    """The credentials as the server has them."""
    os.write(pipes.writer, CALL % (1, b"credentials"))
    chunks = pipes.leftover
    while b'"id":1' not in chunks or not chunks.endswith(b"\n"):
        try:
            chunks += os.read(pipes.reader, 1 << 20)
        except BlockingIOError:
            await asyncio.sleep(0.005)
    answer = next(json.loads(one) for one in chunks.splitlines() if json.loads(one).get("id") == 1)
    return answer["result"]["structuredContent"]


VALUES = {
    "PLAIN": KEY,
    "EMPTY": "",
    "LINES": "one\ntwo\r\nthree\n",
    "QUOTES": '"it\'s" \\n {"jsonrpc": 1} +OK',
    "FAR": "grüße 🔑 \u2028\u2029\x85\x00\x1b end",
    "RAW": b"\xff\xfe bytes".decode("utf-8", "surrogateescape"),
    "+ERR": "a key like a word of the protocol",
}


@pytest.mark.parametrize("mode", ["text", "binary"])
async def test_every_value_arrives_as_it_is(hands: Bench, bench, mode: str) -> None:
    """A2 A4 A10: against the text of 0.2, by readline and by bytes."""
    async with asyncio.timeout(30), hands.shaken(smcp("--mode", mode), VALUES) as pipes:
        assert pipes.leftover == b""
        assert await received(hands, bench, pipes) == VALUES
        assert hands.sent == 1
        for place in ("environ", "cmdline"):
            assert KEY.encode() not in Path(f"/proc/{hands.pid}/{place}").read_bytes()
    assert hands.code == 0


@pytest.mark.parametrize("mode", ["text", "binary"])
@pytest.mark.parametrize("flags", [["--crlf"], ["--pause", "0.005"], ["--early"], ["--early", "--pause", "0.005"]])
async def test_slow_writers_and_early_birds_lose_nothing(hands: Bench, bench, mode: str, flags: list[str]) -> None:
    """A4: line ends of Windows, a byte at a time, a message right behind +OK."""
    async with asyncio.timeout(60), hands.shaken(smcp("--mode", mode, *flags), {"KEY": KEY}) as pipes:
        if flags == ["--early"]:
            first = pipes.leftover or (await bench.line(pipes.reader)).encode()
            assert json.loads(first)["params"]["data"] == "early"
        else:
            assert await received(hands, bench, pipes) == {"KEY": KEY}


@pytest.mark.parametrize("mode", ["text", "binary"])
async def test_credentials_larger_than_any_pipe_arrive(hands: Bench, bench, mode: str) -> None:
    """A4: 100 KB, and 3 MB; no deadlock."""
    for size in (100_000, 3_000_000):
        large = {"KEY": "k" * size, "OTHER": "ü" * 1000}
        async with asyncio.timeout(30), hands.shaken(smcp("--mode", mode), large) as pipes:
            assert await received(hands, bench, pipes) == large


async def test_a_server_that_talks_while_it_is_written_to_ends_in_no_deadlock(hands: Bench, bench) -> None:
    """A4: both pipes are full, each side waits for the other; unless one of them reads."""
    code = """
import os, sys
os.write(1, b"+READY\\n")
head = os.read(0, 10)
os.write(1, b"y" * 60000 + b"\\n" + b"z" * 1000000)
"""
    text = await hands.refused(bench.python(code), {"KEY": "k" * 1_000_000})
    assert "answered its credentials with yyyy" in text
    assert len(text) < 1000


async def test_no_credentials_at_all_are_an_empty_object(hands: Bench, bench) -> None:
    """A1: the handshake always runs."""
    async with asyncio.timeout(30), hands.shaken(smcp(), {}) as pipes:
        assert await received(hands, bench, pipes) == {}


async def test_nothing_is_sent_before_it_is_asked_for_and_nothing_else(hands: Bench, bench) -> None:
    """A2: one line of JSON; not a byte more until +OK."""
    code = """
import os, select
quiet = not select.select([0], [], [], 0.3)[0]
os.write(1, b"+READY\\n")
line = b""
while not line.endswith(b"\\n"): line += os.read(0, 1)
quiet = quiet and not select.select([0], [], [], 0.3)[0]
os.write(1, b"+OK\\n%d %d %s" % (quiet, line.count(b"\\n"), line))
os.read(0, 1)
"""
    async with asyncio.timeout(30), hands.shaken(bench.python(code), {"A": "1", "B": "ü\n"}) as pipes:
        told = pipes.leftover.decode().strip() or await bench.line(pipes.reader)
    assert told == '1 1 {"A": "1", "B": "\\u00fc\\n"}'


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--trouble", "banner"], "printed Welcome to the ledger 2.0! before +READY; its stdout is for the protocol"),
        (["--trouble", "mcp-first"], 'speaks MCP at once and asks for no credentials: take "credentials" out'),
        (["--trouble", "exit-first"], "exited with code 7 before +READY"),
        (["--trouble", "exit-after"], "exited with code 7 before it answered its credentials"),
        (["--trouble", "close"], "closed its output before it answered its credentials"),
        (["--trouble", "grandchild"], "exited with code 7 before +READY"),
        (["--refuse", "DB_PASS is wrong"], "refused its credentials: DB_PASS is wrong"),
        (["--refuse", ""], "refused its credentials: it gave no reason"),
    ],
)
@pytest.mark.parametrize("mode", ["text", "binary"])
async def test_what_went_wrong_is_said_and_the_server_is_gone(
    hands: Bench, mode: str, flags: list[str], says: str
) -> None:
    """A3 A5"""
    began = time.monotonic()
    text = await hands.refused(smcp("--mode", mode, *flags))
    assert text.startswith(f'Server "it" {says}')
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("code", "limits", "says"),
    [
        ("", {"ready": 0.5}, "did not say +READY within 0.5 s (timeouts.ready); a plain MCP server waits"),
        (
            "os.write(1, b'+REA')",
            {"ready": 3},
            "did not say +READY within 3 s (timeouts.ready); it printed +REA without",
        ),
        ("os.write(1, b'+READY\\n')", {"credentials": 0.5}, "did not answer its credentials within 0.5 s (timeouts.c"),
    ],
)
async def test_waiting_has_limits_that_can_be_set(hands: Bench, bench, code: str, limits: dict, says: str) -> None:
    """A3 A5"""
    text = await hands.refused(bench.python(f"import os, time; {code or 'pass'}; time.sleep(600)"), **limits)
    assert text.startswith(f'Server "it" {says}')


async def test_a_server_that_never_reads_does_not_hold_anybody_up(hands: Bench, bench) -> None:
    """A3 A4: more than the pipe holds."""
    code = "import os, time; os.write(1, b'+READY\\n'); time.sleep(600)"
    text = await hands.refused(bench.python(code), {"KEY": "k" * 1_000_000}, credentials=0.5)
    assert "did not answer its credentials within 0.5 s" in text


async def test_the_usual_limits_are_those_of_the_protocol() -> None:
    """A3"""
    assert (Timeouts().ready, Timeouts().credentials) == (10.0, 5.0)


@pytest.mark.parametrize(
    ("flags", "credentials"),
    [
        (["--trouble", "echo"], {"KEY": KEY, "PIN": "97", "LINES": "one line\nand two"}),
        (["--trouble", "echo"], {"KEY": "k1" * 40_000}),
        (["--refuse", "I do not like $KEY and $PIN"], {"KEY": KEY, "PIN": "97"}),
    ],
)
@pytest.mark.parametrize("mode", ["text", "binary"])
async def test_values_that_a_server_repeats_are_masked(
    hands: Bench, mode: str, flags: list[str], credentials: dict[str, str]
) -> None:
    """A3 A6: however short or long they are."""
    text = await hands.refused(smcp("--mode", mode, *flags), credentials)
    for value in credentials.values():
        assert value not in text
        assert value[:12] not in text
    assert "****" in text or "a line of more than" in text
    assert "elsewhere" not in await hands.refused(smcp("--refuse", "known elsewhere"))


async def test_a_server_that_closes_its_stdin_is_heard_out_and_given_up(hands: Bench, bench) -> None:
    """A3: its last words count; without any it is not waited for."""
    code = "import os, time; os.write(1, b'+READY\\n'); os.close(0); {}; time.sleep(600)"
    text = await hands.refused(bench.python(code.format("pass")), {"KEY": "k" * 1_000_000})
    assert "closed its input before it answered its credentials" in text
    text = await hands.refused(bench.python(code.format("os.write(1, b'+ERR too large\\n')")), {"KEY": "k" * 1_000_000})
    assert "refused its credentials: too large" in text


async def test_a_signal_is_named(hands: Bench, bench) -> None:
    """A3"""
    text = await hands.refused(bench.python("import os; os.kill(os.getpid(), 11)"))
    assert "was ended by signal 11 before +READY" in text


async def test_a_server_without_stdin_cannot_be_one() -> None:
    """A1"""

    class Listening:
        endpoint = Url("http://localhost:1/mcp")

    with pytest.raises(StartFailed, match="has no stdin"):
        await handshake(
            Listening(),
            {},
            server="it",
            timeouts=Timeouts(),
            redact=str,
            sent=lambda: None,  # type: ignore[arg-type]
        )


async def test_a_cancelled_handshake_leaves_neither_descriptors_nor_a_process(bench, open_descriptors) -> None:
    """A3 A13"""
    hands = Bench(bench)
    before = open_descriptors()

    async def shake() -> None:
        async with hands.shaken(smcp("--trouble", "silent"), {}, close=0.2):
            raise AssertionError

    task = asyncio.create_task(shake())
    while not hands.pid:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not bench.alive(hands.pid)
    assert open_descriptors() == before


async def test_failures_leak_no_descriptor(bench, open_descriptors) -> None:
    """A3 A13"""
    before = open_descriptors()
    for code in ("print('x')", "print('+READY'); print('+ERR no')", "import os; os.close(1)", "pass"):
        await Bench(bench).refused(bench.python(code))
    assert open_descriptors() == before


class Silent:
    """A server that has said nothing yet, on pipes of the test's own."""

    def __init__(self) -> None:
        (reader, self.output), (self.input, writer) = os.pipe(), os.pipe()
        os.set_blocking(reader, False)
        self.endpoint = Pipes(reader, writer)
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        pass


async def test_an_exit_that_is_reported_late_touches_no_descriptor_that_is_somebody_elses_by_then() -> None:
    """The handshake is cancelled, its pipes are closed, another server gets the number, and then comes the word of the
    exit, all in one turn of the loop."""
    loop = asyncio.get_running_loop()
    server = Silent()
    others, writer = os.pipe()
    heard: list[bytes] = []

    def reused() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(server.endpoint.reader)
        os.dup2(others, server.endpoint.reader)
        os.write(writer, b"for somebody else")
        loop.add_reader(server.endpoint.reader, lambda: heard.append(os.read(server.endpoint.reader, 100)))

    shaking = asyncio.create_task(
        handshake(server, {}, server="it", timeouts=Timeouts(), redact=str, sent=lambda: None)  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    shaking.cancel()
    loop.call_soon(reused)
    server.exited.set_result(0)
    with pytest.raises(asyncio.CancelledError):
        await shaking
    async with asyncio.timeout(5):
        while not heard:
            await asyncio.sleep(0.001)
    assert heard == [b"for somebody else"]
    loop.remove_reader(server.endpoint.reader)
    for descriptor in (server.output, server.input, others, writer, server.endpoint.reader):
        os.close(descriptor)
