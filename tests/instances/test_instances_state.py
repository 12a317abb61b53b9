"""The state machine of an instance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.instances.state import MOVES, IllegalMove, Record, move

LEGAL = {(before, after) for before, afters in MOVES.items() for after in afters}


def test_the_moves_are_those_of_the_design() -> None:
    """R41: a state in ``ps`` can only be one of five."""
    assert set(MOVES) == {"stopped", "starting", "ready", "stopping", "backoff"}
    assert {
        ("stopped", "starting"),
        ("starting", "ready"),
        ("ready", "stopping"),
        ("stopping", "stopped"),
        ("starting", "backoff"),
        ("ready", "backoff"),
        ("backoff", "starting"),
        ("starting", "stopping"),
        ("backoff", "stopping"),
    } == LEGAL


@given(st.sampled_from(sorted(MOVES)), st.sampled_from(sorted(MOVES)))
def test_an_illegal_move_raises_and_a_legal_one_is_recorded(before: str, after: str) -> None:
    record = Record(state=before, since=1.0)  # type: ignore[arg-type]
    if (before, after) in LEGAL:
        moved = move(record, after, 2.0, "because", retry_at=5.0)  # type: ignore[arg-type]
        assert (moved.state, moved.since, moved.reason) == (after, 2.0, "because")
        assert (moved.retry_at is None) is (after != "backoff")
    else:
        with pytest.raises(IllegalMove, match=f"from {before} to {after}"):
            move(record, after, 2.0)  # type: ignore[arg-type]


def test_a_start_after_a_failure_counts_as_a_restart_and_keeps_the_last_error() -> None:
    failed = move(Record(state="starting"), "backoff", 1.0, "no luck", retry_at=2.0, phase="initialize", stderr="boo")
    again = move(failed, "starting", 3.0)
    assert (again.restarts, again.last_error, again.reason) == (1, "no luck", "")
    assert move(Record(), "starting", 3.0).restarts == 0
