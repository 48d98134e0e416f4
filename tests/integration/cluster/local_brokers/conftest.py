"""Brokers of three real nodes and a name server, all of them processes on loopback; small files."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.errors import Certainty
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.local.cluster import LocalCluster

SMALL = {
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 32 << 10,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[LocalBrokers]:
    """Return one broker of three nodes that serves, and a name server."""
    with running_brokers(tmp_path / "run", **SMALL) as started:
        yield started


@contextmanager
def running_brokers(folder: Path, *, is_secured: bool = False, **options: Any) -> Iterator[LocalBrokers]:
    """Yield a broker that has a leader, and a name server, without a limit on their start."""
    started = LocalBrokers.create(folder, options=options, is_secured=is_secured)
    try:
        started.start(PATIENCE_S)
        started.clusters["broker-a"].wait_for_leader(PATIENCE_S)
        yield started
    finally:
        started.stop()


def set_topic(calls: BrokerCalls, name: str, queues: int) -> None:
    """Create a topic of a broker; again if another node was elected meanwhile and the outcome is unknown."""
    topic = pb.Topic(name=name, read_queues=queues, write_queues=queues, permission=6)

    def is_set() -> bool:
        try:
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        except RequestFailed as failure:
            if failure.certainty is not Certainty.UNKNOWN:
                raise
            return False
        return True

    wait_until(is_set, f"topic {name} is set")


def term_of(cluster: LocalCluster) -> int:
    """Return the newest term that a node knows."""
    terms = []
    for node_id in cluster.running_ids:
        with BrokerCalls(cluster.endpoint_of(node_id), PATIENCE_S) as calls:
            terms.append(calls.ask(lambda stub: stub.Status, pb.BrokerStatusRequest()).term)
    return max(terms)


def same_term_check(cluster: LocalCluster) -> Callable[[], bool]:
    """Return a function that checks that there was no election since, because a paused node loses the leadership."""
    term = term_of(cluster)
    return lambda: term_of(cluster) == term
