"""Conversations with real child processes, each a few lines of script, over real pipes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from mooring.errors import Busy, Crashed, StartFailed, TimedOut, UpstreamProtocol
from mooring.launch.base import Pipes
from mooring.nouns import Era
from mooring.wire import stdio_upstream, upstream_pipe
from mooring.wire.jsonrpc import Answer
from mooring.wire.stdio_upstream import NeedsRespawn, StdioConnection

LIMIT = 20.0  # seconds that anything here may take on a busy machine

SERVER = """
import json, os, sys, time

def raw(line): sys.stdout.buffer.write(line + b"\\n"); sys.stdout.buffer.flush()
def send(**message): raw(json.dumps({"jsonrpc": "2.0", **message}).encode())
def note(method, **params): send(method=method, params=params)
def reply(request, **result): send(id=request["id"], result=result)
def fail(request, code, message="no", **data):
    send(id=request["id"], error={"code": code, "message": message, "data": data})

def read():
    line = sys.stdin.buffer.readline()
    if not line: sys.exit(0)
    return json.loads(line)

def expect(method):
    message = read()
    assert message["method"] == method, message
    return message

def welcome(request, version="2025-11-25", **more):
    info = {"protocolVersion": version, "capabilities": {"tools": {"big": 123456789012345678901234567890}},
            "serverInfo": {"name": "scripted", "version": "1"}, "instructions": "be kind"}
    reply(request, **{**info, **more})

def describe(request, versions=("2026-07-28",), capabilities={"tools": {}}):
    reply(request, supportedVersions=versions, capabilities=capabilities, instructions="be kind", resultType="complete",
          _meta={"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}})

def legacy():
    while (message := read())["method"] != "initialize": fail(message, -32601)
    welcome(message); expect("notifications/initialized")
"""


class Ear:
    """A caller and a listener that remember what they heard, and answer what they are asked."""

    def __init__(self) -> None:
        self.alone = False
        self.said: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.questions: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.cancelled = asyncio.Event()

    def heard(self, method: str, params: bytes) -> None:
        self.said.put_nowait((method, json.loads(params)))

    announced = heard

    async def ask(self, method: str, params: bytes) -> Answer:
        self.questions.put_nowait((method, json.loads(params)))
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    asked = ask

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.said.get(), LIMIT)


class Bench:
    """Starts scripted servers and connects to them; ``phases``, ``strays`` and ``listener`` are of the last one."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.phases: list[str] = []
        self.strays: list[bytes] = []
        self.listener = Ear()
        self.process: asyncio.subprocess.Process

    async def connect(
        self,
        script: str,
        *,
        era: Era | None = "legacy",
        timeout: float = LIMIT,
        capabilities: bytes = b"{}",
    ) -> StdioConnection:
        pipes, exited = await self.stack.enter_async_context(self._process(SERVER + script))
        self.phases.clear()
        return await self.stack.enter_async_context(
            stdio_upstream.connect(
                pipes,
                exited=exited,
                listener=self.listener,
                era=era,
                capabilities=capabilities,
                timeout=timeout,
                phase=self.phases.append,
                name="scripted",
                stray=lambda line, reason: self.strays.append(line),
            )
        )

    @asynccontextmanager
    async def _process(self, script: str) -> AsyncIterator[tuple[Pipes, asyncio.Future[int | None]]]:
        stdin, writer = os.pipe()
        reader, stdout = os.pipe()
        self.process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", script, stdin=stdin, stdout=stdout
        )
        os.close(stdin)
        os.close(stdout)
        exited: asyncio.Future[int | None] = asyncio.ensure_future(process.wait())
        try:
            yield Pipes(reader, writer), exited
        finally:
            if process.returncode is None:
                process.kill()
            await exited
            await asyncio.sleep(0)  # what waits for the exit hears of it before the loop ends


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with asyncio.timeout(LIMIT * 3), bench.stack:
        yield bench


async def call(
    connection: StdioConnection, method: str = "tools/call", caller: Ear | None = None, **params: Any
) -> Any:
    answer = await asyncio.wait_for(connection.request(method, json.dumps(params).encode(), caller), LIMIT)
    return json.loads(answer.result if answer.error is None else answer.error)


# ---- the handshake


async def test_a_server_known_as_legacy_is_not_probed(bench: Bench) -> None:
    """A16: straight to initialize, and the facts are what the server said, byte for byte."""
    connection = await bench.connect(
        "hello = expect('initialize'); welcome(hello); expect('notifications/initialized')\n"
        "reply(read(), hello=hello['params'])",
        capabilities=b'{"elicitation":{}}',
    )
    assert bench.phases == ["initialize"]
    assert connection.facts.era == "legacy"
    assert connection.facts.version == "2025-11-25"
    assert b"123456789012345678901234567890" in connection.facts.capabilities
    assert json.loads(connection.facts.server_info) == {"name": "scripted", "version": "1"}
    assert connection.facts.instructions == "be kind"
    hello = (await call(connection))["hello"]
    assert hello["protocolVersion"] == "2025-11-25"
    assert hello["capabilities"] == {"elicitation": {}}
    assert hello["clientInfo"]["name"] == "mooring"


@pytest.mark.parametrize("code", [-32601, -32602, -32000, -32600])
async def test_any_error_on_the_probe_falls_back_to_initialize(bench: Bench, code: int) -> None:
    """A16: TypeScript servers say -32601, Python 1.x servers -32602."""
    connection = await bench.connect(
        f"fail(expect('server/discover'), {code}); welcome(expect('initialize')); read()", era=None
    )
    assert connection.facts.era == "legacy"
    assert bench.phases == ["discover", "initialize"]


async def test_nonsense_on_the_probe_falls_back_to_initialize(bench: Bench) -> None:
    """A16: a result that is none of a modern server proves nothing."""
    connection = await bench.connect(
        "reply(expect('server/discover'), tools=[]); welcome(expect('initialize')); read()", era=None
    )
    assert connection.facts.era == "legacy"


async def test_silence_on_the_probe_falls_back_to_initialize(bench: Bench) -> None:
    """A16: some servers never answer what they do not know."""
    connection = await bench.connect(
        "expect('server/discover'); welcome(expect('initialize')); read()", era=None, timeout=2
    )
    assert connection.facts.era == "legacy"


async def test_exit_on_the_probe_asks_for_a_fresh_process(bench: Bench) -> None:
    """A16: which is then spoken to without a probe."""
    script = "if read()['method'] != 'initialize': sys.exit(3)\nwelcome({'id': 1}); read()"
    with pytest.raises(NeedsRespawn) as respawn:
        await bench.connect(script, era=None)
    assert respawn.value.era == "legacy"
    assert (await bench.connect(script, era=respawn.value.era)).facts.era == "legacy"


async def test_a_modern_server_is_recognised_by_its_answer(bench: Bench) -> None:
    """A16"""
    connection = await bench.connect(
        "probe = expect('server/discover'); describe(probe)\nreply(read(), probe=probe['params'])",
        era=None,
        capabilities=b'{"sampling":{}}',
    )
    assert connection.facts.era == "modern"
    assert connection.facts.version == "2026-07-28"
    assert json.loads(connection.facts.server_info) == {"name": "scripted", "version": "1"}
    assert connection.facts.instructions == "be kind"
    assert (await call(connection))["probe"]["_meta"].items() >= {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    }.items()


async def test_a_modern_server_that_asks_for_another_version_is_asked_again(bench: Bench) -> None:
    """A16"""
    connection = await bench.connect(
        "fail(expect('server/discover'), -32022, supported=['2026-07-28'], requested='x')\n"
        "describe(expect('server/discover')); read()",
        era=None,
    )
    assert connection.facts.era == "modern"


@pytest.mark.parametrize(
    "answer",
    [
        "describe(expect('server/discover'), ['2025-11-25'])",
        "fail(expect('server/discover'), -32022, supported=['2025-06-18'], requested='x')",
    ],
)
async def test_a_server_that_offers_only_legacy_versions_is_legacy(bench: Bench, answer: str) -> None:
    """A16"""
    connection = await bench.connect(f"{answer}; welcome(expect('initialize')); read()", era=None)
    assert connection.facts.era == "legacy"


@pytest.mark.parametrize(
    "answer",
    [
        "describe(expect('server/discover'), ['2031-01-01'])",
        "fail(expect('server/discover'), -32022, supported=['2031-01-01'], requested='x')",
    ],
)
async def test_no_common_version_is_said(bench: Bench, answer: str) -> None:
    """A16"""
    with pytest.raises(UpstreamProtocol, match=r"scripted .*2031-01-01"):
        await bench.connect(f"{answer}; read()", era=None)


@pytest.mark.parametrize(
    "initialize",
    [
        "fail(hello, -32022, supported=['2026-07-28'], requested='2025-11-25')",
        "fail(hello, -32601)",
        "pass",
    ],
)
async def test_a_slow_modern_server_is_not_taken_for_a_legacy_one(bench: Bench, initialize: str) -> None:
    """A16: it answers the probe only after initialize was sent, and refuses or ignores that."""
    connection = await bench.connect(
        f"probe = expect('server/discover'); hello = expect('initialize'); describe(probe); {initialize}; read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"
    assert bench.phases == ["discover", "initialize"]


async def test_a_refusal_that_overtakes_the_answer_to_the_probe_is_no_end(bench: Bench) -> None:
    """A16"""
    connection = await bench.connect(
        "probe = expect('server/discover'); fail(expect('initialize'), -32601); describe(probe); read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"


async def test_a_modern_server_that_lost_the_probe_is_asked_again(bench: Bench) -> None:
    """A16"""
    connection = await bench.connect(
        "expect('server/discover')\n"
        "fail(expect('initialize'), -32022, supported=['2026-07-28'], requested='x')\n"
        "describe(expect('server/discover')); read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"


@pytest.mark.parametrize("probe", ["describe(probe)", "fail(probe, -32601)", "pass"])
async def test_a_slow_server_that_accepts_initialize_is_legacy(bench: Bench, probe: str) -> None:
    """A16: whatever it says to the probe, it is in its legacy mode now."""
    connection = await bench.connect(
        f"probe = expect('server/discover'); hello = expect('initialize'); {probe}; welcome(hello); legacy = read()\n"
        "assert legacy['method'] == 'notifications/initialized', legacy; reply(read())",
        era=None,
        timeout=4,
    )
    assert connection.facts.era == "legacy"
    assert await call(connection) == {}


async def test_an_outdated_verdict_is_corrected(bench: Bench) -> None:
    """A16: it was legacy when it was last seen, and is modern now."""
    connection = await bench.connect(
        "fail(expect('initialize'), -32601); describe(expect('server/discover')); read()", era="legacy"
    )
    assert connection.facts.era == "modern"


async def test_a_refused_initialize_says_why(bench: Bench) -> None:
    """A16"""
    refusing = "fail(expect('server/discover'), -32601); fail(expect('initialize'), -32601, 'no way')"
    with pytest.raises(UpstreamProtocol, match="refused initialize: no way"):
        await bench.connect(refusing, era=None)


@pytest.mark.parametrize("answer", ["welcome(hello, '2031-01-01')", "welcome(hello, '2026-07-28')", "reply(hello)"])
async def test_an_unknown_version_in_initialize_is_refused(bench: Bench, answer: str) -> None:
    """A16"""
    with pytest.raises(UpstreamProtocol, match="which is not spoken here"):
        await bench.connect(f"hello = expect('initialize'); {answer}; read()")


@pytest.mark.parametrize(("era", "step"), [("legacy", "initialize"), ("modern", "initialize"), (None, "initialize")])
async def test_a_handshake_that_hangs_ends_in_time_and_says_where(bench: Bench, era: Era | None, step: str) -> None:
    """A16"""
    with pytest.raises(TimedOut, match="scripted did not answer initialize") as error:
        await bench.connect("while read(): pass", era=era, timeout=0.5)
    assert error.value.facts() == {"kind": "timed_out", "server": "scripted", "phase": step}


async def test_an_exit_in_initialize_is_a_failed_start_with_the_code(bench: Bench) -> None:
    with pytest.raises(StartFailed, match="exited with code 3") as error:
        await bench.connect("read(); sys.exit(3)")
    assert error.value.details == {"server": "scripted", "phase": "initialize"}


# ---- calls


async def test_replies_find_their_calls_in_any_order(bench: Bench) -> None:
    """A15, R27: a hundred calls at once, answered backwards."""
    connection = await bench.connect(
        "legacy(); calls = [read() for _ in range(100)]\n"
        "for request in reversed(calls): reply(request, n=request['params']['n'])\nread()"
    )
    assert await asyncio.gather(*(call(connection, n=n) for n in range(100))) == [{"n": n} for n in range(100)]


async def test_errors_come_back_as_the_server_wrote_them(bench: Bench) -> None:
    """A17"""
    connection = await bench.connect(
        """legacy(); read(); raw(b'{"id":2,"error":{"code":-1,"n":123456789012345678901234567890}}'); read()"""
    )
    answer = await connection.request("tools/call", b"{}")
    assert answer == Answer(error=b'{"code":-1,"n":123456789012345678901234567890}')


async def test_payloads_pass_as_bytes_both_ways(bench: Bench) -> None:
    """A17: the server sees the bytes of the caller, but for line breaks between values, and the other way round."""
    connection = await bench.connect(
        "legacy()\nline = sys.stdin.buffer.readline(); start = line.index(b'\"params\":') + 9\n"
        'raw(b\'{"jsonrpc":"2.0","id":2,"result":\' + line[start:-2] + b\'}\'); read()'
    )
    params = b'{"n":123456789012345678901234567890,"f":1.0e-7,"s":"\\ud800","t":"\xc3\xa4\\n",\r\n"x" : [ ]}'
    answer = await connection.request("tools/call", params)
    assert answer.result == params.replace(b"\r\n", b"  ")


async def test_ten_megabytes_come_back(bench: Bench) -> None:
    """A17"""
    connection = await bench.connect("legacy(); reply(read(), text='x' * 10_000_000); read()")
    assert len((await call(connection))["text"]) == 10_000_000


async def test_garbage_is_counted_and_shown_and_harms_nothing(bench: Bench) -> None:
    """A15, R27: text, truncated JSON, bytes that are not UTF-8, arrays, blank lines, made-up ids."""
    connection = await bench.connect(
        r"""
legacy(); request = read()
for line in (b"Listening on port 80", b'{"id":2,"result":{', b'{"id":2,"result":"\xff"}', b"[]", b"", b"  ",
             b'{"id":2}', b'{"method":"notifications/progress","params":[]}'): raw(line)
send(id=99, result={}); send(id="x", result={}); send(id=None, error={"code": -32700}); reply(request, ok=True); read()
"""
    )
    assert await call(connection) == {"ok": True}
    assert connection.garbage == len(bench.strays) == 6
    assert bench.strays[0] == b"Listening on port 80"
    assert connection.unmatched == 3


async def test_a_cancelled_request_is_cancelled_upstream_and_its_late_answer_ignored(bench: Bench) -> None:
    """A15: with the id the server knows; the next call is not disturbed."""
    connection = await bench.connect(
        "legacy(); request = read(); note('notifications/seen'); told = expect('notifications/cancelled')\n"
        "reply(request, late=True); reply(read(), asked=request['id'], told=told['params']); read()"
    )
    task = asyncio.create_task(call(connection))
    await bench.listener.next()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer = await call(connection)
    assert answer["told"]["requestId"] == answer["asked"]
    assert connection.unmatched == 1


async def test_progress_of_parallel_calls_reaches_the_right_caller_with_its_own_token(bench: Bench) -> None:
    """A15, A18: though both chose the same token, and one chose a number; made-up tokens reach nobody."""
    connection = await bench.connect(
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


async def test_progress_without_a_caller_and_without_a_token_is_dropped(bench: Bench) -> None:
    connection = await bench.connect(
        "legacy()\nfor _ in range(2): request = read(); note('notifications/progress', progressToken=request['id'], "
        "progress=1); reply(request)\nread()"
    )
    ear = Ear()
    await call(connection, _meta={"progressToken": 1})
    await call(connection, caller=ear)
    assert ear.said.empty()


async def test_a_log_message_reaches_the_only_caller_else_the_listener(bench: Bench) -> None:
    """A18: with two calls in flight nobody can say whose it is."""
    connection = await bench.connect(
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
    assert await bench.listener.next() == ("notifications/message", {"data": "two"})
    assert await bench.listener.next() == ("notifications/message", {"data": "none"})
    assert a.said.empty()
    assert b.said.empty()


async def test_what_a_server_says_outside_calls_reaches_the_listener(bench: Bench) -> None:
    """A16: changed lists, updated resources, and notifications of revisions to come."""
    methods = ["tools/list_changed", "resources/updated", "elicitation/complete", "future/thing"]
    await bench.connect(f"legacy()\nfor name in {methods}: note('notifications/' + name, uri='x')\nread()")
    for method in methods:
        assert await bench.listener.next() == (f"notifications/{method}", {"uri": "x"})


async def test_a_caller_that_fails_to_listen_disturbs_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A18"""
    connection = await bench.connect(
        "legacy(); request = read(); note('notifications/message', data=1); reply(request, ok=True); read()"
    )

    class Deaf(Ear):
        def heard(self, method: str, params: bytes) -> None:
            raise RuntimeError("deaf")

    assert await call(connection, caller=Deaf()) == {"ok": True}
    assert "could not be passed on" in caplog.text


# ---- what a server asks


async def test_ping_is_answered_here_and_what_nobody_knows_is_asked(bench: Bench) -> None:
    """A15"""
    connection = await bench.connect(
        "legacy(); request = read(); send(id='p', method='ping'); send(id=10**30, method='future/ask', params={})\n"
        "reply(request, answers=[read(), read()]); read()"
    )
    bench.listener.answer.set_result(Answer(result=b'{"vendor":1}'))
    pong, answer = (await call(connection))["answers"]
    assert pong == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert answer == {"jsonrpc": "2.0", "id": 10**30, "result": {"vendor": 1}}
    assert bench.listener.questions.get_nowait()[0] == "future/ask"


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
async def test_a_question_within_the_only_call_goes_to_its_caller(bench: Bench, method: str) -> None:
    """A15, A18: while other things go on; the answer goes back under the server's id."""
    connection = await bench.connect(
        f"legacy(); request = read(); send(id='q1', method='{method}', params={{'message': 'sure?'}})\n"
        "note('notifications/tools/list_changed'); reply(request, answer=read()); read()"
    )
    ear = Ear()
    task = asyncio.create_task(call(connection, caller=ear))
    assert await asyncio.wait_for(ear.questions.get(), LIMIT) == (method, {"message": "sure?"})
    await bench.listener.next()
    ear.answer.set_result(Answer(result=b'{"action":"accept"}'))
    assert (await task)["answer"] == {"jsonrpc": "2.0", "id": "q1", "result": {"action": "accept"}}
    assert bench.listener.questions.empty()


async def test_a_question_that_fits_no_single_call_goes_to_the_listener(bench: Bench) -> None:
    """A18: two calls at once, or one that was just cancelled and may still be worked on."""
    connection = await bench.connect(
        "legacy(); calls = [read(), read()]; send(id=1, method='roots/list'); answer = read()\n"
        "for request in calls: reply(request, answer=answer)\n"
        "read(); expect('notifications/cancelled'); request = read()\n"
        "send(id=2, method='roots/list'); reply(request, answer=read()); read()"
    )
    bench.listener.answer.set_result(Answer(error=b'{"code":-32601,"message":"no"}'))
    ears = Ear(), Ear(), Ear(), Ear()
    answers = await asyncio.gather(*(call(connection, caller=ear) for ear in ears[:2]))
    assert answers[0]["answer"]["error"]["code"] == -32601
    gone = asyncio.create_task(connection.request("tools/call", b"{}", ears[2]))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await call(connection, caller=ears[3]))["answer"]["error"]["code"] == -32601
    assert bench.listener.questions.qsize() == 2
    assert all(ear.questions.empty() for ear in ears)


async def test_what_mooring_itself_asks_of_a_server_does_not_hide_whose_a_question_is(bench: Bench) -> None:
    """A18: a server is listed at its start, just when its first caller calls."""
    connection = await bench.connect(
        "legacy(); listing = read(); request = read(); send(id=1, method='roots/list')\n"
        "reply(request, answer=read()); reply(listing); read()"
    )
    caller = Ear()
    caller.answer.set_result(Answer(result=b'{"roots":[]}'))
    listing = asyncio.create_task(connection.request("tools/list", b"{}"))
    await asyncio.sleep(0)
    assert (await call(connection, caller=caller))["answer"]["result"] == {"roots": []}
    await listing
    assert bench.listener.questions.empty()


@pytest.mark.parametrize("alone", [True, False])
async def test_a_call_left_waiting_for_an_answer_does_not_silence_the_other_calls_of_its_client(
    bench: Bench, alone: bool
) -> None:
    """A18: a server that waits for an answer does not go on; but between clients nothing is guessed."""
    connection = await bench.connect(
        "legacy(); first = read(); send(id=1, method='roots/list'); second = read()\n"
        "note('notifications/message', data='of the second'); send(id=2, method='roots/list')\n"
        "reply(second, answer=read()); read()"
    )
    bench.listener.alone = alone
    bench.listener.answer.set_result(Answer(result=b'{"nobody":true}'))
    left, right = Ear(), Ear()
    right.answer.set_result(Answer(result=b'{"right":true}'))
    hanging = asyncio.create_task(call(connection, caller=left))
    assert (await asyncio.wait_for(left.questions.get(), LIMIT))[0] == "roots/list"
    answer = (await call(connection, caller=right))["answer"]["result"]
    assert answer == ({"right": True} if alone else {"nobody": True})
    assert right.said.qsize() == int(alone)
    assert left.questions.empty()
    hanging.cancel()


async def test_a_question_that_cannot_be_asked_is_answered_with_an_error(bench: Bench) -> None:
    """A18"""
    connection = await bench.connect(
        "legacy(); request = read(); send(id=1, method='roots/list'); reply(request, answer=read()); read()"
    )
    ear = Ear()
    ear.answer.set_exception(TimedOut())
    assert (await call(connection, caller=ear))["answer"]["error"]["code"] == -32603


async def test_the_server_may_take_its_question_back(bench: Bench) -> None:
    """A18: then nothing is answered."""
    connection = await bench.connect(
        "legacy(); request = read(); send(id='q', method='roots/list'); second = read()\n"
        "note('notifications/cancelled', requestId='other'); note('notifications/cancelled', requestId='q')\n"
        "reply(second); reply(request, next=read()['method']); read()"
    )
    ear = Ear()
    first = asyncio.create_task(call(connection, caller=ear))
    await asyncio.wait_for(ear.questions.get(), LIMIT)
    await call(connection)
    await asyncio.wait_for(ear.cancelled.wait(), LIMIT)
    connection.notify("notifications/x", b"{}")
    assert await first == {"next": "notifications/x"}


async def test_open_questions_are_bounded_and_end_with_the_conversation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A18"""
    monkeypatch.setattr(stdio_upstream, "QUESTIONS", 1)
    connection = await bench.connect(
        "legacy(); request = read()\nfor n in range(2): send(id=n, method='roots/list')\n"
        "reply(request, answer=read()); read()"
    )
    ear = Ear()
    answer = (await call(connection, caller=ear))["answer"]
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    await connection.close()
    assert ear.cancelled.is_set()


async def test_a_modern_server_cannot_ask(bench: Bench) -> None:
    """A18: questions are part of results there."""
    connection = await bench.connect(
        "describe(expect('server/discover')); request = read(); send(id=1, method='roots/list')\n"
        "reply(request, answer=read()); read()",
        era="modern",
    )
    assert (await call(connection, caller=Ear()))["answer"]["error"]["code"] == -32601


async def test_list_changes_of_a_modern_server_are_listened_for(bench: Bench) -> None:
    """A16: as far as it offers them; the tag of our subscription stays here, and does not count as a call."""
    capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {}, "logging": 5}
    connection = await bench.connect(
        f"describe(expect('server/discover'), capabilities={capabilities}); listen = expect('subscriptions/listen')\n"
        "tag = {'io.modelcontextprotocol/subscriptionId': listen['id']}\n"
        "note('notifications/subscriptions/acknowledged', _meta=tag, notifications={'toolsListChanged': True})\n"
        "note('notifications/tools/list_changed', _meta=tag)\n"
        "note('notifications/resources/updated', _meta={**tag, 'x': 1})\n"
        "request = read(); note('notifications/message', data=1); reply(request, listen=listen); read()",
        era="modern",
    )
    assert await bench.listener.next() == ("notifications/tools/list_changed", {})
    assert await bench.listener.next() == ("notifications/resources/updated", {"_meta": {"x": 1}})
    ear = Ear()
    listen = (await call(connection, caller=ear))["listen"]
    assert await ear.next() == ("notifications/message", {"data": 1})
    assert listen["params"]["notifications"] == {"toolsListChanged": True}
    assert listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


# ---- the end


async def test_a_crash_fails_every_pending_call_with_the_exit_code(bench: Bench) -> None:
    """A15, A16: and nothing may be repeated, for the bytes were written."""
    connection = await bench.connect("legacy(); [read() for _ in range(3)]; os._exit(7)")
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


async def test_a_killed_server_is_named_by_its_signal(bench: Bench) -> None:
    connection = await bench.connect("legacy(); read(); os.kill(os.getpid(), 9)")
    with pytest.raises(Crashed, match="was ended by SIGKILL"):
        await call(connection)


async def test_the_last_words_of_a_server_count(bench: Bench) -> None:
    """A15: it answers and exits in one breath."""
    connection = await bench.connect("legacy(); reply(read(), text='x' * 50_000); os._exit(0)")
    assert len((await call(connection))["text"]) == 50_000
    assert await asyncio.wait_for(connection.closed, LIMIT) == "exited with code 0"


async def test_a_child_that_keeps_the_pipe_open_does_not_hide_the_exit(bench: Bench) -> None:
    """A16: the exit is enough, end-of-file need not come."""
    connection = await bench.connect(
        "legacy(); read()\nif not os.fork(): time.sleep(2); os._exit(0)\nsend(id=2, result={'last': 1}); os._exit(5)"
    )
    assert await call(connection) == {"last": 1}
    assert await asyncio.wait_for(connection.closed, 1.5) == "exited with code 5"


async def test_a_server_that_closes_its_output_and_lives_is_gone_too(bench: Bench) -> None:
    connection = await bench.connect("legacy(); read(); os.close(1); os.closerange(3, 256); time.sleep(60)")
    with pytest.raises(Crashed, match="closed its output"):
        await call(connection)
    with pytest.raises(Crashed):
        await call(connection)


async def test_leaving_closes_stdin_so_that_the_server_can_end_by_itself(bench: Bench) -> None:
    connection = await bench.connect("legacy(); reply(read()); read()")
    await call(connection)
    await connection.close()
    assert await asyncio.wait_for(bench.process.wait(), LIMIT) == 0
    assert connection.closed.result() == "was stopped"


async def test_pending_calls_fail_when_the_conversation_is_closed(bench: Bench) -> None:
    connection = await bench.connect("legacy()\nwhile read(): pass")
    waiting = asyncio.create_task(connection.request("tools/call", b"{}"))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Crashed, match="was stopped before it answered"):
        await waiting


async def test_a_server_that_does_not_read_makes_busy_not_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A15: what waits for it is bounded; what was refused was not written."""
    monkeypatch.setattr(upstream_pipe, "QUEUE", 100_000)
    connection = await bench.connect("legacy(); time.sleep(60)")
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
