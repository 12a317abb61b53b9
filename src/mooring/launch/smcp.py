"""The parent's half of the SMCP credential handshake v0.2: credentials over stdin, before MCP begins.

    server    +READY
    parent    {"KEY": "value", ...}     one line
    server    +OK                       what follows is MCP; or +ERR and a reason

Called by ``serve.starter`` for servers with ``credentials``, whatever launched them. Credentials go through here and
to no launcher, so that none can put them into an environment. It says nothing of MCP, keeps no value and writes no log;
what it shows of a server's output is masked. ``mooring.smcp`` is the other half. Source: SMCP 0.2, "Handshake",
"Timeouts".
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import msgspec

from mooring.config.plan_servers import Timeouts
from mooring.errors import StartFailed
from mooring.launch.base import Launched, Pipes
from mooring.observe.redact import Redactor

PHASE = "credentials"
READY, OK, ERR = b"+READY", b"+OK", b"+ERR"
LINE = 64 * 1024
"""Bytes that a line of the handshake may have; without a limit a server that writes no line end fills the memory."""
SHOWN = 500
"""Characters shown of what a server said instead."""
LAST_WORDS = 0.5
"""Seconds that a failed server gets to end by itself: what it writes to stderr meanwhile often is the reason. Also how
long a closed pipe waits for the report of the exit that explains it."""
_CHUNK = 65536
_PIPE_CHUNKS = 16  # a pipe holds 1 MiB at most


class Broken(Exception):
    """The handshake failed. ``said``: what stands for ``{}`` in the message, which is not masked yet."""

    def __init__(self, message: str, said: bytes = b"") -> None:
        super().__init__(message)
        self.said = said


class Answers:
    """What a server says during the handshake, in whatever pieces it arrives. Pure.

    ``ready``, then ``ok``: how far it is; ``rest``: the bytes behind the last line, which are MCP once it is ``ok``.
    """

    def __init__(self) -> None:
        self.ready = False
        self.ok = False
        self.rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises Broken for what the protocol does not have."""
        self.rest += data
        while not self.ok and (line := self._line()) is not None:
            self._take(line)

    def ended(self, how: str) -> Broken:
        """What is wrong when nothing more comes; ``how`` goes on after the server's name."""
        if self.ready:  # half a line may be half a value
            return Broken(f"{how} before it answered its credentials")
        if self.rest:
            return Broken(f"printed {{}} and {how} before +READY", self.rest)
        return Broken(f"{how} before +READY")

    def _line(self) -> bytes | None:
        end = self.rest.find(b"\n", 0, LINE + 1)
        if end >= 0:
            line, self.rest = self.rest[:end], self.rest[end + 1 :]
            return line.removesuffix(b"\r")
        if len(self.rest) > LINE:
            raise Broken(f"printed a line of more than {LINE} bytes instead of {'+OK' if self.ready else '+READY'}")
        return None

    def _take(self, line: bytes) -> None:
        if line == ERR or line.startswith(ERR + b" "):
            raise Broken("refused its credentials: {}", line[len(ERR) :].strip() or b"it gave no reason")
        if self.ready and line == OK:
            self.ok = True
        elif self.ready:
            raise Broken('answered its credentials with {}; "+OK" or "+ERR" and a reason was expected', line)
        elif line == READY:
            self.ready = True
        elif line.lstrip().startswith(b"{") and b'"jsonrpc"' in line:
            raise Broken('speaks MCP at once and asks for no credentials: take "credentials" out, use "secrets"')
        else:
            raise Broken("printed {} before +READY; its stdout is for the protocol, all else belongs on stderr", line)


async def handshake(
    launched: Launched,
    credentials: Mapping[str, str],
    *,
    server: str,
    timeouts: Timeouts,
    redact: Callable[[str], str],
    sent: Callable[[], None],
) -> Pipes:
    """Give ``credentials`` to a server that has just been launched; its pipes again, ready for MCP.

    ``sent`` is called when they are about to be sent. Takes at most ``timeouts.ready`` and ``timeouts.credentials``.
    Raises StartFailed (phase "credentials"); then the pipes are closed and the server is dead or about to be.
    """
    pipes = launched.endpoint
    if not isinstance(pipes, Pipes):
        raise StartFailed(f'Server "{server}" has no stdin to take credentials from.', server=server, phase=PHASE)
    try:
        with _Conversation(pipes, launched.exited) as conversation:
            await conversation.asked(timeouts.ready)
            sent()
            leftover = await conversation.answered(_frame(credentials), timeouts.credentials)
    except BaseException as error:
        os.close(pipes.writer)
        os.close(pipes.reader)
        if not isinstance(error, Broken):
            raise
        await asyncio.wait((launched.exited,), timeout=LAST_WORDS)
        launched.signal(signal.SIGKILL)
        said = _shown(error.said, credentials, redact)
        message = f'Server "{server}" {str(error).format(said)}.'
        raise StartFailed(message, server=server, phase=PHASE) from None
    return msgspec.structs.replace(pipes, leftover=leftover)


def _frame(credentials: Mapping[str, str]) -> bytes:
    """All of them on one line. ASCII: no encoding, no exotic line break and no half of a character can hurt it."""
    return json.dumps(dict(credentials)).encode("ascii") + b"\n"


def _shown(said: bytes, credentials: Mapping[str, str], redact: Callable[[str], str]) -> str:
    """What the server said, masked before it is cut. However short a value is, here it is known to be near."""
    mask = Redactor(shortest=1)
    for value in credentials.values():
        mask.add(value)
    text = mask(redact(said.decode("utf-8", "replace")))
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."


class _Conversation:
    """Both pipes while the handshake lasts. Reads while it writes, so that neither side can wait for the other."""

    def __init__(self, pipes: Pipes, exited: asyncio.Future[int | None]) -> None:
        self._answers = Answers()
        self._reader = pipes.reader
        self._writer = pipes.writer
        self._exited = exited
        self._unsent = memoryview(b"")
        self._failure: Broken | None = None
        self._news = asyncio.Event()
        self._grace: asyncio.TimerHandle | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._loop.add_reader(self._reader, self._read)
        self._exited.add_done_callback(self._ended)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.remove_reader(self._reader)
        self._loop.remove_writer(self._writer)
        self._exited.remove_done_callback(self._ended)
        self._over = True  # word of the end may be on its way already; the pipes are somebody else's by then
        if self._grace is not None:
            self._grace.cancel()

    async def asked(self, limit: float) -> None:
        """Wait for +READY. Raises Broken."""
        try:
            async with asyncio.timeout(limit):
                await self._until(lambda: self._answers.ready)
        except TimeoutError:
            how = f"did not say +READY within {limit:g} s (timeouts.ready)"
            hint = '; a plain MCP server waits for its client: then take "credentials" out'
            said = self._answers.rest
            raise Broken(f"{how}; it printed {{}} without a line end" if said else how + hint, said) from None

    async def answered(self, frame: bytes, limit: float) -> bytes:
        """Send the credentials and wait for +OK; the bytes behind it. Raises Broken."""
        self._unsent = memoryview(frame)
        self._write()
        try:
            async with asyncio.timeout(limit):
                await self._until(lambda: self._answers.ok and not self._unsent)
        except TimeoutError:
            raise Broken(f"did not answer its credentials within {limit:g} s (timeouts.credentials)") from None
        return self._answers.rest

    async def _until(self, done: Callable[[], bool]) -> None:
        while self._failure is None and not done():
            self._news.clear()
            await self._news.wait()
        if self._failure is not None:
            raise self._failure

    def _read(self) -> bool:
        """Take one chunk; False when there is none now."""
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._reader)
            self._hung_up("closed its output")
            return False
        try:
            self._answers.feed(data)
        except Broken as failure:
            self._fail(failure)
        if self._answers.ok:
            self._loop.remove_reader(self._reader)
        self._news.set()
        return not self._answers.ok

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._writer, self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._writer, self._write)
            return
        except OSError:
            self._hung_up("closed its input")
        self._loop.remove_writer(self._writer)
        self._news.set()

    def _hung_up(self, how: str) -> None:
        """The exit that is about to be reported, or a last +ERR, is the better reason."""
        self._grace = self._grace or self._loop.call_later(LAST_WORDS, lambda: self._fail(self._answers.ended(how)))

    def _ended(self, exited: asyncio.Future[int | None]) -> None:
        """Word of the end may come before its last words do."""
        if self._over:
            return
        for _ in range(_PIPE_CHUNKS):
            if self._answers.ok or self._failure is not None or not self._read():
                break
        if not self._answers.ok:
            self._fail(self._answers.ended(_exit_text(None if exited.cancelled() else exited.result())))

    def _fail(self, failure: Broken) -> None:
        self._failure = self._failure or failure
        self._loop.remove_reader(self._reader)
        self._news.set()


def _exit_text(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
