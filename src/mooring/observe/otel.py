"""Traces and metrics for an OpenTelemetry collector, over OTLP/HTTP (``[telemetry]``, extra ``mooring[otel]``).

A sink of ``observe.events``. ``__call__`` only appends to a queue with a bound; one thread imports the SDK, makes spans
and measurements of the events, and hands them to the SDK, whose own threads send them. Nothing of it is on the way of a
call, and a collector that is away costs nobody anything: what cannot be sent is dropped, and the log says so once when
it begins and once when it ends.

Made by ``serve.app`` when the plan wants it. The SDK reads the standard variables (``OTEL_*``) itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mooring import __version__
from mooring.config.plan import Telemetry
from mooring.observe import spans
from mooring.observe.events import Event

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

LINGER = 0.2
"""Seconds in which events are gathered."""
WAITING = 10_000
"""Events that may wait; further ones are dropped."""
CLOSE_LIMIT = 3.0
"""Seconds that a daemon which stops waits for the rest to be sent."""
_LEFT = ("instance.stopped", "instance.crashed", "instance.backoff")
_TOLD = frozenset((*spans.REQUESTS, "instance.starting", "instance.ready", *_LEFT))
_NANO = 1_000_000_000
_log = logging.getLogger("mooring")


class Otel:
    """``settings``: what is sent, and where. ``running``: instance ids and servers of what runs already."""

    def __init__(self, settings: Telemetry, running: Iterable[tuple[str, str]] = ()) -> None:
        self.lost = 0
        """Events that were dropped because the thread did not keep up."""
        self._settings = settings
        self._running = dict(running)
        self._queue: deque[Event] = deque()
        self._awake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Take an event; never blocks."""
        if event.name not in _TOLD:
            return
        if len(self._queue) >= WAITING:
            self.lost += 1
            return
        self._queue.append(event)
        if not self._awake.is_set():
            self._wake()

    def end(self) -> None:
        """Send what there is, and stop; does not wait."""
        self._closing = True
        self._awake.set()

    async def ended(self) -> None:
        """Wait for that, bounded."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_LIMIT)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mooring-otel", daemon=True)
            self._thread.start()
        self._awake.set()

    def _work(self) -> None:
        try:
            pipeline = Pipeline(self._settings, self._running)
        except ImportError as error:
            _log.error("[telemetry] sends nothing: %s. Install it with: pip install 'mooring[otel]'", error)
            return
        while not self._closing:
            self._awake.wait()
            if not self._closing:
                time.sleep(LINGER)
            self._awake.clear()
            self._drain(pipeline)
        self._drain(pipeline)
        pipeline.close()

    def _drain(self, pipeline: Pipeline) -> None:
        while self._queue:
            event = self._queue.popleft()
            try:
                pipeline.take(event)
            except Exception:  # one odd event must not end the rest
                _log.exception("OpenTelemetry: %s could not be told", event.name)


class Pipeline:
    """The SDK, from events to the wire; used by one thread. Raises ImportError without the extra."""

    def __init__(self, settings: Telemetry, running: dict[str, str]) -> None:
        self._outage = Outage(settings.endpoint)
        resource = _resource()
        self._running = running
        self._traces = _traces(settings, resource, self._outage) if settings.traces else None
        self._metrics = _metrics(settings, resource, self._outage) if settings.metrics else None
        self._tracer = self._traces.get_tracer("mooring", __version__) if self._traces else None
        self._instruments = Instruments(self._metrics) if self._metrics else None
        if self._instruments:
            for server in running.values():
                self._instruments.running.add(1, {"mooring.server": server})

    def take(self, event: Event) -> None:
        """Make of an event what it means."""
        if event.name in spans.REQUESTS:
            self._span(event)
            if self._instruments:
                self._instruments.request(event)
        elif self._instruments:
            self._instance(event, self._instruments)

    def close(self) -> None:
        """Send what there is, unless nobody takes it; blocks."""
        for provider in (self._traces, self._metrics):
            if provider is not None:
                if self._outage.failing:
                    self._outage.abandon()
                provider.shutdown()

    def _span(self, event: Event) -> None:
        if self._tracer is None:
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": event.trace, "tracestate": event.data.get("tracestate", "")}
        begun = int(event.ts * _NANO)
        span = self._tracer.start_span(
            spans.name(event),
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes=spans.attributes(event),
            start_time=begun,
        )
        if spans.error_type(event):
            span.set_status(Status(StatusCode.ERROR))
        span.end(begun + int(event.data.get("seconds", 0.0) * _NANO))

    def _instance(self, event: Event, instruments: Instruments) -> None:
        about = {"mooring.server": event.server}
        if event.name == "instance.starting":
            instruments.starts.add(1, about)
        elif event.name == "instance.ready":
            self._running[event.instance] = event.server
            instruments.running.add(1, about)
            instruments.starting.record(event.data["seconds"], about)
        elif self._running.pop(event.instance, None) is not None:
            instruments.running.add(-1, about)


class Instruments:
    """What is measured."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("mooring", __version__)
        self.duration = meter.create_histogram(
            "mcp.server.operation.duration",
            "s",
            "How long requests took.",
            explicit_bucket_boundaries_advisory=spans.BUCKETS,
        )
        self.calls = meter.create_counter("mooring.requests", "{request}", "Requests, refused ones included.")
        self.errors = meter.create_counter("mooring.errors", "{request}", "Requests that did not succeed.")
        self.running = meter.create_up_down_counter("mooring.instances", "{instance}", "Instances that are ready.")
        self.starts = meter.create_counter("mooring.instance.starts", "{start}", "Cold starts begun.")
        self.starting = meter.create_histogram(
            "mooring.instance.start.duration",
            "s",
            "From the start of a server until it is ready.",
            explicit_bucket_boundaries_advisory=spans.BUCKETS,
        )

    def request(self, event: Event) -> None:
        """Count a request."""
        about = spans.measured(event)
        self.calls.add(1, about)
        if "error.type" in about:
            self.errors.add(1, about)
        if event.name == "call.finished":
            self.duration.record(event.data["seconds"], about)


class Outage(logging.Handler):
    """Whether the collector takes what is sent. What the SDK logs about it, at every try, ends here."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.failing = False
        self._exporters: list[Any] = []
        self._where = endpoint or "the collector"
        self._said = ""
        self._told = threading.Lock()
        sdk = logging.getLogger("opentelemetry")
        sdk.handlers = [self]
        sdk.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Remember what went wrong."""
        self._said = record.getMessage()

    def watched(self, exporter: Any) -> Any:
        """``exporter``, of spans or metrics, whose every try is looked at."""
        send = exporter.export

        def export(*args: Any, **more: Any) -> Any:
            result = send(*args, **more)
            self._ended(result.name == "SUCCESS")
            return result

        exporter.export = export
        self._exporters.append(exporter)
        return exporter

    def _ended(self, sent: bool) -> None:
        with self._told:
            if self.failing is sent:
                self.failing = not sent
                if sent:
                    _log.warning("OpenTelemetry: %s takes traces and metrics again", self._where)
                else:
                    _log.warning("OpenTelemetry: %s takes nothing, so it is dropped: %s", self._where, self._said)

    def abandon(self) -> None:
        """Try no more."""
        for exporter in self._exporters:
            exporter.shutdown()


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource

    found = Resource.create({"service.version": __version__})
    if str(found.attributes["service.name"]).startswith("unknown_service"):  # nobody set OTEL_SERVICE_NAME
        return found.merge(Resource({"service.name": "mooring"}))
    return found


def _traces(settings: Telemetry, resource: Resource, outage: Outage) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = outage.watched(OTLPSpanExporter(_signal(settings, "traces")))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _metrics(settings: Telemetry, resource: Resource, outage: Outage) -> MeterProvider:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(outage.watched(OTLPMetricExporter(_signal(settings, "metrics"))))
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)


def _signal(settings: Telemetry, name: str) -> str | None:
    """Where one kind of data goes; None: where the standard variables say."""
    return f"{settings.endpoint}/v1/{name}" if settings.endpoint else None
