"""Conversations with servers on stdio: calls, what is said meanwhile, the end."""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial
from typing import Any

import pytest
from stdio_bench import LIMIT, Ear, StdioBench, call

from loops import cancelled_after
from mooring.errors import Busy, Crashed, UpstreamProtocol
from mooring.launch.base import Pipes
from mooring.wire import upstream_pipe
from mooring.wire.jsonrpc import Answer
from mooring.wire.stdio_upstream import StdioConnection


async def test_replies_find_their_calls_in_any_order(stdio_bench: StdioBench) -> None:
    """A15, R27: a hundred calls at once, answered backwards."""
    connection = await stdio_bench.connect(
        "legacy(); calls = [read() for _ in range(100)]\n"
        "for request in reversed(calls): reply(request, n=request['params']['n'])\nread()"
    )
    assert await asyncio.gather(*(call(connection, n=n) for n in range(100))) == [{"n": n} for n in range(100)]


async def test_errors_come_back_as_the_server_wrote_them(stdio_bench: StdioBench) -> None:
    """A17"""
    connection = await stdio_bench.connect(
        """legacy(); read(); raw(b'{"id":2,"error":{"code":-1,"n":123456789012345678901234567890}}'); read()"""
    )
    answer = await connection.request("tools/call", b"{}")
    assert answer == Answer(error=b'{"code":-1,"n":123456789012345678901234567890}')


async def test_payloads_pass_as_bytes_both_ways(stdio_bench: StdioBench) -> None:
    """A17: the server sees the bytes of the caller, but for line breaks between values, and the other way round."""
    connection = await stdio_bench.connect(
        "legacy()\nline = sys.stdin.buffer.readline(); start = line.index(b'\"params\":') + 9\n"
        'raw(b\'{"jsonrpc":"2.0","id":2,"result":\' + line[start:-2] + b\'}\'); read()'
    )
    params = b'{"n":123456789012345678901234567890,"f":1.0e-7,"s":"\\ud800","t":"\xc3\xa4\\n",\r\n"x" : [ ]}'
    answer = await connection.request("tools/call", params)
    assert answer.result == params.replace(b"\r\n", b"  ")


async def test_ten_megabytes_come_back(stdio_bench: StdioBench) -> None:
    """A17"""
    connection = await stdio_bench.connect("legacy(); reply(read(), text='x' * 10_000_000); read()")
    assert len((await call(connection))["text"]) == 10_000_000


async def test_garbage_is_counted_and_shown_and_harms_nothing(stdio_bench: StdioBench) -> None:
    """A15, R27: text, truncated JSON, bytes that are not UTF-8, arrays, blank lines, made-up ids."""
    connection = await stdio_bench.connect(
        r"""
legacy(); request = read()
for line in (b"Listening on port 80", b'{"id":2,"result":{', b'{"id":2,"result":"\xff"}', b"[]", b"", b"  ",
             b'{"id":99}', b'{"method":"notifications/progress","params":[]}'): raw(line)
send(id=99, result={}); send(id="x", result={}); send(id=None, error={"code": -32700}); reply(request, ok=True); read()
"""
    )
    assert await call(connection) == {"ok": True}
    assert connection.garbage == len(stdio_bench.strays) == 6
    assert stdio_bench.strays[0] == b"Listening on port 80"
    assert connection.unmatched == 3


async def test_a_cancelled_request_is_cancelled_upstream_and_its_late_answer_ignored(stdio_bench: StdioBench) -> None:
    """A15: with the id the server knows; the next call is not disturbed."""
    connection = await stdio_bench.connect(
        "legacy(); request = read(); note('notifications/seen'); told = expect('notifications/cancelled')\n"
        "reply(request, late=True); reply(read(), asked=request['id'], told=told['params']); read()"
    )
    task = asyncio.create_task(call(connection))
    await stdio_bench.listener.next()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer = await call(connection)
    assert answer["told"]["requestId"] == answer["asked"]
    assert connection.unmatched == 1


async def test_progress_of_parallel_calls_reaches_the_right_caller_with_its_own_token(stdio_bench: StdioBench) -> None:
    """A15, A18: though both chose the same token, and one chose a number; made-up tokens reach nobody."""
    connection = await stdio_bench.connect(
        """
legacy(); calls = [read() for _ in range(3)]
tokens = [request["params"]["_meta"]["progressToken"] for request in calls]
assert len(set(tokens)) == 3, tokens
for step in range(3):
    for request, token in zip(calls, tokens):
        note("notifications/progress", progressToken=token, progress=step, message=request["params"]["name"])
for token in ("same", 7, 9999, 10**30, None, [1]): note("notifications/progress", progressToken=token, progress=1)
for request in calls: reply(request, meta=request["params"]["_meta"])
read()
"""
    )
    ears = {"a": Ear(), "b": Ear(), "c": Ear()}
    tokens: dict[str, Any] = {"a": "same", "b": "same", "c": 7}
    answers = await asyncio.gather(
        *(
            call(connection, name=name, _meta={"progressToken": tokens[name], "trace": name}, caller=ears[name])
            for name in ears
        )
    )
    assert [answer["meta"]["trace"] for answer in answers] == ["a", "b", "c"]
    for name, ear in ears.items():
        for step in range(3):
            heard = {"progressToken": tokens[name], "progress": step, "message": name}
            assert await ear.next() == ("notifications/progress", heard)
        assert ear.said.empty()
    assert connection.unmatched == 6


async def test_numbers_of_ours_may_come_back_as_strings(stdio_bench: StdioBench) -> None:
    """The official SDKs take them for numbers, too."""
    connection = await stdio_bench.connect(
        "legacy()\nrequest = read(); token = request['params']['_meta']['progressToken']\n"
        "note('notifications/progress', progressToken=str(token), progress=1)\n"
        "send(id=str(request['id']), result={'fine': True})\nread()"
    )
    ear = Ear()
    assert (await call(connection, _meta={"progressToken": "t"}, caller=ear))["fine"]
    assert await ear.next() == ("notifications/progress", {"progressToken": "t", "progress": 1})


async def test_progress_without_a_caller_and_without_a_token_is_dropped(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect(
        "legacy()\nfor _ in range(2): request = read(); note('notifications/progress', progressToken=request['id'], "
        "progress=1); reply(request)\nread()"
    )
    ear = Ear()
    await call(connection, _meta={"progressToken": 1})
    await call(connection, caller=ear)
    assert ear.said.empty()


async def test_a_log_message_reaches_the_only_caller_else_the_listener(stdio_bench: StdioBench) -> None:
    """A18: with two calls in flight nobody can say whose it is."""
    connection = await stdio_bench.connect(
        """
legacy(); first = read(); note("notifications/message", data="one"); second = read()
note("notifications/message", data="two"); reply(first); reply(second)
note("notifications/message", data="none"); read()
"""
    )
    a, b = Ear(), Ear()
    first = asyncio.create_task(call(connection, caller=a))
    assert await a.next() == ("notifications/message", {"data": "one"})
    await call(connection, caller=b)
    await first
    assert await stdio_bench.listener.next() == ("notifications/message", {"data": "two"})
    assert await stdio_bench.listener.next() == ("notifications/message", {"data": "none"})
    assert a.said.empty()
    assert b.said.empty()


async def test_what_a_server_says_outside_calls_reaches_the_listener(stdio_bench: StdioBench) -> None:
    """A16: changed lists, updated resources, and notifications of revisions to come."""
    methods = ["tools/list_changed", "resources/updated", "elicitation/complete", "future/thing"]
    await stdio_bench.connect(f"legacy()\nfor name in {methods}: note('notifications/' + name, uri='x')\nread()")
    for method in methods:
        assert await stdio_bench.listener.next() == (f"notifications/{method}", {"uri": "x"})


async def test_null_in_the_place_of_what_is_not_there_is_nothing(stdio_bench: StdioBench) -> None:
    """Some servers serialise every member."""
    connection = await stdio_bench.connect(
        "legacy()\nsend(method='notifications/tools/list_changed', params=None)\n"
        "send(id=read()['id'], result={'fine': True}, error=None)\nread()"
    )
    assert (await call(connection))["fine"]
    assert await stdio_bench.listener.next() == ("notifications/tools/list_changed", {})


@pytest.mark.parametrize(
    ("members", "said"),
    [("", "neither a result nor an error"), (',"result":{},"error":{"code":1}', "both a result and an error")],
)
async def test_an_answer_that_is_none_fails_its_call_at_once(stdio_bench: StdioBench, members: str, said: str) -> None:
    """And no other; it is shown where the server's author looks for it."""
    connection = await stdio_bench.connect(
        f"legacy(); first = read(); second = read()\n"
        f"raw(b'{{\"id\":%d{members}}}' % first['id']); reply(second, fine=True); read()"
    )
    calls = [asyncio.create_task(call(connection)) for _ in range(2)]
    with pytest.raises(UpstreamProtocol, match=f"answered tools/call with {said}"):
        await calls[0]
    assert (await calls[1])["fine"]
    assert len(stdio_bench.strays) == 1


async def test_a_probe_that_is_answered_with_nothing_was_not_understood(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect(
        "raw(b'{\"id\":%d}' % expect('server/discover')['id'])\nlegacy(); reply(read(), fine=True); read()",
        era=None,
    )
    assert connection.facts.era == "legacy"
    assert (await call(connection))["fine"]


async def test_a_caller_that_fails_to_listen_disturbs_nobody(
    stdio_bench: StdioBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A18"""
    connection = await stdio_bench.connect(
        "legacy(); request = read(); note('notifications/message', data=1); reply(request, ok=True); read()"
    )

    class Deaf(Ear):
        def heard(self, method: str, params: bytes) -> None:
            raise RuntimeError("deaf")

    assert await call(connection, caller=Deaf()) == {"ok": True}
    assert "could not be passed on" in caplog.text


async def test_a_crash_fails_every_pending_call_with_the_exit_code(stdio_bench: StdioBench) -> None:
    """A15, A16: and nothing may be repeated, for the bytes were written."""
    connection = await stdio_bench.connect("legacy(); [read() for _ in range(3)]; os._exit(7)")
    results = await asyncio.gather(*(call(connection) for _ in range(3)), return_exceptions=True)
    for error in results:
        assert isinstance(error, Crashed)
        assert str(error) == "scripted exited with code 7 before it answered tools/call"
        assert error.details == {"server": "scripted", "phase": "call", "written": True}
    assert await asyncio.wait_for(connection.closed, LIMIT) == "exited with code 7"
    with pytest.raises(Crashed, match="was not sent") as refused:
        await connection.request("tools/call", b"{}")
    assert refused.value.details["written"] is False
    connection.notify("notifications/x", b"{}")


async def test_a_killed_server_is_named_by_its_signal(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect("legacy(); read(); os.kill(os.getpid(), 9)")
    with pytest.raises(Crashed, match="was ended by SIGKILL"):
        await call(connection)


async def test_the_last_words_of_a_server_count(stdio_bench: StdioBench) -> None:
    """A15: it answers and exits in one breath."""
    connection = await stdio_bench.connect("legacy(); reply(read(), text='x' * 50_000); os._exit(0)")
    assert len((await call(connection))["text"]) == 50_000
    assert await asyncio.wait_for(connection.closed, LIMIT) == "exited with code 0"


async def test_a_child_that_keeps_the_pipe_open_does_not_hide_the_exit(stdio_bench: StdioBench) -> None:
    """A16: the exit is enough, end-of-file need not come."""
    connection = await stdio_bench.connect(
        "legacy(); read()\nif not os.fork(): time.sleep(2); os._exit(0)\nsend(id=2, result={'last': 1}); os._exit(5)"
    )
    assert await call(connection) == {"last": 1}
    assert await asyncio.wait_for(connection.closed, 1.5) == "exited with code 5"


async def test_a_server_that_closes_its_output_and_lives_is_gone_too(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect("legacy(); read(); os.close(1); os.closerange(3, 256); time.sleep(60)")
    with pytest.raises(Crashed, match="closed its output"):
        await call(connection)
    with pytest.raises(Crashed):
        await call(connection)


async def test_leaving_closes_stdin_so_that_the_server_can_end_by_itself(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect("legacy(); reply(read()); read()")
    await call(connection)
    await connection.close()
    assert await asyncio.wait_for(stdio_bench.process.wait(), LIMIT) == 0
    assert connection.closed.result() == "was stopped"


async def test_pending_calls_fail_when_the_conversation_is_closed(stdio_bench: StdioBench) -> None:
    connection = await stdio_bench.connect("legacy()\nwhile read(): pass")
    waiting = asyncio.create_task(connection.request("tools/call", b"{}"))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Crashed, match="was stopped before it answered"):
        await waiting


async def test_a_server_that_does_not_read_makes_busy_not_memory(
    stdio_bench: StdioBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A15: what waits for it is bounded; what was refused was not written."""
    monkeypatch.setattr(upstream_pipe, "QUEUE", 100_000)
    connection = await stdio_bench.connect("legacy(); time.sleep(60)")
    tasks = [asyncio.create_task(connection.request("x", b'{"pad":"' + b"x" * 100_000 + b'"}')) for _ in range(5)]
    done, pending = await asyncio.wait(tasks, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
    assert 1 <= len(pending) <= 3
    for task in done:
        error = task.exception()
        assert isinstance(error, Busy)
        assert error.details["written"] is False
    await connection.close()
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert all(isinstance(result, Crashed) for result in results)


async def test_bytes_read_before_the_conversation_are_part_of_it() -> None:
    """A launcher may have looked at the first bytes."""
    stdin, writer = os.pipe()
    reader, stdout = os.pipe()
    exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    listener = Ear()
    connection = StdioConnection("scripted", partial(upstream_pipe.Pipe, exited), listener)
    await connection.channel.start(Pipes(reader, writer, b'noise\n{"method":"notifications/x",'))
    os.write(stdout, b'"params":{"a":1}}\n')
    assert await listener.next() == ("notifications/x", {"a": 1})
    assert connection.garbage == 1
    exited.set_result(None)
    assert await asyncio.wait_for(connection.closed, LIMIT) == "was ended together with what kept it"
    await connection.close()
    os.close(stdin)
    os.close(stdout)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "was ended together with what kept it"),
        (0, "exited with code 0"),
        (-9, "was ended by SIGKILL"),
        (-99, "was ended by signal 99"),
    ],
)
def test_exits_are_told_in_words(code: int | None, text: str) -> None:
    assert upstream_pipe._exit_text(code) == text


@pytest.mark.parametrize("ticks", [1, 2, 3])
async def test_a_start_that_is_cancelled_closes_what_it_was_given(ticks: int) -> None:
    """At any of its steps; a descriptor that is closed twice would be somebody else's by then."""
    (reader, theirs), (mine, writer) = os.pipe(), os.pipe()
    exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    pipe = upstream_pipe.Pipe(exited, lambda _: None, lambda _: None)
    await cancelled_after(ticks, pipe.start(Pipes(reader=reader, writer=writer)))
    exited.set_result(0)
    pipe.close()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()  # a file that is left open is an error here
    for descriptor in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    os.close(theirs)
    os.close(mine)
