"""Guards of plugins around tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.errors import MooringError, Refused, Unavailable
from mooring.plugins.hooks import GuardedCall, Proceed
from mooring.relay.guards import Guarded
from mooring.wire.jsonrpc import Answer


class Forward:
    """Answers with the params it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reported = object()

    async def __call__(self, request: Any, route: Any, params: bytes) -> Answer:
        self.sent.append(params)
        return Answer(result=params)


class Thing:
    """Has the attributes it is given."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


REQUEST: Any = Thing(session=Thing(principal=Thing(workspace="w", key_id="k1")))
ROUTE: Any = Thing(mount=Thing(server="files"), advertised="files_read", upstream="read")


async def called(*guards: Any) -> tuple[Answer, Forward]:
    forward: Any = Forward()
    guarded = Guarded(forward, [(f"p{number}", guard) for number, guard in enumerate(guards)])
    assert guarded.reported is forward.reported
    return await guarded(REQUEST, ROUTE, b"{}"), forward


async def test_guards_see_the_call_in_order_and_may_change_it_and_its_answer() -> None:
    seen: list[Any] = []

    async def outer(call: GuardedCall, params: bytes, proceed: Proceed) -> Answer:
        seen.append(("outer", call))
        answer = await proceed(b'{"a":1}')
        return Answer(result=(answer.result or b"") + b"!")

    async def inner(call: GuardedCall, params: bytes, proceed: Proceed) -> Answer:
        seen.append(("inner", params))
        return await proceed(params)

    answer, forward = await called(outer, inner)
    assert answer.result == b'{"a":1}!'
    assert forward.sent == [b'{"a":1}']
    assert seen == [("outer", GuardedCall("w", "k1", "files", "files_read", "read")), ("inner", b'{"a":1}')]


async def refuses(call: GuardedCall, params: bytes, proceed: Proceed) -> Answer:
    raise Refused("not today")


async def breaks(call: GuardedCall, params: bytes, proceed: Proceed) -> Answer:
    raise KeyError("boom")


async def forgets(call: GuardedCall, params: bytes, proceed: Proceed) -> Any:
    await proceed(params)


@pytest.mark.parametrize(
    ("guard", "kind", "said"),
    [(refuses, Refused, "not today"), (breaks, Unavailable, "(KeyError)"), (forgets, Unavailable, "no answer")],
)
async def test_what_a_guard_does_not_let_pass_does_not_pass(guard: Any, kind: type[MooringError], said: str) -> None:
    with pytest.raises(kind) as failed:
        await called(guard)
    assert said in str(failed.value)
    if kind is Unavailable:
        assert '"p0"' in str(failed.value)
