"""Disks damage a message on some nodes: consumers get it as long as one node has it intact."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import pytest

from cluster import Consumer, Producer, SkippedMessages
from cluster.client.broker_calls import BrokerCalls
from cluster.v1 import broker_pb2 as pb
from dledger.client import AdminClient
from tests.integration.cluster.local_brokers.conftest import SMALL, running_brokers, same_term_check, set_topic
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.local.brokers import LocalBrokers
    from cluster.local.cluster import LocalCluster

# The node with the damaged disk stays leader, also on a busy machine.
STEADY = {"min_election_timeout_ms": 2_000, "max_election_timeout_ms": 3_000}
BODIES = [b"body %d" % number for number in range(10)]
DAMAGED = 3
BODY_AT = 88


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[LocalBrokers]:
    """Return one broker of three nodes with long election timeouts."""
    with running_brokers(tmp_path / "run", **SMALL, **STEADY) as started:
        yield started


def place_of_the_fourth_message(cluster: LocalCluster) -> int:
    """Send messages to a topic with one queue; return the position of the message to damage."""
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
        set_topic(calls, "orders", 1)
    with Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        return [producer.send("orders", body) for body in BODIES][DAMAGED].physical_offset


def damage(cluster: LocalCluster, node_id: str, place: int) -> None:
    size = SMALL["mapped_file_size_for_entry_data"]
    with (cluster.directory_of(node_id) / "data" / f"{place - place % size:020d}").open("r+b") as file:
        file.seek(place % size + BODY_AT)
        file.write(b"\xff")


def bodies_received(consumer: Consumer, count: int, skipped: list[SkippedMessages]) -> list[bytes]:
    """Poll until this many messages have arrived, or the consumer reports skipped ones."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and not skipped:
        assert time.monotonic() < deadline, f"only {found} came"
        found += [message.body for message in consumer.poll(count - len(found), 0.5)]
    return found


def test_message_that_is_damaged_on_the_leader_reaches_consumers(brokers: LocalBrokers) -> None:
    cluster = brokers.clusters["broker-a"]
    is_same_term = same_term_check(cluster)
    leader = cluster.wait_for_leader(PATIENCE_S)
    # At once: the others have not dispatched the last ones yet.
    damage(cluster, leader, place_of_the_fourth_message(cluster))

    groups = (f"g{number}" for number in count())

    def is_read_where_it_is_damaged() -> bool:
        """Read everything in a new group; a node that was paused too long becomes leader again by a transfer."""
        skipped: list[SkippedMessages] = []
        rules = {"group": next(groups), "topics": "orders", "start": "first"}
        with Consumer(cluster.endpoints, **rules, on_skipped=skipped.append) as consumer:
            assert bodies_received(consumer, len(BODIES), skipped) == BODIES
        assert skipped == []
        if "damaged_message_skipped topic=orders queue_id=0" in cluster.log_of(leader).read_text():
            return True
        assert cluster.wait_for_leader(PATIENCE_S) != leader or not is_same_term()
        with AdminClient(cluster.endpoints, group=cluster.group, deadline_s=PATIENCE_S) as admin:
            admin.transfer(leader)
        return False

    wait_until(is_read_where_it_is_damaged, "the leader reports the damage")


def test_message_that_only_a_stopped_node_has_is_waited_for(brokers: LocalBrokers) -> None:
    cluster = brokers.clusters["broker-a"]
    leader = cluster.wait_for_leader(PATIENCE_S)
    place = place_of_the_fourth_message(cluster)
    follower, sound = sorted(set(cluster.node_ids) - {leader})
    for node_id in (follower, sound):
        request = pb.GetRequest(topic="orders", offset=0, max_messages=len(BODIES))
        with BrokerCalls(cluster.endpoint_of(node_id), PATIENCE_S) as calls:
            # Read as acknowledged: this node has all of them.
            assert len(calls.ask(lambda stub: stub.Get, request).columns.queue_offsets) == len(BODIES)
    cluster.kill(sound)
    damage(cluster, leader, place)
    damage(cluster, follower, place)

    skipped: list[SkippedMessages] = []
    with Consumer(cluster.endpoints, group="g", topics="orders", start="first", on_skipped=skipped.append) as consumer:
        assert bodies_received(consumer, DAMAGED, skipped) == BODIES[:DAMAGED]
        cluster.start_node(sound, PATIENCE_S)
        assert bodies_received(consumer, len(BODIES) - DAMAGED, skipped) == BODIES[DAMAGED:]
    assert skipped == []
