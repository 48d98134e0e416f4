"""Ports of a local cluster are used by no other process and no other cluster."""

import socket
import subprocess
import sys

import pytest

from cluster.local import node as local_node
from cluster.local.node import ClusterError, choose_ports

CHOOSE_FROM_ONE = """
import sys
from cluster.local import node as local_node
port = int(sys.argv[1])
local_node._PORTS = range(port, port + 1)
print(local_node.choose_ports(1, None))
"""


def choose_in_another_process(port):
    command = [sys.executable, "-c", CHOOSE_FROM_ONE, str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def release_all():
    while local_node._holds:
        local_node.os.close(local_node._holds.pop())


def bind(node, port):
    """Bind as servers do: also to a port with connections in TIME_WAIT."""
    node.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    node.bind(("127.0.0.1", port))


def test_port_that_a_process_has_chosen_is_chosen_by_no_other_until_it_ends():
    (port,) = choose_ports(1, None)

    refused = choose_in_another_process(port)

    assert refused.returncode
    assert "ClusterError: found no 1 free ports" in refused.stderr
    release_all()
    assert choose_in_another_process(port).stdout == choose_in_another_process(port).stdout == f"[{port}]\n"


def test_port_in_use_is_not_chosen(monkeypatch):
    (port,) = choose_ports(1, None)
    monkeypatch.setattr(local_node, "_PORTS", range(port, port + 1))
    release_all()
    with socket.socket() as node:
        bind(node, port)
        node.listen()
        with pytest.raises(ClusterError, match="found no 1 free ports"):
            choose_ports(1, None)


def test_port_is_checked_while_it_is_reserved(monkeypatch):
    """Otherwise another process may choose it, start its node and end between the two checks."""
    is_free, looked_at = local_node._is_free, []

    def look(port):
        with socket.socket(type=socket.SOCK_DGRAM) as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        looked_at.append(port)
        return is_free(port)

    monkeypatch.setattr(local_node, "_is_free", look)
    assert choose_ports(1, None)[0] in looked_at


def test_chosen_port_can_be_listened_on():
    (port,) = choose_ports(1, None)
    with socket.socket() as node:
        bind(node, port)


def test_the_number_of_reserved_ports_is_bounded(monkeypatch):
    monkeypatch.setattr(local_node, "_HOLDS_MAX", 3)
    choose_ports(5, None)
    choose_ports(5, None)
    assert len(local_node._holds) == 3
