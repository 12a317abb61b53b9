"""The decisions of the pool, without a clock or a task."""

from __future__ import annotations

import msgspec
import pytest
from fake_opener import variant
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.plan_servers import Functions, Process, Remote, Timeouts
from mooring.instances import rules
from mooring.instances.state import Record


def test_waits_double_from_one_second_to_sixty() -> None:
    """A16: restart with back-off and a cap."""
    failures, waits = 0, []
    for _ in range(9):
        failures, wait = rules.after_failure(failures, None)
        waits.append(wait)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_first_crash_after_a_minute_of_ready_costs_no_wait_and_the_next_ones_do() -> None:
    """A16"""
    failures, wait = rules.after_failure(5, ready_for=60.0)
    assert (failures, wait) == (0, 0.0)
    assert rules.after_failure(failures, ready_for=59.9) == (1, 1.0)


@given(st.integers(0, 10**6), st.none() | st.floats(0, 1e9))
def test_no_wait_is_longer_than_a_minute(failures: int, ready_for: float | None) -> None:
    _, wait = rules.after_failure(failures, ready_for)
    assert 0 <= wait <= 60


@given(st.integers(0, 5), st.floats(0, 1e6), st.floats(0, 1e6))
def test_only_an_unused_instance_with_a_timeout_idles(pins: int, idle_for: float, idle_timeout: float) -> None:
    """R14: idle stop only after real inactivity; 0 means never."""
    left = rules.idle_left(pins, idle_for, idle_timeout)
    if pins or not idle_timeout:
        assert left is None
    else:
        assert left == max(0.0, idle_timeout - idle_for)


def test_who_cannot_have_a_lease_at_once_waits_or_is_told_why_not() -> None:
    assert rules.entry(Record(state="ready"), draining=True, now=0) == "leaving"
    assert rules.entry(Record(state="backoff", retry_at=5), draining=False, now=4) == "backing off"
    assert rules.entry(Record(state="backoff", retry_at=5), draining=False, now=5) == "wait"
    for state in ("stopped", "starting", "stopping"):
        assert rules.entry(Record(state=state), draining=False, now=0) == "wait"


@pytest.mark.parametrize(
    ("variants", "reason"),
    [
        ({}, "it is no longer configured"),
        ({"time": variant(digest="d2")}, "its definition changed"),
        ({"time": variant(unavailable="switched off")}, "switched off"),
        ({"time": variant(idle_timeout=3)}, ""),
    ],
)
def test_an_instance_is_wanted_while_its_digest_is_configured(variants: dict, reason: str) -> None:
    assert rules.unwanted(variant().key(), variants) == reason


def test_the_next_try_is_said_in_whole_seconds() -> None:
    assert rules.next_try(3.2) == "next try in 4 s"
    assert rules.next_try(0.0) == "the next call tries again"


def test_slow_phases_have_a_limit_of_their_own() -> None:
    timeouts = Timeouts(start=10, pull=600, look_up=20)
    assert rules.own_limit("pull", timeouts) == 600
    assert rules.own_limit("look-up", timeouts) == 20
    assert rules.own_limit("initialize", timeouts) is None
    assert [rules.limit_name(phase) for phase in ("build", "look-up", "start")] == [
        "timeouts.pull",
        "timeouts.look_up",
        "timeouts.start",
    ]


def test_who_is_not_to_blame_waits_for_nothing_and_is_held_nothing_against() -> None:
    """A16: such as the end of the keeper, or of a container engine."""
    assert rules.after_failure(3, 1.0, blamed=False) == (3, 0.0)
    assert rules.after_failure(0, None, blamed=False) == (0, 0.0)


def test_only_what_is_started_here_and_belongs_to_nobody_yet_is_started_in_advance() -> None:
    one = msgspec.structs.replace(variant(), spare=2)
    assert rules.spares(one) == 2
    for changes in (
        {"launch": Remote("http://x")},
        {"launch": Functions("mine")},
        {"launch": Process(("true", "{session}"))},
        {"unavailable": "switched off"},
    ):
        assert rules.spares(msgspec.structs.replace(one, **changes)) == 0


def test_who_is_used_or_must_stay_never_makes_room() -> None:
    assert rules.may_give_way(variant(idle_timeout=1), "", 0)
    assert not rules.may_give_way(variant(idle_timeout=1), "", 1)
    assert not rules.may_give_way(variant(idle_timeout=0), "", 0), "its state must outlive calls"
    assert not rules.may_give_way(variant(idle_timeout=1), "s:0123456789", 0), "its session is open"


def test_only_the_session_of_a_client_pins_its_instances() -> None:
    """R14"""
    assert rules.pinned("s:abc")
    assert not any(map(rules.pinned, ("", "w:alice", "look:x", "s:key:k_1", "s:bare:k_1", "s:local:alice")))
