"""The sink before a collector: never blocks, never grows, and says what it lacks."""

from __future__ import annotations

import logging
import sys

import pytest

from mooring.config.plan import Telemetry
from mooring.observe import otel
from mooring.observe.events import Event
from mooring.observe.otel import Otel
from mooring.testing import wait_for


def denied() -> Event:
    data = {"method": "tools/call", "tool": "t", "key": "k", "session": "", "version": "", "id": "1", "ground": "rule"}
    return Event("policy.denied", 1.0, "w", data=data)


def test_what_is_not_sent_anyway_starts_nothing() -> None:
    sink = Otel(Telemetry())
    sink(Event("key.created", 1.0))
    assert sink._thread is None


def test_a_thread_that_does_not_keep_up_costs_events_and_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "WAITING", 3)
    sink = Otel(Telemetry())
    monkeypatch.setattr(sink, "_wake", lambda: None)
    for _ in range(5):
        sink(denied())
    assert (len(sink._queue), sink.lost) == (3, 2)


async def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    sink = Otel(Telemetry(endpoint="http://127.0.0.1:9"))
    with caplog.at_level(logging.ERROR, logger="mooring"):
        sink(denied())
        thread = sink._thread
        assert thread is not None
        await wait_for(lambda: not thread.is_alive(), 10)
        sink(denied())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["[telemetry] sends nothing"]
    assert "pip install 'mooring[otel]'" in caplog.text
    sink.end()
    await sink.ended()
