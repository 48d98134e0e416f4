"""The metrics page with TLS: its readers, changes of certificates, and clients that attack its handshakes."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from cluster.local.node import choose_ports
from cluster.process.metrics_page import CONNECTIONS_MAX, HANDSHAKES_MAX, metrics_page
from dledger.config import Address
from dledger.security.credentials import Credentials
from dledger.security.revoked import NOTHING_REVOKED, CurrentRevoked, Revoked, nothing_revoked
from tests.integration.cluster.local_nodes.test_metrics_page import is_ended, sockets_count
from tests.integration.dledger.peer.test_connections_bound import resident_bytes
from tests.support.certificates import new_authority, node_pair, tls_of, user_identity, user_pair, write_tls
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dledger.security.settings import Tls

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
NODE = tls_of(node_pair(OURS, "n0"), OURS)
SCRAPER = user_pair(OURS, "prometheus")
# Nothing, half of a hello, and a request without TLS.
FIRST_BYTES = (b"", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET /metrics HTTP/1.1\r\n\r\n")
_MIB = 1 << 20
# In TLS 1.3 a client learns after its handshake that it was refused: by an alert, or by the end of the connection.
REFUSED = "alert|EOF|[Cc]onnection|[Pp]ipe"


class SecuredPage:
    """A page with TLS, and the certificates that it uses."""

    def __init__(self, address: Address, used: Credentials) -> None:
        self.address = address
        self.used = used

    def connected(self) -> socket.socket:
        return socket.create_connection((self.address.host, self.address.port), PATIENCE_S)

    def context(self, folder: Path, trusted: Any = OURS, shown: Any = None) -> ssl.SSLContext:
        """Return the context of a scraper."""
        context = ssl.create_default_context(cadata=trusted.certificate_pem().decode())
        if shown is not None:
            files = write_tls(folder / "scraper", tls_of(shown))
            context.load_cert_chain(files.certificate, files.key)
        return context

    def scraped(self, context: ssl.SSLContext) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            self.address.host, self.address.port, timeout=PATIENCE_S, context=context
        )
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@contextmanager
def secured_page(
    folder: Path,
    tls: Tls = NODE,
    *,
    is_mutual: bool = False,
    registry: CollectorRegistry | None = None,
    exchange_limit_s: float = PATIENCE_S,
    revoked: CurrentRevoked = nothing_revoked,
) -> Iterator[SecuredPage]:
    if registry is None:
        registry = CollectorRegistry()
        Gauge("height", "How high.", registry=registry).set(7)
    used = Credentials(write_tls(folder / "tls", tls), is_certificate_required=is_mutual)
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    with metrics_page(address, registry, tls=used.current_page, revoked=revoked, exchange_limit_s=exchange_limit_s):
        yield SecuredPage(address, used)


def test_scraper_that_trusts_the_authority_reads_the_page(tmp_path: Path) -> None:
    with secured_page(tmp_path) as page:
        status, content = page.scraped(page.context(tmp_path))

    assert status == 200
    assert "height 7.0" in content


def test_page_with_mutual_tls_is_for_certificates_of_the_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    untrusted = {
        "no certificate": None,
        "of a foreign authority": user_pair(FOREIGN, "prometheus"),
        "of an authority of the same name": user_pair(new_authority(), "prometheus"),
        "expired": node_pair(OURS, "n1", is_expired=True),
    }
    with secured_page(tmp_path, is_mutual=True) as page, caplog.at_level(logging.WARNING):
        assert page.scraped(page.context(tmp_path, shown=SCRAPER))[0] == 200
        for name, shown in untrusted.items():
            print("the scraper's certificate:", name)
            with pytest.raises(OSError, match=REFUSED):
                page.scraped(page.context(tmp_path, shown=shown))
        assert page.scraped(page.context(tmp_path, shown=SCRAPER))[0] == 200

    assert "metrics_refused host=127.0.0.1 reason=" in caplog.text


def test_revoked_scraper_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    revoked = [NOTHING_REVOKED]
    with (
        secured_page(tmp_path, is_mutual=True, revoked=lambda: revoked[-1]) as page,
        caplog.at_level(logging.WARNING),
    ):
        context = page.context(tmp_path, shown=SCRAPER)
        assert page.scraped(context)[0] == 200
        revoked.append(Revoked({user_identity("prometheus").uri: SCRAPER.certificate.not_valid_before_utc}))
        with pytest.raises(OSError, match=REFUSED):
            page.scraped(context)
        assert page.scraped(page.context(tmp_path, shown=user_pair(OURS, "another")))[0] == 200

    assert "user/prometheus that is valid from" in caplog.text


def test_scraper_refuses_a_page_of_another_authority_or_host(tmp_path: Path) -> None:
    with secured_page(tmp_path) as page, pytest.raises(ssl.SSLCertVerificationError):
        page.scraped(page.context(tmp_path, FOREIGN))
    elsewhere = tls_of(node_pair(OURS, "n0", hosts=["n0.example.net"]), OURS)
    with secured_page(tmp_path, elsewhere) as page, pytest.raises(ssl.SSLCertVerificationError, match="IP address"):
        page.scraped(page.context(tmp_path))


def test_older_version_of_tls_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with secured_page(tmp_path) as page, caplog.at_level(logging.WARNING):
        context = page.context(tmp_path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=f"{REFUSED}|PROTOCOL_VERSION"):
            page.scraped(context)

    assert "UNSUPPORTED_PROTOCOL" in caplog.text


def test_changed_files_are_used_by_the_next_connection(tmp_path: Path) -> None:
    """Goal: certificate and authority of a page change while it is served. Method: an open connection stays as well."""
    renewed = tls_of(node_pair(FOREIGN, "n0"), FOREIGN)
    with secured_page(tmp_path, is_mutual=True) as page:
        before = page.context(tmp_path, shown=SCRAPER)
        with before.wrap_socket(page.connected(), server_hostname="127.0.0.1") as open_before:
            write_tls(tmp_path / "tls", renewed)
            assert page.used.reload_if_changed()

            with pytest.raises(ssl.SSLCertVerificationError):
                page.scraped(before)
            with pytest.raises(OSError, match=REFUSED):
                page.scraped(page.context(tmp_path, FOREIGN, shown=SCRAPER))
            after = page.context(tmp_path, FOREIGN, shown=user_pair(FOREIGN, "prometheus"))
            assert page.scraped(after)[0] == 200
            open_before.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert open_before.recv(15) == b"HTTP/1.1 200 OK"


def test_files_that_do_not_fit_leave_the_page_as_it_was(tmp_path: Path) -> None:
    with secured_page(tmp_path) as page:
        write_tls(tmp_path / "tls", tls_of(node_pair(OURS, "n0"), OURS))
        (tmp_path / "tls" / "node.key").write_bytes(NODE.key)

        assert not page.used.reload_if_changed()
        assert page.used.fault
        assert page.scraped(page.context(tmp_path))[0] == 200


@pytest.mark.parametrize("sent", FIRST_BYTES, ids=["nothing", "half a hello", "plain HTTP"])
def test_half_handshakes_are_bounded_and_delay_no_scraper(tmp_path: Path, sent: bytes) -> None:
    """Goal: bounded sockets, threads and memory. Method: several times as many connections as handshakes allowed."""
    with secured_page(tmp_path) as page, ExitStack() as stack:
        context = page.context(tmp_path)
        page.scraped(context)
        threads, memory, sockets = threading.active_count(), resident_bytes(), sockets_count()
        crowd = []
        for _ in range(5 * HANDSHAKES_MAX):
            connection = stack.enter_context(page.connected())
            connection.sendall(sent)
            crowd.append(connection)

        assert page.scraped(context)[0] == 200
        wait_until(lambda: sum(map(is_ended, crowd)) >= 4 * HANDSHAKES_MAX, "the oldest ones were closed")
        wait_until(lambda: sockets_count() <= sockets + len(crowd) + HANDSHAKES_MAX, "no more sockets are open")
        assert threading.active_count() <= threads
        assert resident_bytes() - memory < 32 * _MIB


def test_half_handshakes_end_no_exchange_of_a_scraper(tmp_path: Path) -> None:
    with secured_page(tmp_path, is_mutual=True) as page, ExitStack() as stack:
        context = page.context(tmp_path, shown=SCRAPER)
        scraper = stack.enter_context(context.wrap_socket(page.connected(), server_hostname="127.0.0.1"))
        crowd = [stack.enter_context(page.connected()) for _ in range(3 * (HANDSHAKES_MAX + CONNECTIONS_MAX))]
        wait_until(lambda: sum(map(is_ended, crowd)) >= len(crowd) - HANDSHAKES_MAX, "the oldest ones were closed")

        scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert scraper.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("sent", FIRST_BYTES, ids=["nothing", "half a hello", "plain HTTP"])
def test_handshake_ends_in_time(tmp_path: Path, sent: bytes) -> None:
    with secured_page(tmp_path, exchange_limit_s=0.2) as page, page.connected() as connection:
        connection.sendall(sent)
        wait_until(lambda: is_ended(connection), "the connection was closed")


def test_silence_after_the_handshake_ends_in_time(tmp_path: Path) -> None:
    # Long enough for a handshake on a busy machine.
    with secured_page(tmp_path, exchange_limit_s=5) as page:
        context = page.context(tmp_path)
        with context.wrap_socket(page.connected(), server_hostname="127.0.0.1") as connection:
            assert connection.recv(1) == b""


def test_slow_readers_are_bounded_and_end_in_time(tmp_path: Path) -> None:
    """Goal: readers that take nothing cost bounded memory. Method: twice as many as allowed, of a page of 1 MiB."""
    registry = CollectorRegistry()
    Gauge("long", "x" * _MIB, registry=registry)
    with secured_page(tmp_path, registry=registry, exchange_limit_s=5) as page, ExitStack() as stack:
        context = page.context(tmp_path)
        sockets, memory = sockets_count(), resident_bytes()
        for _ in range(2 * CONNECTIONS_MAX):
            # On a busy machine the page may end one before its handshake has ended.
            with suppress(OSError):
                reader = context.wrap_socket(stack.enter_context(page.connected()), server_hostname="127.0.0.1")
                stack.enter_context(reader)
                reader.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        # Text, plain and encrypted bytes of each page that is not sent yet.
        assert resident_bytes() - memory < CONNECTIONS_MAX * 4 * _MIB
        wait_until(lambda: sockets_count() <= sockets + 2 * CONNECTIONS_MAX, "all were cut off")
