"""Versions of TLS at every port of every kind of process: 1.1 is refused, also from a client with a certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from cluster.local.secured import APPLICATION, FOLDER, LocalSecurity
from tests.integration.cluster.local_brokers.test_listeners import Processes, processes
from tests.support.certificates import new_authority, node_pair, tls_of, write_tls
from tests.support.network.listeners import Listener
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.client.security_files import SecurityFiles

__all__ = ["processes"]

VERSIONS = (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
# The results of these versions in order; None: refused.
FROM_1_2, ONLY_1_3 = (None, "TLSv1.2", "TLSv1.3"), (None, None, "TLSv1.3")
EXPECTED = {"clients": FROM_1_2, "peers": FROM_1_2, "frames": ONLY_1_3, "metrics": ONLY_1_3}


def limit(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    """Change a context to one version.

    Only level 0 of OpenSSL allows the signatures of TLS 1.1: above it a client would not even send its first message.
    """
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    if version is ssl.TLSVersion.TLSv1_1:
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = version
    else:
        context.minimum_version = context.maximum_version = version


def client_of(files: SecurityFiles | None, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return the context of a client of one version, which trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if files is not None:
        context.load_cert_chain(files.tls_cert, files.tls_key)
    limit(context, version)
    return context


def agreed(listener: Listener, context: ssl.SSLContext) -> str | None:
    """Return the version on which both sides agree; None: the server ends the handshake."""
    with socket.create_connection((listener.host, listener.port), PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain) as connection:
                return connection.version()
        except TimeoutError:
            raise
        except OSError:
            return None


def test_tls_1_1_is_refused_at_every_port(processes: Processes, tmp_path: Path) -> None:
    """Goal: no downgrade. Method: a trusted client of each version, at every port of each kind of process."""
    of_brokers, _ = processes.start_secured()
    of_log = LocalSecurity(tmp_path / "log" / FOLDER)

    found = {}
    for name, listener in processes.kinds:
        secrets = of_log if name == "node of a log" else of_brokers
        files = secrets.files_of(APPLICATION)
        found[name, listener] = tuple(agreed(listener, client_of(files, version)) for version in VERSIONS)

    assert set(processes.kinds.values()) == set(EXPECTED)
    assert found == {each: EXPECTED[kind] for each, kind in processes.kinds.items()}


def test_client_of_each_version_connects_to_a_server_that_allows_it(tmp_path: Path) -> None:
    """A control: were the client of TLS 1.1 unable to use it, the test above would say nothing."""
    authority = new_authority()
    files = write_tls(tmp_path / "server", tls_of(node_pair(authority, "n0"), authority))
    for version, name in zip(VERSIONS, ("TLSv1.1", "TLSv1.2", "TLSv1.3"), strict=True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        limit(context, version)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = threading.Thread(target=shake_hands, args=(listener, context))
            serving.start()
            assert agreed(Listener("tcp", *listener.getsockname()), client_of(None, version)) == name
            serving.join()


def shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Accept one connection, and close it after its handshake."""
    accepted, _ = listener.accept()
    with context.wrap_socket(accepted, server_side=True):
        pass
