"""A collector of OpenTelemetry for tests: a small HTTP server that keeps the spans that it gets by OTLP."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Collector:
    """The spans so far.

    Attributes:
        url: of the collector.
        paths: of the requests.
        spans: of OTLP.
        resources: attributes of the processes that sent them.
        is_open: while it is not set, requests wait.
        status: of the answers.
    """

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.status = 200

    def got(self, path: str, body: bytes) -> None:
        """Keep the spans of a request."""
        self.paths.append(path)
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({pair.key: pair.value.string_value for pair in each.resource.attributes})
            for scope in each.scope_spans:
                self.spans += scope.spans


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector at a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.is_open.wait()
            if collector.status == 200:
                collector.got(self.path, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        collector.is_open.set()
        server.shutdown()
        server.server_close()
        thread.join()
