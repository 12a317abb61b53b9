"""A real collector is sent spans and figures of real calls, and its absence hurts nobody."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.speech import Era
from otlp_receiver import Receiver, plain, receiver

Start = Callable[..., Awaitable[Daemon]]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
ROOMS = {"w": {"mcp_servers": ["echo"], "policy": {"deny": [{"tool": "env"}]}}}
SENT = 30.0
"""Seconds until what happened is there, on a machine with much to do."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")


async def spans(there: Receiver, count: int) -> dict[str, Any]:
    await wait_for(lambda: len(there.spans()) >= count, SENT)
    return {span.name: span for span in there.spans()}


def points(there: Receiver, name: str) -> list[tuple[dict[str, Any], Any]]:
    metric = there.metrics().get(name)
    if metric is None:
        return []
    data = getattr(metric, metric.WhichOneof("data"))
    return [(plain(point.attributes), point) for point in data.data_points]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_calls_are_spans_of_their_callers_trace_which_the_server_gets_as_it_was(start: Start, era: Era) -> None:
    with receiver() as there:
        daemon = await start({"echo": server()}, ROOMS, telemetry={"endpoint": there.url + "/"})
        async with await daemon.client("w", era) as client:
            await client.open()
            given = {"name": "echo_echo", "arguments": {"text": "hi"}, "_meta": CONTEXT}
            assert not (await client.result("tools/call", given)).get("isError")
            assert (await client.call("echo_env"))["isError"]
            await client.request("resources/read", {"uri": "nobody://knows"})
        found = await spans(there, 3)
        call = found["tools/call echo_echo"]
        assert (call.trace_id.hex(), call.parent_span_id.hex(), call.trace_state) == (TRACE, PARENT, "vendor=1")
        assert call.end_time_unix_nano > call.start_time_unix_nano
        said = plain(call.attributes)
        assert (said["mcp.method.name"], said["gen_ai.tool.name"]) == ("tools/call", "echo_echo")
        assert said["mooring.workspace"] == "w"
        (row,) = await daemon.rows("echo")
        assert said["mooring.instance"] == row.instance
        assert ("mcp.session.id" in said) is (era == "legacy")
        denied = found["tools/call echo_env"]
        assert (denied.status.code, plain(denied.attributes)["error.type"]) == (2, "denied_rule")
        assert denied.trace_id.hex() != TRACE
        assert there.resource()["service.name"] == "mooring"


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_server_gets_the_callers_trace_context_untouched(start: Start, era: Era, upstream: Era) -> None:
    with receiver() as there:
        daemon = await start({"echo": server("--era", upstream)}, None, telemetry={"endpoint": there.url})
        async with await daemon.client("w", era) as client:
            await client.open()
            given = {"name": "echo_seen", "arguments": {}, "_meta": {**CONTEXT, "baggage": "k=v"}}
            answer = await client.result("tools/call", given)
        for value in (*CONTEXT.values(), "k=v"):
            assert value in str(answer)


async def test_figures_tell_calls_errors_durations_and_instances(start: Start) -> None:
    with receiver() as there:
        daemon = await start({"echo": server()}, ROOMS, telemetry={"endpoint": there.url, "traces": False})
        async with await daemon.client("w") as client:
            await client.open()
            for _ in range(3):
                await client.call("echo_echo", {"text": "hi"})
            await client.call("echo_env")

        def counted() -> bool:
            return sum(point.as_int for _, point in points(there, "mooring.requests")) == 4

        await wait_for(counted, SENT)
        ((about, errors),) = points(there, "mooring.errors")
        assert (about["error.type"], errors.as_int) == ("denied_rule", 1)
        ((about, durations),) = points(there, "mcp.server.operation.duration")
        assert (about["gen_ai.tool.name"], durations.count) == ("echo_echo", 3)
        assert [(about["mooring.server"], each.as_int) for about, each in points(there, "mooring.instances")] == [
            ("echo", 1)
        ]
        assert points(there, "mooring.instance.starts")[0][1].as_int >= 1
        assert points(there, "mooring.instance.start.duration")[0][1].count >= 1
        assert there.spans() == []


async def test_a_collector_that_is_away_is_told_of_once_and_hurts_nobody(start: Start) -> None:
    with receiver() as there:
        there.status = 400
        daemon = await start({"echo": server()}, None, telemetry={"endpoint": there.url})
        async with await daemon.client("w") as client:
            await client.open()
            await client.call("echo_echo", {"text": "hi"})
            await wait_for(lambda: "takes nothing" in daemon.output, SENT)
            for _ in range(5):
                assert not (await client.call("echo_echo", {"text": "hi"})).get("isError")
                await asyncio.sleep(0.3)
            assert daemon.output.count("takes nothing") == 1
            assert daemon.output.count("OpenTelemetry") == 1
            there.status = 200
            await client.call("echo_echo", {"text": "hi"})
            await wait_for(lambda: "takes traces and metrics again" in daemon.output, SENT)
        assert "Traceback" not in daemon.output


async def test_a_stop_sends_the_rest_and_does_not_wait_for_who_is_away(start: Start) -> None:
    with receiver() as there:
        daemon = await start({"echo": server()}, None, telemetry={"endpoint": there.url})
        async with await daemon.client("w") as client:
            await client.open()
            await client.call("echo_pid")
        daemon.process.terminate()
        assert await daemon.ended() == 0
        assert "tools/call echo_pid" in {span.name for span in there.spans()}
    gone = await start({"echo": server()}, None, telemetry={"endpoint": there.url})  # nobody listens there now
    async with await gone.client("w") as client:
        await client.open()
        await client.call("echo_pid")
    gone.process.terminate()
    assert await gone.ended() == 0


async def test_a_reload_switches_it_on_and_off(start: Start) -> None:
    from mooring.testing.daemon import write_config

    with receiver() as there:
        daemon = await start({"echo": server()})
        async with await daemon.client("w") as client:
            await client.open()
            await client.call("echo_pid")
            file = daemon.home / "mooring.toml"
            write_config(file, {"echo": server()}, telemetry={"endpoint": there.url})
            assert (await daemon.mooring.reload()).applied
            await client.call("echo_echo", {"text": "1"})
            await spans(there, 1)
            assert {span.name for span in there.spans()} == {"tools/call echo_echo"}
            await wait_for(lambda: points(there, "mooring.instances"), SENT)
            assert points(there, "mooring.instances")[0][1].as_int == 1  # it ran before
            write_config(file, {"echo": server()})
            assert (await daemon.mooring.reload()).applied
            await client.call("echo_env")
        assert {span.name for span in there.spans()} == {"tools/call echo_echo"}


async def test_nothing_of_it_is_loaded_where_nobody_wants_it(start: Start, tmp_path: Any) -> None:
    """The daemon's own process has no such module, though the environment names a collector."""
    witness = "import sys; from mooring.serve import app; print(any('opentelemetry' in name for name in sys.modules))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", witness, stdout=asyncio.subprocess.PIPE, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    assert out.strip() == b"False"
    with receiver() as there:
        daemon = await start({"echo": server()})
        async with await daemon.client("w") as client:
            await client.open()
            await client.call("echo_pid")
        with open(f"/proc/{daemon.process.pid}/maps") as maps:
            assert "opentelemetry" not in maps.read()
        assert there.requests == []
