"""TLS of the ports of a node or a standalone broker, and of its connections to name servers: modes and files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.security.credentials import CertificateFiles


@dataclass(frozen=True, slots=True)
class PortTls:
    """TLS of one port.

    Attributes:
        files: its certificate and key, and with `is_mutual` the authority of clients.
        is_mutual: clients must present a certificate.
    """

    files: CertificateFiles
    is_mutual: bool


@dataclass(frozen=True, slots=True)
class ProcessTls:
    """TLS of a process.

    Attributes:
        clients: of the port for clients; None: plain connections.
        metrics: of the page of metrics; None: plain HTTP.
        name_servers: files for connections to name servers; None: plain connections.
        fronts: files for the calls of the fronts for RocketMQ's clients to the leader; None: plain connections.
    """

    clients: PortTls | None = None
    metrics: PortTls | None = None
    name_servers: CertificateFiles | None = None
    fronts: CertificateFiles | None = None


def process_tls(client_tls: str, metrics_tls: str, name_server_tls: str, files: CertificateFiles) -> ProcessTls:
    """Return the TLS of a process; `checks` and the commands have checked that the files are set.

    Args:
        client_tls: off, on, or mutual.
        metrics_tls: the same.
        name_server_tls: off or on.
        files: of the process.
    """
    return ProcessTls(
        _port_tls(client_tls, files), _port_tls(metrics_tls, files), files if name_server_tls == "on" else None
    )


def _port_tls(mode: str, files: CertificateFiles) -> PortTls | None:
    if mode == "off":
        return None
    # Without certificates of clients a port does not need the authority, whose file may be set for something else.
    return PortTls(files if mode == "mutual" else replace(files, authority=""), mode == "mutual")
