"""The pages of metrics and health answer scrapers while other clients are silent, send endlessly, or read nothing."""

import http.client
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from cluster.local.node import choose_ports
from cluster.process.metrics_page import CONNECTIONS_MAX, metrics_page
from dledger.config import Address
from tests.support.network.http_pages import asked
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Gauge("height", "How high.", registry=registry).set(7)
    return registry


@pytest.fixture
def address():
    return Address("127.0.0.1", choose_ports(1, None)[0])


def connected(address):
    return socket.create_connection((address.host, address.port), PATIENCE_S)


def scraped(address, method="GET"):
    return asked(address, "/metrics", method)


def sockets_count() -> int:
    """Return the number of open sockets of this process."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        # The descriptor of the folder itself is gone by now.
        with suppress(FileNotFoundError):
            found += str(descriptor.readlink()).startswith("socket:")
    return found


def is_ended(connection: socket.socket) -> bool:
    """Return whether the server has closed this connection."""
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_scraper_gets_all_metrics(registry, address):
    with metrics_page(address, registry):
        status, page = scraped(address)
        assert (200, 7.0) == (status, next(text_string_to_metric_families(page)).samples[0].value)
        assert (200, "") == scraped(address, "HEAD")
        assert scraped(address, "POST")[0] == 405


def test_other_pages_are_not_there(registry, address):
    with metrics_page(address, registry):
        assert {404} == {asked(address, path)[0] for path in ("/healthz", "/readyz", "/metrics/x", "/favicon.ico")}
        assert (404, "") == asked(address, "/x", "HEAD")


@pytest.mark.parametrize(
    "accepted",
    [
        "application/openmetrics-text;version=1.0.x",
        "text/plain; version=1.0.*",
        "application/openmetrics-text;version=" + "9" * 5_000,
        "application/openmetrics-text;version=2.\nset-cookie: a=b",
    ],
    ids=["no number", "a star", "a long number", "another line"],
)
def test_a_scraper_that_accepts_no_known_version_gets_the_oldest_format(registry, address, accepted):
    """The library that chooses the format fails for some of these, and repeats others in the head of the response."""
    with metrics_page(address, registry), connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nAccept: " + accepted.encode() + b"\r\n\r\n")
        with connection.makefile("rb") as answer:
            head = answer.read().partition(b"\r\n\r\n")[0]

    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert b"set-cookie" not in head


@pytest.mark.parametrize("accepted", ["application/openmetrics-text;version=1.0.0;q=0.5", "text/plain;version=1.0.0"])
def test_a_scraper_gets_the_format_that_it_accepts(registry, address, accepted):
    connection = http.client.HTTPConnection(address.host, address.port, PATIENCE_S)
    with metrics_page(address, registry):
        connection.request("GET", "/metrics", headers={"Accept": f"x/y;version=7,{accepted}"})
        kind = connection.getresponse().getheader("Content-Type")
        connection.close()

    assert kind.startswith(accepted.partition(";")[0] + "; version=1.0.0;")


def test_silent_connections_cost_no_thread_and_delay_no_others(registry, address):
    with metrics_page(address, registry):
        threads = threading.active_count()
        silent = [connected(address) for _ in range(3 * CONNECTIONS_MAX)]
        assert scraped(address)[0] == 200
        assert threads >= threading.active_count()
        wait_until(lambda: sum(map(is_ended, silent)) >= 2 * CONNECTIONS_MAX, "the oldest ones were closed")
        for connection in silent:
            connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"x" * 100_000], ids=["nothing", "half a request", "no request"])
def test_an_exchange_ends_in_time_whatever_the_client_sends(registry, address, sent):
    with metrics_page(address, registry, exchange_limit_s=0.2), connected(address) as connection:
        connection.sendall(sent)
        wait_until(lambda: is_ended(connection), "the connection was closed")


def test_a_client_that_reads_nothing_is_disconnected(registry, address):
    Gauge("long", "x" * (8 << 20), registry=registry)
    with metrics_page(address, registry, exchange_limit_s=0.2), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        count = sockets_count()
        connection.connect((address.host, address.port))
        wait_until(lambda: sockets_count() > count, "the connection was accepted")
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_until(lambda: sockets_count() == count, "the connection was cut off")


def test_an_address_in_use_is_reported(registry, address):
    again = metrics_page(address, registry)
    with metrics_page(address, registry), pytest.raises(OSError, match=f"metrics_address {address} cannot"):
        again.__enter__()
