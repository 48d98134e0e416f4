"""Exit with 0 if the process of this container serves: the HEALTHCHECK of the Dockerfile.

It asks `grpc.health.v1.Health` at the address in the first argument; without one, at `DLEDGER_CLIENT_ADDRESS`, which is
where a node serves, or at the default of that setting. With `DLEDGER_CLIENT_TLS` it connects with TLS, trusts exactly
the certificate of `DLEDGER_TLS_CERTIFICATE_FILE`, and shows it, too. It uses only what the server's installation has.
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
# Below the time limit that the Dockerfile sets, so that the reason is printed.
_TIMEOUT_S = 4.0


def main() -> int:
    """Ask once, and print the answer."""
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DLEDGER_CLIENT_ADDRESS", _DEFAULT_ADDRESS)
    try:
        security = _security()
    except (DLedgerError, ValueError) as error:
        print(error)
        return 1
    # No proxy of the container's environment is between a process and itself.
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
