"""The head of a request for the pages of metrics and health: any client of the port may send any bytes."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Gauge

from cluster.process.metrics_page import EXCHANGE_LIMIT_S, _Page
from dledger.security.revoked import nothing_revoked
from tests.fuzz.target import Target

HEAD_END = b"\r\n\r\n"
# The statuses of the answers.
STATUSES = (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 Not Found\r\n", b"HTTP/1.1 405 Method Not Allowed\r\n")


def page() -> _Page:
    """Return a page of one metric that serves no port."""
    registry = CollectorRegistry()
    Gauge("height", "How high.", registry=registry).set(7)
    return _Page(registry, None, nothing_revoked, None, EXCHANGE_LIMIT_S)


PAGE = page()
RUNNER = asyncio.Runner()


def metrics_head(data: bytes) -> None:
    """Answer a head; the answer has one head and a body of the size that it names, whatever the request contains."""
    head = data.partition(HEAD_END)[0] + HEAD_END
    answer = RUNNER.run(PAGE._response_to(head))
    lines, end, body = answer.partition(HEAD_END)
    assert answer.startswith(STATUSES)
    assert end
    # Nothing of the request is repeated: a line of it could be one of the answer.
    assert len(lines.splitlines()) == 4
    size = int(lines.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    is_head = head.partition(b"\r\n")[0].partition(b" ")[0] == b"HEAD"
    assert len(body) == (0 if is_head else size)


def seeds() -> list[bytes]:
    """Return requests of Prometheus and of a browser, and some that are refused."""
    versions = b"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3"
    return [
        b"GET /metrics HTTP/1.1\r\nHost: n0:9100\r\nAccept: " + versions + b"\r\nAccept-Encoding: gzip" + HEAD_END,
        b"HEAD /metrics HTTP/1.1\r\naccept:text/plain" + HEAD_END,
        b"GET / HTTP/1.0\r\nAccept: application/openmetrics-text; version=0.0.1, */*;q=0.1" + HEAD_END,
        b"GET /readyz?verbose HTTP/1.1\r\nHost: n0:9100" + HEAD_END,
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5" + HEAD_END + b"hello",
        b"\r\n: \r\nAccept\r\n" + HEAD_END,
    ]


TARGETS = (Target("metrics_head", metrics_head, seeds),)
