"""One HTTP/1.1 connection: bytes in, requests to the handler, answers out, in order.

Created by ``wire.http.HttpServer`` for each accepted socket. Owns at most one running request task at a time; a lost
connection cancels it unless the request survives. Never interprets a body, never raises into the loop: whatever a peer
sends ends in a well-formed answer or a closed connection. Timeouts are kept by the server's tick.

Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from mooring.wire.http_messages import STATUS_LINES, Reply, Request, Stream, problem
from mooring.wire.http_reader import BadRequest, RequestReader

if TYPE_CHECKING:
    from mooring.wire.http import HttpServer

_log = logging.getLogger(__name__)

NEVER = float("inf")
LINGER = 2.0
"""Seconds in which a peer that is still sending may read why it was refused."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream's keep-alive is sent: proxies drop what is silent for 30 or 60."""
LARGE = 64 << 10
"""Bytes from which head and body are written without joining them."""


class Connection(asyncio.Protocol):
    """The protocol of one accepted socket."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._now = server.loop.time
        self._reader: RequestReader
        self._phase = ""
        """What the peer has begun to send and not finished: "", "head" or "body"."""
        self._transport: asyncio.Transport | None = None
        self._running: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[Request | Reply] = deque()
        self._stream: Stream | None = None
        self._deaf = self._ended = self._write_paused = False
        """Deaf: what still arrives is thrown away. Ended: nothing more will be written."""
        self._deadline = self._write_deadline = NEVER
        self._unsent = 0
        self.peer = ""

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept, or refuse what is over the limits. uvloop has set TCP_NODELAY already."""
        self._transport = cast(asyncio.Transport, transport)
        if self._server.closing:  # accepted at the last moment
            self._deaf = True
            self._transport.abort()
            return
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._reader = RequestReader(self, self.peer, self._limits, self._arrived)
        self._deadline = self._now() + self._limits.header_timeout
        if not self._server.joined(self):
            self._refuse(problem(503, "too many connections"))

    def data_received(self, data: bytes) -> None:
        """Parse, and look at what has not arrived completely."""
        if self._deaf:
            return
        reader = self._reader
        try:
            reader.feed(data)
        except BadRequest as error:
            self._refuse(error.reply)
            return
        if reader.request is not None:
            self._look_at_unfinished(reader.request)

    def eof_received(self) -> None:
        """The client is gone: closing its side is how an HTTP client cancels. The transport closes by itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what runs for this client, unless it survives."""
        self._transport = self._stream = None
        self._deaf = self._ended = True
        self._waiting.clear()
        self._server.left(self)
        if self._task is None or self._running is None:
            return
        if self._running.survives:
            self._server.surviving.add(self._task)
            self._task.add_done_callback(self._server.surviving.discard)
        else:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The peer's window is full."""
        self._write_paused = True
        self._watch_writing(self._limits.write_timeout)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._write_paused = False
        if not self._ended:
            self._write_deadline = NEVER
            self._next()

    # Requests.

    def _arrived(self, request: Request) -> None:
        """All of a request is here: start it, or let it wait for its turn."""
        self._phase = ""
        self._deadline = NEVER
        if not request.keep_alive:
            self._deaf = True
        if self._task is None and not self._write_paused:
            self._start(request)
            return
        self._waiting.append(request)
        if len(self._waiting) == 1 and self._transport is not None:
            self._transport.pause_reading()

    def _look_at_unfinished(self, request: Request) -> None:
        """Decide about a request of which more is to come: until when, and whether it is welcome."""
        phase = "body" if self._reader.in_body else "head"
        if phase == self._phase:
            return
        self._phase = phase
        limits = self._limits
        self._deadline = self._now() + (limits.body_timeout if phase == "body" else limits.header_timeout)
        if phase == "body" and self._task is None:
            self._admit(request)

    def _admit(self, request: Request) -> None:
        """Refuse a request before its body is read, or tell the client to send it."""
        try:
            refusal = self._server.admit(request) if self._server.admit else None
        except Exception:
            _log.exception("admitting a request failed")
            refusal = problem(500, "internal error")
        if isinstance(refusal, asyncio.Future):
            self._hold(request, refusal)
        elif refusal is not None:
            self._refuse(refusal)
        elif self._reader.expects_continue and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _hold(self, request: Request, verdict: asyncio.Future[None]) -> None:
        """Leave the body unread until more is known about who sends it."""
        if self._transport is not None:
            self._transport.pause_reading()
        verdict.add_done_callback(lambda _: self._held(request))

    def _held(self, request: Request) -> None:
        if self._transport is None or self._deaf or self._reader.request is not request:
            return
        self._transport.resume_reading()
        self._admit(request)

    # Answers.

    def _start(self, request: Request) -> None:
        self._running = request
        self._task = self._server.loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        reply: Reply | Stream | None = None
        try:
            reply = await self._server.handler(request)
        except Exception:
            _log.exception("%s %s failed", request.method.decode("latin-1"), request.path)
            reply = problem(500, "internal error")
        finally:
            self._finish(request, reply)

    def _finish(self, request: Request, reply: Reply | Stream | None) -> None:
        """Write the answer (None: the task was cancelled from outside), then go on to what waits."""
        self._task = self._running = None
        stream, self._stream = self._stream, None
        if self._transport is None:
            return
        if reply is None or (stream is not None and reply is not stream):
            self._transport.abort()
            return
        keep = request.keep_alive and not self._server.closing
        if isinstance(reply, Reply):
            self._write(reply, keep, request.method == b"HEAD")
        elif request.chunked:
            self._transport.write(b"0\r\n\r\n")
        if not keep:
            self._end()
        elif self._waiting:
            self._next()
        elif not self._phase:
            self._deadline = self._now() + self._limits.idle_timeout
        elif self._phase == "body" and self._reader.request is not None:
            self._admit(self._reader.request)  # its turn has come; it may wait for a word before it sends its body

    def _next(self) -> None:
        """Start what waits, unless an answer is still running or unread."""
        transport = self._transport
        if transport is None or self._task is not None or self._write_paused or not self._waiting:
            return
        item = self._waiting.popleft()
        if not self._waiting:
            transport.resume_reading()
            if self._phase:
                self._deadline = self._now() + self._limits.header_timeout
        if isinstance(item, Reply):
            self._refuse(item)
        else:
            self._start(item)

    def _refuse(self, reply: Reply) -> None:
        """Answer instead of reading on, after what is running and waiting; then close."""
        self._deaf = True
        self._phase = ""
        if self._task is not None or self._waiting or self._write_paused:
            self._waiting.append(reply)
            return
        self._write(reply, keep=False)
        if self._transport is not None and self._transport.can_write_eof():
            # A socket that is closed with unread input is reset, and the peer would never see the answer.
            self._ended = True
            self._transport.write_eof()
            self._watch_writing(LINGER)

    def _write(self, reply: Reply, keep: bool, bodyless: bool = False) -> None:
        if self._transport is None:
            return
        body = reply.body
        tail = b"Content-Length: %d\r\n\r\n" if keep else b"Connection: close\r\nContent-Length: %d\r\n\r\n"
        head = STATUS_LINES[reply.status] + reply.headers + tail % len(body)
        if bodyless:
            self._transport.write(head)
        elif len(body) < LARGE:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def begin(self, request: Request, headers: bytes, keep_alive: bytes) -> Stream:
        """The stream of ``request``, begun now; closed from the start when the client is gone."""
        stream = Stream(self, request, keep_alive)
        if self._transport is not None and self._running is request and self._stream is None:
            self._stream = stream
            stream.sent_at = self._now()
            framing = b"Transfer-Encoding: chunked\r\n" if request.chunked else b""
            closing = b"" if request.keep_alive else b"Connection: close\r\n"
            self._transport.write(STATUS_LINES[200] + headers + framing + closing + b"\r\n")
        return stream

    def carries(self, stream: Stream) -> bool:
        """Whether ``stream`` is being sent."""
        return self._stream is stream

    def send(self, stream: Stream, data: bytes) -> bool:
        """Send a piece of ``stream``; cut the connection of a peer that has left too much unread."""
        transport = self._transport
        if transport is None or self._stream is not stream:
            return False
        if self._write_paused and transport.get_write_buffer_size() > self._limits.unsent_bytes + stream.largest:
            self._stream = None
            transport.abort()
            return False
        stream.sent_at = self._now()
        if not stream.request.chunked:
            transport.write(data)
        elif len(data) < LARGE:
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            stream.largest = max(stream.largest, len(data))
            transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))
        return True

    # Time.

    def tick(self, now: float) -> None:
        """Called by the server about once a second."""
        stream = self._stream
        if now > self._write_deadline:
            self._look_at_unsent()
        elif now > self._deadline and not self._waiting:
            self._expire()
        elif stream is not None and now - stream.sent_at >= KEEP_ALIVE:
            stream.send(stream.keep_alive)

    def cancel(self, request: Request) -> None:
        """Cancel the task of ``request``, if it is the one that runs."""
        if self._task is not None and self._running is request:
            self._task.cancel()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What runs for this client now."""
        return self._task

    def shut(self) -> None:
        """The server is closing: end now when idle, else after the running answer."""
        self._deaf = True
        self._phase = ""
        if self._task is None and not self._ended:
            self._end()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _expire(self) -> None:
        self._deadline = NEVER
        if self._phase:
            self._refuse(problem(408, f"the {self._phase} of the request did not arrive in time"))
        elif self._task is None:
            self._end()

    def _end(self) -> None:
        """Close when all is sent, within the write timeout."""
        self._deaf = self._ended = True
        if self._transport is not None:
            self._watch_writing(self._limits.write_timeout)
            self._transport.close()

    def _watch_writing(self, timeout: float) -> None:
        self._write_deadline = self._now() + timeout
        self._unsent = self._transport.get_write_buffer_size() if self._transport else 0

    def _look_at_unsent(self) -> None:
        """Cut the connection unless the peer has read something since the last look."""
        if self._transport is None:
            return
        if 0 < self._transport.get_write_buffer_size() < self._unsent:
            self._watch_writing(self._limits.write_timeout)
        else:
            self._transport.abort()
