"""Exits with 0 if the process of this container is serving: the HEALTHCHECK of the Dockerfile.

Calls `grpc.health.v1.Health` at the address in the first argument, else at `DLEDGER_CLIENT_ADDRESS`, the address of a
node, or at the default of that setting. With `DLEDGER_CLIENT_TLS` it connects with TLS, trusts only the certificate of
`DLEDGER_TLS_CERTIFICATE_FILE`, and presents it as its own. It needs only the packages of the server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from cluster.certificates.files import certificates_in
from cluster.certificates.making import hosts_in
from dledger.errors import DLedgerError
from dledger.security.channels import open_channel
from dledger.security.credentials import CertificateFiles, load_client_tls
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from dledger.security.settings import Security

_DEFAULT_ADDRESS = "127.0.0.1:20921"
# Shorter than the timeout in the Dockerfile, so that the reason is printed.
_TIMEOUT_S = 4.0


def main() -> int:
    """Send one request and print the answer."""
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DLEDGER_CLIENT_ADDRESS", _DEFAULT_ADDRESS)
    try:
        security = _security()
    except (DLedgerError, ValueError) as error:
        print(error)
        return 1
    # Ignore proxy variables in the container's environment: the connection is local.
    with open_channel(address, security, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            stub: Any = HealthStub(channel)
            status = stub.Check(HealthCheckRequest(), timeout=_TIMEOUT_S).status
        except grpc.RpcError as error:
            print(f"{address}: {error.code().name}: {error.details()}")
            return 1
    print(f"{address}: {HealthCheckResponse.ServingStatus.Name(status)}")
    return 0 if status == HealthCheckResponse.SERVING else 1


def _security() -> Security:
    """Return how the node of this environment is reached.

    Raises:
        CertificateFault, ValueError: its files cannot be used.
    """
    if os.environ.get("DLEDGER_CLIENT_TLS", "off") == "off":
        return PLAIN
    certificate, key = (os.environ.get(f"DLEDGER_TLS_{each}_FILE", "") for each in ("CERTIFICATE", "KEY"))
    # It may name none of the addresses by which the container dials itself.
    hosts = hosts_in(certificates_in(Path(certificate))[0])
    files = CertificateFiles(authority=certificate, certificate=certificate, key=key)
    return load_client_tls(files, server_name=next(iter(hosts), ""))


if __name__ == "__main__":
    sys.exit(main())
