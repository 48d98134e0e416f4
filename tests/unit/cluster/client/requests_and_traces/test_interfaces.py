"""All clients keep their addresses, in whatever form these are given."""

import pytest

from cluster import Consumer, PopConsumer, Producer, Requester

CLIENTS = {
    "producer": Producer,
    "consumer": lambda endpoints: Consumer(endpoints, group="g", topics="t"),
    "pop consumer": lambda endpoints: PopConsumer(endpoints, group="g", topic="t"),
    "requester": Requester,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_endpoints_may_be_read_only_once(name):
    client = CLIENTS[name](address for address in ("127.0.0.1:1", "127.0.0.1:2"))

    assert client._endpoints == ("127.0.0.1:1", "127.0.0.1:2")
