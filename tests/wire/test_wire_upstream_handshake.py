"""How a conversation with a server on stdio begins: era, version, failures."""

from __future__ import annotations

import json

import pytest
from stdio_bench import StdioBench, call

from mooring.errors import StartFailed, TimedOut, UpstreamProtocol
from mooring.nouns import Era
from mooring.wire.stdio_upstream import NeedsRespawn


async def test_a_server_known_as_legacy_is_not_probed(stdio_bench: StdioBench) -> None:
    """A16: straight to initialize, and the facts are what the server said, byte for byte."""
    connection = await stdio_bench.connect(
        "hello = expect('initialize'); welcome(hello); expect('notifications/initialized')\n"
        "reply(read(), hello=hello['params'])",
        capabilities=b'{"elicitation":{}}',
    )
    assert stdio_bench.phases == ["initialize"]
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
async def test_any_error_on_the_probe_falls_back_to_initialize(stdio_bench: StdioBench, code: int) -> None:
    """A16: TypeScript servers say -32601, Python 1.x servers -32602."""
    connection = await stdio_bench.connect(
        f"fail(expect('server/discover'), {code}); welcome(expect('initialize')); read()", era=None
    )
    assert connection.facts.era == "legacy"
    assert stdio_bench.phases == ["discover", "initialize"]


async def test_nonsense_on_the_probe_falls_back_to_initialize(stdio_bench: StdioBench) -> None:
    """A16: a result that is none of a modern server proves nothing."""
    connection = await stdio_bench.connect(
        "reply(expect('server/discover'), tools=[]); welcome(expect('initialize')); read()", era=None
    )
    assert connection.facts.era == "legacy"


async def test_silence_on_the_probe_falls_back_to_initialize(stdio_bench: StdioBench) -> None:
    """A16: some servers never answer what they do not know."""
    connection = await stdio_bench.connect(
        "expect('server/discover'); welcome(expect('initialize')); read()", era=None, timeout=2
    )
    assert connection.facts.era == "legacy"


async def test_exit_on_the_probe_asks_for_a_fresh_process(stdio_bench: StdioBench) -> None:
    """A16: which is then spoken to without a probe."""
    script = "if read()['method'] != 'initialize': sys.exit(3)\nwelcome({'id': 1}); read()"
    with pytest.raises(NeedsRespawn) as respawn:
        await stdio_bench.connect(script, era=None)
    assert respawn.value.era == "legacy"
    assert (await stdio_bench.connect(script, era=respawn.value.era)).facts.era == "legacy"


async def test_a_modern_server_is_recognised_by_its_answer(stdio_bench: StdioBench) -> None:
    """A16"""
    connection = await stdio_bench.connect(
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


async def test_a_modern_server_that_asks_for_another_version_is_asked_again(stdio_bench: StdioBench) -> None:
    """A16"""
    connection = await stdio_bench.connect(
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
async def test_a_server_that_offers_only_legacy_versions_is_legacy(stdio_bench: StdioBench, answer: str) -> None:
    """A16"""
    connection = await stdio_bench.connect(f"{answer}; welcome(expect('initialize')); read()", era=None)
    assert connection.facts.era == "legacy"


@pytest.mark.parametrize(
    "answer",
    [
        "describe(expect('server/discover'), ['2031-01-01'])",
        "fail(expect('server/discover'), -32022, supported=['2031-01-01'], requested='x')",
    ],
)
async def test_no_common_version_is_said(stdio_bench: StdioBench, answer: str) -> None:
    """A16"""
    with pytest.raises(UpstreamProtocol, match=r"scripted .*2031-01-01"):
        await stdio_bench.connect(f"{answer}; read()", era=None)


@pytest.mark.parametrize(
    "initialize",
    [
        "fail(hello, -32022, supported=['2026-07-28'], requested='2025-11-25')",
        "fail(hello, -32601)",
        "pass",
    ],
)
async def test_a_slow_modern_server_is_not_taken_for_a_legacy_one(stdio_bench: StdioBench, initialize: str) -> None:
    """A16: it answers the probe only after initialize was sent, and refuses or ignores that."""
    connection = await stdio_bench.connect(
        f"probe = expect('server/discover'); hello = expect('initialize'); describe(probe); {initialize}; read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"
    assert stdio_bench.phases == ["discover", "initialize"]


async def test_a_refusal_that_overtakes_the_answer_to_the_probe_is_no_end(stdio_bench: StdioBench) -> None:
    """A16"""
    connection = await stdio_bench.connect(
        "probe = expect('server/discover'); fail(expect('initialize'), -32601); describe(probe); read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"


async def test_a_modern_server_that_lost_the_probe_is_asked_again(stdio_bench: StdioBench) -> None:
    """A16"""
    connection = await stdio_bench.connect(
        "expect('server/discover')\n"
        "fail(expect('initialize'), -32022, supported=['2026-07-28'], requested='x')\n"
        "describe(expect('server/discover')); read()",
        era=None,
        timeout=2,
    )
    assert connection.facts.era == "modern"


@pytest.mark.parametrize("probe", ["describe(probe)", "fail(probe, -32601)", "pass"])
async def test_a_slow_server_that_accepts_initialize_is_legacy(stdio_bench: StdioBench, probe: str) -> None:
    """A16: whatever it says to the probe, it is in its legacy mode now."""
    connection = await stdio_bench.connect(
        f"probe = expect('server/discover'); hello = expect('initialize'); {probe}; welcome(hello); legacy = read()\n"
        "assert legacy['method'] == 'notifications/initialized', legacy; reply(read())",
        era=None,
        timeout=4,
    )
    assert connection.facts.era == "legacy"
    assert await call(connection) == {}


async def test_an_outdated_verdict_is_corrected(stdio_bench: StdioBench) -> None:
    """A16: it was legacy when it was last seen, and is modern now."""
    connection = await stdio_bench.connect(
        "fail(expect('initialize'), -32601); describe(expect('server/discover')); read()", era="legacy"
    )
    assert connection.facts.era == "modern"


async def test_a_refused_initialize_says_why(stdio_bench: StdioBench) -> None:
    """A16"""
    refusing = "fail(expect('server/discover'), -32601); fail(expect('initialize'), -32601, 'no way')"
    with pytest.raises(UpstreamProtocol, match="refused initialize: no way"):
        await stdio_bench.connect(refusing, era=None)


@pytest.mark.parametrize("answer", ["welcome(hello, '2031-01-01')", "welcome(hello, '2026-07-28')", "reply(hello)"])
async def test_an_unknown_version_in_initialize_is_refused(stdio_bench: StdioBench, answer: str) -> None:
    """A16"""
    with pytest.raises(UpstreamProtocol, match="which is not spoken here"):
        await stdio_bench.connect(f"hello = expect('initialize'); {answer}; read()")


@pytest.mark.parametrize(("era", "step"), [("legacy", "initialize"), ("modern", "initialize"), (None, "initialize")])
async def test_a_handshake_that_hangs_ends_in_time_and_says_where(
    stdio_bench: StdioBench, era: Era | None, step: str
) -> None:
    """A16"""
    with pytest.raises(TimedOut, match="scripted did not answer initialize") as error:
        await stdio_bench.connect("while read(): pass", era=era, timeout=0.5)
    assert error.value.facts() == {"kind": "timed_out", "server": "scripted", "phase": step}


async def test_an_exit_in_initialize_is_a_failed_start_with_the_code(stdio_bench: StdioBench) -> None:
    with pytest.raises(StartFailed, match="exited with code 3") as error:
        await stdio_bench.connect("read(); sys.exit(3)")
    assert error.value.details == {"server": "scripted", "phase": "initialize"}
