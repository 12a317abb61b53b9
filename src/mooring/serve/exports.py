"""Runs the exporters of all plugins: each in a task of its own, so that a slow one delays nobody.

Started by ``serve.daemon`` once Mooring is ready. A failure is an event and another try, and never more than that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from mooring.config.plan import Plan
from mooring.errors import MooringError
from mooring.export.base import Exporter, Offer
from mooring.observe.events import Event, Events
from mooring.tasks import Tasks

FIRST_RETRY = 5.0
"""Seconds until the next try after a failure; doubled after each further one."""
LAST_RETRY = 300.0
DOUBLED = 16
"""Times that the first pause is doubled at most: a float holds no power of an endless number of failures."""
_log = logging.getLogger("mooring")


class Exports:
    """``offer`` is asked before each run."""

    def __init__(
        self,
        exporters: Iterable[Exporter],
        offer: Callable[[], Offer],
        events: Events,
        first_retry: float = FIRST_RETRY,
    ) -> None:
        self._wakes = {exporter.name: (exporter, asyncio.Event()) for exporter in exporters}
        self._offer = offer
        self._events = events
        self._first_retry = first_retry

    def start(self, tasks: Tasks) -> None:
        """Run them all in ``tasks``."""
        for exporter, wake in self._wakes.values():
            tasks.create_task(self._run(exporter, wake))

    def applied(self, plan: Plan) -> None:
        """The plan has changed."""
        for _, wake in self._wakes.values():
            wake.set()

    async def _run(self, exporter: Exporter, wake: asyncio.Event) -> None:
        failures = 0
        said = ""
        while True:
            wake.clear()
            try:
                pause = await exporter.export(self._offer())
                failed = ""
            except Exception as error:  # an exporter's failure is its own
                failed = str(error) or type(error).__name__
                if not isinstance(error, MooringError):
                    _log.exception("The exporter %s failed", exporter.name)
                pause = min(self._first_retry * 2 ** min(failures, DOUBLED), LAST_RETRY)
            failures = failures + 1 if failed else 0
            if failed != said:
                self._tell(exporter.name, failed)
                said = failed
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wake.wait()

    def _tell(self, name: str, failed: str) -> None:
        data = {"exporter": name, **({"error": failed} if failed else {})}
        self._events.emit(Event("export.failed" if failed else "export.recovered", time.time(), data=data))
