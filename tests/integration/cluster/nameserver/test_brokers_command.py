"""`dledger brokers`: its view of name servers, and draining a broker."""

from __future__ import annotations

import json

import grpc
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.protocol.route_table import BrokerNode, Registration, TopicQueues
from cluster.protocol.wire.routes import register_request
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from tests.support.waiting import PATIENCE_S

NODES = (BrokerNode("n0", "127.0.0.1:20921"), BrokerNode("n1", "127.0.0.1:20922"))
REGISTRATION = Registration("b0", "c0", 3, 0, "n1", NODES, (TopicQueues("orders", 8, 8, 6),))


def register(*addresses: str) -> None:
    for address in addresses:
        with grpc.insecure_channel(address) as channel:
            request = register_request(REGISTRATION, REGISTRATION.topics)
            NameServerStub(channel).Register(request, wait_for_ready=True, timeout=PATIENCE_S)


def brokers(*arguments: str, servers: str):
    return CliRunner().invoke(app, ["brokers", *arguments, "--name-servers", servers])


def test_brokers_are_listed_drained_and_restored(name_server) -> None:
    first, second = name_server().address, name_server().address
    both = f"{first},{second}"
    register(first, second)

    listed = brokers("list", "--json", servers=both)
    assert listed.exit_code == 0, listed.output
    seen = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(each["name_server"], each["leader"], each["topics"], each["is_writable"]) for each in seen] == [
        (first, "n1", 1, True),
        (second, "n1", 1, True),
    ]

    assert brokers("drain", "b0", servers=first).exit_code == 0
    differing = brokers("list", servers=both)
    assert (differing.exit_code, "do not agree" in differing.output) == (1, True)
    assert "drained" in differing.output
    assert brokers("restore", "b0", servers=both).exit_code == 0
    assert brokers("list", servers=both).exit_code == 0


def test_errors_have_advice(name_server) -> None:
    server = name_server()

    unknown = brokers("drain", "b7", servers=server.address)
    assert (unknown.exit_code, "no broker 'b7' is registered" in unknown.output) == (1, True)
    none = brokers("list", servers=server.address)
    assert (none.exit_code, "none" in none.output) == (0, True)
    server.kill()
    silent = brokers("list", servers=server.address)
    assert (silent.exit_code, "not reachable" in silent.output, "--name-servers" in silent.output) == (1, True, True)
    assert brokers("list", servers="nonsense").exit_code == 2
