"""A group of consumer processes on a broker of three node processes: joins, leaves, kills of them and of the leader."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from cluster import Consumer, NotAppended, OutgoingMessage, Producer
from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from cluster.v1.nameserver_pb2 import RouteRequest
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from tests.integration.cluster.local_brokers.conftest import set_topic, term_of
from tests.support.brokers.consumer_process import ConsumerProcess, shared_out
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.local.brokers import LocalBrokers

QUEUES = 6
# Joined, left, killed, joined again, and a leader killed: the causes of reassignments.
EVENTS = 5

Place = tuple[int, int]


class Load:
    """Messages that are sent continuously, and their places."""

    def __init__(self, name_servers: str) -> None:
        self.places: list[Place] = []
        self.error: BaseException | None = None
        self._name_servers = name_servers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
        assert self.error is None, self.error

    def _send(self) -> None:
        try:
            self._send_all()
        except BaseException as error:
            self.error = error
            raise

    def _send_all(self) -> None:
        with Producer(name_servers=self._name_servers, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
            number = 0
            while not self._stopped.wait(0.02):
                messages = [OutgoingMessage("orders", b"%d" % (number + row)) for row in range(4)]
                sent = producer.send_many(messages, queue_id=number // 4 % QUEUES)
                self.places += [(each.queue_id, each.queue_offset) for each in sent]
                number += len(messages)


def has_route(name_server: str) -> bool:
    with grpc.insecure_channel(name_server) as channel:
        return bool(NameServerStub(channel).Route(RouteRequest(topics=["orders"]), timeout=PATIENCE_S).routes)


@pytest.mark.parametrize("kind", ["shared", "orderly"])
def test_no_message_is_lost_while_consumers_and_leaders_change(
    brokers: LocalBrokers, tmp_path: Path, kind: str
) -> None:
    cluster, server = brokers.clusters["broker-a"], brokers.name_servers
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
        set_topic(calls, "orders", QUEUES)
    wait_until(lambda: has_route(server), "the name server knows the topic")
    every_consumer: list[ConsumerProcess] = []
    first_term = term_of(cluster)

    def start(client_id: str) -> ConsumerProcess:
        every_consumer.append(
            ConsumerProcess(tmp_path / client_id, client_id, name_servers=server, is_orderly=kind == "orderly")
        )
        return every_consumer[-1]

    load = Load(server)
    try:
        with load.running():
            a, b = start("a"), start("b")
            wait_until(lambda: shared_out(QUEUES, a, b), "two share the queues")
            c = start("c")
            wait_until(lambda: shared_out(QUEUES, a, b, c), "a third one joined")
            c.end()
            wait_until(lambda: shared_out(QUEUES, a, b), "the third one left")
            b.kill()
            wait_until(lambda: shared_out(QUEUES, a), "the second one was killed, and its locks ended", 3 * PATIENCE_S)
            d = start("d")
            wait_until(lambda: shared_out(QUEUES, a, d), "another one joined")
            sent = len(load.places)
            leader_lost_at = time.monotonic_ns()
            cluster.kill(cluster.wait_for_leader(PATIENCE_S))
            wait_until(lambda: load.error is not None or len(load.places) > sent + 40, "the new leader takes messages")
            wait_until(lambda: shared_out(QUEUES, a, d), "they share the queues at the new leader")
        missing: set[Place] = set()

        def is_all_read() -> bool:
            missing.clear()
            missing.update(
                set(load.places) - {(queue, offset) for each in every_consumer for _, queue, offset in each.messages()}
            )
            return not missing

        wait_until(is_all_read, lambda: f"everything is read; missing {sorted(missing)[:5]}")
        for consumer in (a, d):
            consumer.end()
    finally:
        for consumer in every_consumer:
            consumer.kill()

    ends = {queue: max(offset for each, offset in load.places if each == queue) + 1 for queue in range(QUEUES)}
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
        request = pb.FetchOffsetRequest(group="g", topic="orders", queue_ids=range(QUEUES))
        fetched = calls.ask(lambda stub: stub.FetchOffset, request)
    assert dict(zip(fetched.queue_ids, fetched.offsets, strict=True)) == ends
    assert sorted(load.places) == [(queue, offset) for queue in range(QUEUES) for offset in range(ends[queue])]
    check_repeats(every_consumer, b.client_id, leader_lost_at if term_of(cluster) == first_term + 1 else 0)
    # A node that was paused for a while was deposed, too: its queues were assigned again, and once more afterwards.
    events = EVENTS + 2 * (term_of(cluster) - first_term - 1)
    check_deliveries(every_consumer, events, is_orderly=kind == "orderly")


def check_repeats(consumers: list[ConsumerProcess], killed: str, leader_lost_at: int) -> None:
    """With one leader, only messages that the killed consumer had not committed are repeated, once."""
    delivered: dict[Place, list[str]] = defaultdict(list)
    for at, queue, offset, client_id in sorted(
        (*message, consumer.client_id) for consumer in consumers for message in consumer.messages()
    ):
        if at < leader_lost_at:
            delivered[queue, offset].append(client_id)
    again = {place: by for place, by in delivered.items() if len(by) > 1}
    print(f"delivered {len(delivered)}, again {len(again)}")
    assert all(len(by) == 2 and by[0] == killed for by in again.values()), again


def check_deliveries(consumers: list[ConsumerProcess], events: int, *, is_orderly: bool) -> None:
    """Messages are repeated only after their queue was reassigned; in order, and by one consumer at a time."""
    delivered = sorted(
        (at, queue, offset, consumer.client_id) for consumer in consumers for at, queue, offset in consumer.messages()
    )
    assert max(Counter((queue, offset) for _, queue, offset, _ in delivered).values()) <= 1 + events
    if not is_orderly:
        return
    for number in range(QUEUES):
        rows = [(offset, client_id) for _, queue, offset, client_id in delivered if queue == number]
        runs = [[offset for offset, _ in run] for _, run in groupby(rows, key=lambda row: row[1])]
        # Two that processed a queue at once would alternate all the time.
        assert len(runs) <= 1 + events, f"queue {number} changed hands {len(runs) - 1} times"
        seen = -1
        for offset, _ in rows:
            assert offset <= seen + 1, f"queue {number}: {offset} came before {seen + 1}"
            seen = max(seen, offset)


def test_clients_continue_with_a_new_leader_while_all_name_servers_are_down(brokers: LocalBrokers) -> None:
    cluster, server = brokers.clusters["broker-a"], brokers.name_servers
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
        set_topic(calls, "orders", 2)
    wait_until(lambda: has_route(server), "the name server knows the topic")

    with (
        Producer(name_servers=server, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer,
        Consumer(name_servers=server, group="g", topics="orders", start="first") as consumer,
    ):
        sent = [producer.send("orders", b"%d" % number) for number in range(20)]
        received = list(islice(consumer, 20))
        brokers.kill_name_server(server)
        cluster.kill(cluster.wait_for_leader(PATIENCE_S))
        sent += [producer.send("orders", b"%d" % number) for number in range(20, 40)]
        received += islice(consumer, 20)
        with pytest.raises(NotAppended, match="no name server answers"):
            producer.send("invoices", b"x", deadline_s=1.0)

    places = sorted((each.queue_id, each.queue_offset) for each in sent)
    assert places == sorted((each.queue_id, each.queue_offset) for each in received)
