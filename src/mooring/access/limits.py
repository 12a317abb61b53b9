"""How much a workspace and a key may do: calls in a time, and at the same time.

Asked by ``relay.forward`` and ``relay.calls`` for every request that goes to a server. Holds one small state for each
policy that sets a limit, in memory only; a new start of the daemon begins with full measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from mooring.config.plan import Policy
from mooring.errors import Busy

MAX_STATES = 1024
"""Policies that are remembered; beyond it those without running calls are forgotten."""
_FREE: AbstractContextManager[None] = nullcontext()


class _State(msgspec.Struct):
    policy: Policy
    tokens: float
    """Calls that may be made now."""
    at: float
    """When they were counted."""
    running: int = 0


class _Counted:
    """A request that counts in all ``states``, as long as it runs."""

    def __init__(self, states: list[_State]) -> None:
        self._states = states

    def __enter__(self) -> None:
        for state in self._states:
            _check(state)
        for state in self._states:
            state.tokens -= 1.0
            state.running += 1

    def __exit__(self, *_: object) -> None:
        for state in self._states:
            state.running -= 1


class Limits:
    """A token bucket and a counter for each policy that wants them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[tuple[str, str], _State] = {}

    def entered(self, workspace: str, policies: tuple[Policy, ...]) -> AbstractContextManager[None]:
        """A block around one request; ``policies``: those that count. Entering it raises Busy where a measure is used
        up; nothing is counted then."""
        return _Counted([self._state(workspace, policy) for policy in policies]) if policies else _FREE

    def _state(self, workspace: str, policy: Policy) -> _State:
        now = self._clock()
        place = (workspace, policy.name)
        state = self._states.get(place)
        rate = policy.rate
        full = float(rate.calls) if rate else 0.0
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._states = {place: state for place, state in self._states.items() if state.running}
            state = self._states[place] = _State(policy, full, now)
        elif state.policy.rate != rate:
            state.tokens = full
        elif rate:
            state.tokens = min(full, state.tokens + (now - state.at) * rate.calls / rate.per)
        state.policy, state.at = policy, now
        return state


def _check(state: _State) -> None:
    policy = state.policy
    if policy.concurrency and state.running >= policy.concurrency:
        calls = "1 call" if policy.concurrency == 1 else f"{policy.concurrency} calls"
        raise Busy(f"Only {calls} at the same time by {policy.name}; wait until one is done")
    rate = policy.rate
    if rate and state.tokens < 1.0:
        raise Busy(
            f"Only {rate.calls} calls in {rate.per:g} s by {policy.name}",
            retry_at=time.time() + (1.0 - state.tokens) * rate.per / rate.calls,
        )
