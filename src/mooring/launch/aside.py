"""Work that waits for somebody else, such as a keyring or a plugin, and perhaps for good: the look-up of secrets.

Used by whoever needs one. The threads of ``asyncio.to_thread`` are few, so that others would have to wait too, and the
end of the process waits for them; here nobody does. Whoever asks sets the limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What ``work`` returns, from a thread of its own. Raises what ``work`` raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[Any], None], outcome: object) -> None:
        if not done.done():
            settle(outcome)

    def run() -> None:
        try:
            told = done.set_result, work()
        except Exception as error:
            told = done.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="mooring-aside", daemon=True).start()
    return await done
