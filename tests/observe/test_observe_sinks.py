"""The log and the metrics: every event counted or written once, cheaply, and without secrets."""

from __future__ import annotations

import io
import logging
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.nouns import InstanceRow
from mooring.observe import sinks
from mooring.observe.events import Event, Events
from mooring.observe.redact import MASK, Redactor
from mooring.observe.sinks import BUCKETS, MAX_TOOLS, Metrics, Now, describe, log_sink, open_log


def call(server: str = "time", outcome: str = "ok", seconds: float = 0.02, workspace: str = "alice") -> Event:
    return Event("call.finished", 1.0, workspace, server, data={"outcome": outcome, "seconds": seconds, "tool": "t"})


def called(server: str = "time", workspace: str = "alice", **data: Any) -> Event:
    return Event("call.finished", 1.0, workspace, server, data={"outcome": "ok", "seconds": 0.1, **data})


class TestLog:
    """One human line an event."""

    @pytest.fixture(autouse=True)
    def restored(self) -> Iterator[None]:
        root, level = logging.getLogger(), logging.getLogger("mooring").level
        before = root.handlers[:]
        yield
        for handler in root.handlers[:]:
            if handler not in before:
                root.removeHandler(handler)
                handler.close()
        logging.getLogger("mooring").setLevel(level)

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "daemon.log"

    def test_an_event_is_one_line_with_what_it_carries(self) -> None:
        event = Event("instance.ready", 1.0, "alice", "time", "time-1", "t1", {"seconds": 0.2100000001, "pid": 7})
        assert (
            describe(event) == "instance.ready workspace=alice server=time instance=time-1 trace=t1 seconds=0.21 pid=7"
        )

    def test_what_an_event_does_not_carry_is_left_out(self) -> None:
        assert describe(Event("list.changed", 1.0, data={"a": "", "b": None, "c": 0})) == "list.changed c=0"

    @pytest.mark.parametrize(
        "value", ["two words", "line\nforged INFO mooring: x", 'quo"te', "a=b", "\x1b[31m", "\udc80"]
    )
    def test_values_cannot_forge_lines_or_members(self, value: str) -> None:
        line = describe(Event("config.rejected", 1.0, data={"error": value}))
        assert line == f"config.rejected error={value!r}"
        assert line.isprintable()

    @given(st.text())
    def test_every_event_is_one_printable_line(self, value: str) -> None:
        assert describe(Event("config.rejected", 1.0, data={"error": value})).isprintable()

    def test_a_line_has_time_level_and_origin(self, file: Path) -> None:
        open_log(file, Redactor())
        log_sink(Event("instance.crashed", 1.0, server="time", data={"exit_code": 3}))
        line = file.read_text()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING mooring: instance.crashed server=time exit_code=3\n", line
        )

    def test_calls_are_written_at_debug_only(self, file: Path) -> None:
        open_log(file, Redactor())
        log_sink(call())
        assert file.read_text() == ""
        open_log(file, Redactor(), logging.DEBUG)
        log_sink(call())
        assert "DEBUG mooring: call.finished" in file.read_text()

    def test_r22_secrets_are_masked_in_events_messages_and_tracebacks(self, file: Path) -> None:
        """R22: values never appear in logs."""
        redact = Redactor()
        redact.add("hunter22")
        open_log(file, redact)
        log_sink(Event("config.rejected", 1.0, data={"error": "bad hunter22"}))
        try:
            raise ValueError("hunter22")
        except ValueError:
            logging.getLogger("asyncio").exception("a library says hunter22")
        text = file.read_text()
        assert "hunter22" not in text
        assert "Traceback" in text
        assert text.count(MASK) >= 3

    def test_without_a_file_the_log_goes_to_stderr(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stderr = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stderr)
        open_log(None, Redactor())
        log_sink(Event("session.opened", 1.0, "alice"))
        assert stderr.getvalue().endswith("INFO mooring: session.opened workspace=alice\n")

    def test_opening_again_replaces_the_log_before(self, file: Path, tmp_path: Path) -> None:
        open_log(file, Redactor())
        open_log(tmp_path / "other.log", Redactor())
        log_sink(Event("session.opened", 1.0))
        assert file.read_text() == ""
        assert "session.opened" in (tmp_path / "other.log").read_text()

    def test_the_file_is_the_owners_alone_and_text_that_is_no_unicode_is_escaped(self, file: Path) -> None:
        file.touch(0o644)
        open_log(file, Redactor())
        logging.getLogger("mooring").warning("half a \udc80 character")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert r"half a \udc80 character" in file.read_text()

    def test_a_long_file_is_put_aside_when_the_log_is_opened(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sinks, "LOG_LIMIT", 10)
        file.write_text("0123456789")
        open_log(file, Redactor())
        assert file.read_text() == "0123456789"
        file.write_text("0123456789+")
        open_log(file, Redactor())
        assert file.read_text() == ""
        assert file.with_name("daemon.log.1").read_text() == "0123456789+"


SERIES = re.compile(r'(mooring_[a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\d+(?:\.\d+)?)')


def scraped(metrics: Metrics, *instances: InstanceRow) -> dict[str, float]:
    """Every series of a scrape by name and labels, checking the format of every line and that none comes twice."""
    found: dict[str, float] = {}
    text = metrics.render(Now(instances))
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            assert re.match(r"# (HELP|TYPE) mooring_\w+ \S", line)
            continue
        match = SERIES.fullmatch(line)
        assert match, line
        series = line.rpartition(" ")[0]
        assert series not in found
        found[series] = float(match[3])
    return found


class TestMetrics:
    """What the scraper sees."""

    def test_calls_are_counted_by_workspace_server_and_outcome(self) -> None:
        metrics = Metrics()
        for event in (call(), call(), call(outcome="error"), call(server="linear"), call(workspace="bob")):
            metrics(event)
        found = {name: value for name, value in scraped(metrics).items() if name.startswith("mooring_calls_total")}
        assert found == {
            'mooring_calls_total{workspace="alice",server="time",outcome="ok"}': 2,
            'mooring_calls_total{workspace="alice",server="time",outcome="error"}': 1,
            'mooring_calls_total{workspace="alice",server="linear",outcome="ok"}': 1,
            'mooring_calls_total{workspace="bob",server="time",outcome="ok"}': 1,
        }

    def test_durations_fall_into_cumulative_buckets(self) -> None:
        metrics = Metrics()
        for seconds in (0.0005, 0.001, 0.02, 400.0):
            metrics(call(seconds=seconds))
        found = scraped(metrics)
        name = 'mooring_call_duration_seconds_bucket{server="time",le="%s"}'
        assert [found[name % bound] for bound in (0.001, 0.01, 0.025, 300.0, "+Inf")] == [2, 2, 3, 3, 4]
        assert found['mooring_call_duration_seconds_count{server="time"}'] == 4
        assert found['mooring_call_duration_seconds_sum{server="time"}'] == pytest.approx(400.0215)

    @given(st.lists(st.floats(0, 1000)))
    def test_every_duration_is_in_exactly_the_buckets_it_fits(self, seconds: list[float]) -> None:
        metrics = Metrics()
        metrics(call(seconds=0.0))
        for one in seconds:
            metrics(call(seconds=one))
        found = scraped(metrics)
        for bound in BUCKETS:
            expected = 1 + sum(one <= bound for one in seconds)
            assert found[f'mooring_call_duration_seconds_bucket{{server="time",le="{bound}"}}'] == expected

    def test_instances_are_shown_by_state_also_where_there_are_none(self) -> None:
        rows = [InstanceRow("time", "time", "ready"), InstanceRow("a", "a", "ready"), InstanceRow("b", "b", "backoff")]
        found = {name: value for name, value in scraped(Metrics(), *rows).items() if "instances{" in name}
        assert found == {
            'mooring_instances{state="stopped"}': 0,
            'mooring_instances{state="starting"}': 0,
            'mooring_instances{state="ready"}': 2,
            'mooring_instances{state="stopping"}': 0,
            'mooring_instances{state="backoff"}': 1,
        }

    def test_starts_crashes_and_sessions_are_counted(self) -> None:
        metrics = Metrics()
        names = ("instance.starting", "instance.starting", "instance.crashed", "session.opened", "session.opened")
        for name in (*names, "session.closed", "instance.ready", "key.created"):
            metrics(Event(name, 1.0, server="time"))
        found = scraped(metrics)
        assert found['mooring_instance_starts_total{server="time"}'] == 2
        assert found['mooring_instance_crashes_total{server="time"}'] == 1
        assert found["mooring_sessions"] == 1

    def test_what_is_configured_shows_as_zero_and_declaring_again_resets_nothing(self) -> None:
        metrics = Metrics()
        metrics.declare([("alice", "time")])
        metrics(call())
        metrics.declare([("alice", "time"), ("alice", "linear")])
        found = scraped(metrics)
        assert found['mooring_calls_total{workspace="alice",server="time",outcome="ok"}'] == 1
        assert found['mooring_calls_total{workspace="alice",server="time",outcome="failed"}'] == 0
        assert found['mooring_instance_starts_total{server="linear"}'] == 0

    @given(st.text())
    def test_any_name_is_a_well_formed_label(self, name: str) -> None:
        metrics = Metrics()
        metrics(call(server=name, workspace=name))
        scraped(metrics)

    def test_series_are_capped_and_nothing_goes_uncounted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sinks, "MAX_SERIES", 2)
        metrics = Metrics()
        for number in range(5):
            metrics(call(server=f"s{number}"))
        found = scraped(metrics)
        assert found['mooring_calls_total{workspace="other",server="other",outcome="ok"}'] == 3
        assert found['mooring_call_duration_seconds_count{server="other"}'] == 3
        assert sum(value for name, value in found.items() if name.startswith("mooring_calls_total")) == 5

    def test_calls_are_counted_by_tool_up_to_a_bound(self) -> None:
        """One server with ever new tools takes nothing from the others."""
        metrics = Metrics()
        for number in range(MAX_TOOLS + 5):
            metrics(called("busy", tool=f"busy_{number}"))
        metrics(called("calm", tool="calm_t", outcome="error"))
        found = {name: value for name, value in scraped(metrics).items() if "tool_calls_total" in name}
        assert len(found) == MAX_TOOLS + 2
        assert found['mooring_tool_calls_total{server="busy",tool="busy_0",outcome="ok"}'] == 1
        assert found['mooring_tool_calls_total{server="busy",tool="other",outcome="ok"}'] == 5
        assert found['mooring_tool_calls_total{server="calm",tool="calm_t",outcome="error"}'] == 1

    def test_other_requests_are_counted_by_method_and_leave_the_calls_alone(self) -> None:
        metrics = Metrics()
        for method in ("resources/read", "resources/read", "vendor/anything", "vendor/else"):
            metrics(called(method=method, target="x://secret"))
        found = scraped(metrics)
        assert found['mooring_requests_total{server="time",method="resources/read",outcome="ok"}'] == 2
        assert found['mooring_requests_total{server="time",method="other",outcome="ok"}'] == 2
        assert not any("calls_total" in name or "call_duration" in name for name in found)

    def test_refusals_are_counted_by_what_they_rest_on(self) -> None:
        metrics = Metrics()
        for ground in ("rule", "rule", "unknown", "key"):
            metrics(Event("policy.denied", 1.0, "alice", data={"ground": ground, "reason": "long"}))
        for error in ("declined", "busy", "crashed"):
            metrics(called(outcome="failed", error=error))
        found = {name: value for name, value in scraped(metrics).items() if "denied_total" in name}
        assert found == {
            'mooring_denied_total{workspace="alice",reason="rule"}': 2,
            'mooring_denied_total{workspace="alice",reason="unknown"}': 1,
            'mooring_denied_total{workspace="alice",reason="key"}': 1,
            'mooring_denied_total{workspace="alice",reason="declined"}': 1,
            'mooring_denied_total{workspace="alice",reason="busy"}': 1,
        }

    def test_what_waits_at_this_moment_is_shown(self) -> None:
        rows = (
            InstanceRow("a", "a", "starting", reason="queue"),
            InstanceRow("b", "b", "starting", reason="initialize"),
            InstanceRow("c", "c", "ready", leases=3),
        )
        text = Metrics().render(Now(rows, waiting=4, parked=2, audit_lost=1, audit_waiting=7))
        shown = {
            "starts_queued 1",
            "leases 3",
            "calls_waiting 4",
            "calls_parked 2",
            "audit_lost_total 1",
            "audit_waiting 7",
        }
        assert {f"mooring_{line}" for line in shown} <= set(text.splitlines())

    def test_the_time_until_a_server_is_ready_is_a_histogram(self) -> None:
        metrics = Metrics()
        metrics(Event("instance.ready", 1.0, server="time", data={"seconds": 0.3}))
        found = scraped(metrics)
        assert found['mooring_instance_start_seconds_bucket{server="time",le="0.25"}'] == 0
        assert found['mooring_instance_start_seconds_bucket{server="time",le="0.5"}'] == 1

    def test_r22_no_key_or_reason_becomes_a_label(self) -> None:
        """R22: status shows no values."""
        metrics = Metrics()
        data: dict[str, Any] = {"tool": "t", "target": "u-secret", "key": "k_secret", "reason": "r-secret"}
        for name in ("call.finished", "policy.denied", "key.refused", "instance.crashed", "session.opened"):
            metrics(Event(name, 1.0, "alice", "time", "i-secret", "x-secret", data))
        assert "secret" not in metrics.render(Now())

    def test_an_event_costs_about_a_microsecond(self) -> None:
        events, event = Events((log_sink, Metrics())), call()
        rounds: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(500):
                events.emit(event)
            rounds.append((time.perf_counter() - started) / 500)
        assert min(rounds) < 20e-6
