"""The modules that an import of the clients loads."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
{statement}
print(*sorted(sys.modules))
"""


def loaded_by(statement: str) -> set[str]:
    command = [sys.executable, "-c", _PROGRAM.format(statement=statement)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_neither_grpc_nor_a_client() -> None:
    assert not {"grpc", "cluster.client"} & loaded_by("import cluster")


def test_clients_load_no_server() -> None:
    loaded = loaded_by("from cluster import Consumer, Producer")

    assert {"cluster.client.consumer.consumer", "cluster.client.producer.producer"} <= loaded
    servers = {
        "cluster.server.broker",
        "cluster.api.broker_service",
        "cluster.api.name_server",
        "dledger.node.node",
        "store.access.message_store",
    }
    assert not servers & loaded
    assert not {"typer", "rich", "pydantic", "prometheus_client"} & loaded
