"""Fixtures shared by the tests of the message clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cluster.client.scripted_broker import ScriptedBroker
from tests.integration.cluster.client.scripted_name_server import ScriptedNameServer
from tests.integration.cluster.client.stored_messages import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make_broker() -> Iterator[Callable[..., ScriptedBroker]]:
    """Return a function that starts a broker of one node, or another node of one."""
    nodes: list[ScriptedBroker] = []

    def make(topics: dict[str, int] | None = None, name: str = "b0", beside: ScriptedBroker | None = None) -> Any:
        if beside is None:
            node = ScriptedBroker(Stored(name, topics or {"orders": 4}))
        else:
            node = ScriptedBroker(beside.stored, f"n{len(beside.nodes)}")
            node.leader = beside.leader
            beside.nodes.append(node)
            node.nodes = beside.nodes
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.stop()


@pytest.fixture
def make_name_server() -> Iterator[Callable[..., ScriptedNameServer]]:
    """Return a function that starts a name server."""
    servers: list[ScriptedNameServer] = []

    def make(*brokers: ScriptedBroker) -> ScriptedNameServer:
        servers.append(ScriptedNameServer(list(brokers)))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
