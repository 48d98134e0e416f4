"""Consumers of a broker of three nodes: several groups at once, broadcast, and name servers that change."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster import Consumer, OutgoingMessage, Producer
from cluster.client.broker_calls import BrokerCalls
from cluster.local.node import choose_ports
from cluster.local.process import LocalProcess
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.local_brokers.conftest import same_term_check, set_topic
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.client.consumer.consumer import BlockingConsumer
    from cluster.local.brokers import LocalBrokers

QUEUES = 4
POLL_MAX = 10


@pytest.fixture
def orders(brokers: LocalBrokers) -> LocalBrokers:
    """Return a broker that has the topic `orders`."""
    with BrokerCalls(brokers.endpoints, PATIENCE_S) as calls:
        set_topic(calls, "orders", QUEUES)
    return brokers


def send(name_servers: str, numbers: range) -> None:
    with Producer(name_servers=name_servers, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        for number in numbers:
            producer.send_many([OutgoingMessage("orders", b"%d" % number)], queue_id=number % QUEUES)


def read_until(consumer: BlockingConsumer, is_enough: Callable[[Counter[int]], bool]) -> Counter[int]:
    """Read until a condition is met; return how often each number was received."""
    found: Counter[int] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} came"
        found.update(int(message.body) for message in consumer.poll(POLL_MAX, 0.2))
    return found


def has_all(numbers: range) -> Callable[[Counter[int]], bool]:
    return lambda found: found.keys() >= set(numbers)


def committed(brokers: LocalBrokers, group: str) -> list[int]:
    with BrokerCalls(brokers.endpoints, PATIENCE_S) as calls:
        request = pb.FetchOffsetRequest(group=group, topic="orders", queue_ids=range(QUEUES))
        return list(calls.ask(lambda stub: stub.FetchOffset, request).offsets)


def test_each_of_several_groups_gets_every_message_and_continues_at_its_offsets(orders: LocalBrokers) -> None:
    cluster, server = orders.clusters["broker-a"], orders.name_servers
    groups = ("audit", "billing", "search")
    first, second = range(200), range(200, 300)
    send(server, first)

    def consumer_of(group: str) -> Consumer:
        return Consumer(name_servers=server, group=group, topics="orders", start="first")

    is_same_term = same_term_check(cluster)
    with ExitStack() as stack:
        consumers = {group: stack.enter_context(consumer_of(group)) for group in groups}
        # One is slower than the others, and ends in the middle.
        slow = read_until(consumers["search"], lambda found: len(found) >= 50)
        for group in ("audit", "billing"):
            found = read_until(consumers[group], has_all(first))
            assert found == Counter(first) or not is_same_term()
        consumers["search"].close()
        held = sum(max(offset, 0) for offset in committed(orders, "search"))
        # The messages delivered last are not acknowledged.
        assert len(slow) - POLL_MAX <= held or not is_same_term()
        assert held <= len(slow)
        cluster.kill(cluster.wait_for_leader(PATIENCE_S))
        send(server, second)
        for group in ("audit", "billing"):
            # Messages that were not committed when the leader died may be repeated.
            assert read_until(consumers[group], has_all(second)).keys() <= {*first, *second}
    with consumer_of("search") as late:
        rest = read_until(late, has_all(second))
    assert {*slow, *rest} == {*first, *second}
    assert len(slow.keys() & rest.keys()) <= len(slow) - held


def test_each_broadcast_consumer_gets_every_message_over_a_failover(orders: LocalBrokers) -> None:
    cluster, server = orders.clusters["broker-a"], orders.name_servers
    first, second = range(100), range(100, 200)

    with (
        Consumer(name_servers=server, group="news", topics="orders", mode="broadcast", start="first") as one,
        Consumer(name_servers=server, group="news", topics="orders", mode="broadcast", start="first") as other,
    ):
        send(server, first)
        for consumer in (one, other):
            assert read_until(consumer, has_all(first)) == Counter(first)
        cluster.kill(cluster.wait_for_leader(PATIENCE_S))
        send(server, second)
        for consumer in (one, other):
            # It stores its own position: nothing is repeated.
            assert read_until(consumer, has_all(second)) == Counter(second)
    assert committed(orders, "news") == [-1] * QUEUES


def test_a_broker_moves_to_other_name_servers_node_by_node_while_clients_continue(
    orders: LocalBrokers, tmp_path: Path
) -> None:
    cluster, old = orders.clusters["broker-a"], orders.name_servers
    new = f"127.0.0.1:{choose_ports(1, None)[0]}"
    server = LocalProcess(f"name server {new}", ["nameserver", "--listen", new], tmp_path / "new.log")
    server.launch()
    server.wait_ready(time.monotonic() + PATIENCE_S)
    try:
        with (
            Producer(name_servers=old, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer,
            Consumer(name_servers=old, group="g", topics="orders", start="first") as consumer,
        ):
            producer.send("orders", b"0")
            orders.kill_name_server(old)
            for number, node_id in enumerate(cluster.node_ids, 1):
                config = cluster.config_of(node_id)
                config.write_text(re.sub(r"name_servers = .*", f'name_servers = "{new}"', config.read_text()))
                cluster.restart(node_id, PATIENCE_S)
                producer.send("orders", b"%d" % number)
            send(new, range(4, 8))
            assert read_until(consumer, has_all(range(8))).keys() == set(range(8))
        is_same_term = same_term_check(cluster)
        with Consumer(name_servers=new, group="late", topics="orders", start="first") as late:
            assert read_until(late, has_all(range(8))) == Counter(range(8)) or not is_same_term()
    finally:
        server.stop()
