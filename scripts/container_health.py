"""Exit with 0 if the process of this container serves: the HEALTHCHECK of the Dockerfile.

It asks `grpc.health.v1.Health` at the address in the first argument; without one, at `DLEDGER_CLIENT_ADDRESS`, which is
where a node serves, or at the default of that setting. It uses only what the server's installation has.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from dledger.security.channels import open_channel
from dledger.security.settings import PLAIN

_DEFAULT_ADDRESS = "127.0.0.1:20921"
# Below the time limit that the Dockerfile sets, so that the reason is printed.
_TIMEOUT_S = 4.0


def main() -> int:
    """Ask once, and print the answer."""
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DLEDGER_CLIENT_ADDRESS", _DEFAULT_ADDRESS)
    # No proxy of the container's environment is between a process and itself.
    with open_channel(address, PLAIN, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            stub: Any = HealthStub(channel)
            status = stub.Check(HealthCheckRequest(), timeout=_TIMEOUT_S).status
        except grpc.RpcError as error:
            print(f"{address}: {error.code().name}: {error.details()}")
            return 1
    print(f"{address}: {HealthCheckResponse.ServingStatus.Name(status)}")
    return 0 if status == HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
