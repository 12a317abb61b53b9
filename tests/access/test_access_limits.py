"""Limits: calls in a time and at the same time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.access import limits as module
from mooring.access.limits import Limits
from mooring.config.plan import Policy, Rate
from mooring.errors import Busy


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def called(limits: Limits, *policies: Policy, workspace: str = "w") -> bool:
    try:
        with limits.entered(workspace, policies):
            return True
    except Busy:
        return False


def test_a_rate_is_a_burst_that_comes_back_bit_by_bit() -> None:
    clock = Clock()
    limits, policy = Limits(clock), Policy("p", rate=Rate(3, 30.0))
    assert [called(limits, policy) for _ in range(4)] == [True, True, True, False]
    clock.now = 9.9
    assert not called(limits, policy)
    clock.now = 10.0
    assert [called(limits, policy) for _ in range(2)] == [True, False]
    clock.now = 1000.0
    assert [called(limits, policy) for _ in range(4)] == [True, True, True, False]


def test_who_comes_too_early_learns_when_to_come_again() -> None:
    limits, policy = Limits(Clock()), Policy("the policy of p", rate=Rate(1, 60.0))
    assert called(limits, policy)
    with pytest.raises(Busy, match="Only 1 calls in 60 s by the policy of p") as caught, limits.entered("w", (policy,)):
        pass
    assert 50 < caught.value.details["retry_at"] - time.time() < 61


def test_so_many_calls_at_the_same_time_and_no_more() -> None:
    limits, policy = Limits(Clock()), Policy("p", concurrency=2)
    with limits.entered("w", (policy,)), limits.entered("w", (policy,)):
        assert not called(limits, policy)
        assert called(limits, policy, workspace="other")
    assert called(limits, policy)


def test_a_call_that_one_policy_refuses_counts_for_none() -> None:
    limits = Limits(Clock())
    wide, narrow = Policy("wide", rate=Rate(2)), Policy("narrow", concurrency=1)
    with limits.entered("w", (wide, narrow)):
        assert not called(limits, wide, narrow)
        assert called(limits, wide)
        assert not called(limits, wide)


def test_another_rate_holds_at_once_and_keeps_what_runs() -> None:
    limits = Limits(Clock())
    with limits.entered("w", (Policy("p", rate=Rate(1), concurrency=1),)):
        assert not called(limits, Policy("p", rate=Rate(5), concurrency=1))
        assert called(limits, Policy("p", rate=Rate(5), concurrency=2))


def test_no_limit_costs_no_memory_and_many_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATES", 3)
    limits = Limits(Clock())
    assert called(limits)
    assert limits._states == {}
    for number in range(10):
        called(limits, Policy(f"p{number}", concurrency=1))
    assert len(limits._states) <= 3


@given(st.integers(1, 5), st.floats(0.5, 50), st.lists(st.floats(0, 20), max_size=40))
def test_never_more_than_the_burst_and_what_came_back(calls: int, per: float, waits: list[float]) -> None:
    clock = Clock()
    limits, policy = Limits(clock), Policy("p", rate=Rate(calls, per))
    made: list[float] = []
    for wait in waits:
        clock.now += wait
        if called(limits, policy):
            made.append(clock.now)
    for start in range(len(made)):
        for end in range(start, len(made)):
            assert end - start + 1 <= calls + (made[end] - made[start]) * calls / per + 1e-6
