"""A collector: takes OTLP over HTTP on a free port, decodes it with the protocol's own messages, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """What came, and how to answer."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        """Path, headers, decoded message."""
        self.url = ""

    def spans(self) -> list[Any]:
        return [
            span
            for path, _, message in tuple(self.requests)
            if path == "/v1/traces"
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """The newest of each name."""
        return {
            metric.name: metric
            for path, _, message in tuple(self.requests)
            if path == "/v1/metrics"
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resource(self) -> dict[str, Any]:
        _, _, message = next(each for each in self.requests if each[0] == "/v1/traces")
        return plain(message.resource_spans[0].resource.attributes)


def plain(attributes: Iterable[Any]) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiver() -> Generator[Receiver]:
    """A collector as long as the block lasts."""
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if kept.status == 200:
                kept.requests.append((self.path, dict(self.headers), KINDS[self.path].FromString(body)))
            self.send_response(kept.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
