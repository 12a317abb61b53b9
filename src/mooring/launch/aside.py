"""Work that waits for somebody else, such as a keyring or a plugin, and perhaps for good: the look-up of secrets.

Used by whoever needs one. The threads of ``asyncio.to_thread`` are few, so that others would have to wait too, and the
end of the process waits for them; here nobody does. Whoever asks sets the limit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
LOST = 600.0
"""Seconds after which what hangs is taken for lost, such as with a keyring that was started anew, and tried again."""
_given_up: dict[Hashable, tuple[Future[Any], float]] = {}
"""What goes on although whoever asked has gone, and until when others wait for it, by what it is about."""


async def aside(work: Callable[[], T], about: Hashable = None) -> T:
    """What ``work`` returns, from a thread of its own. Raises what ``work`` raises.

    While the same ``about`` still hangs for somebody who gave up, that is waited for instead, so that a keyring that
    waits for its password does not cost a thread for each attempt. Otherwise the answer is as new as the question."""
    done, until = _given_up.get(about, (None, 0.0))
    if done is None or time.monotonic() > until:
        done, until = _begun(work), time.monotonic() + LOST
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        if about is not None and not done.done():
            _keep(about, done, until)
        raise


def _keep(about: Hashable, done: Future[Any], until: float) -> None:
    def drop(_: object) -> None:
        if _given_up.get(about) == (done, until):
            del _given_up[about]

    if _given_up.get(about) != (done, until):
        _given_up[about] = (done, until)
        done.add_done_callback(drop)


def _begun(work: Callable[[], T]) -> Future[T]:
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # who gives up cancels nothing that others may wait for

    def run() -> None:
        try:
            value = work()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(value)

    threading.Thread(target=run, name="mooring-aside", daemon=True).start()
    return done
