"""Three nodes with the usual limit of 1,024 descriptors, and 10,000 queues: puts, a restart, and reads.

The test requests the ends of all queues before and after the restart, and reads every tenth message before and every
fourth after it: ten times as many files as may be open. `make chaos` reads all messages, both times.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc.aio
import pytest

import cluster.local.process
from cluster.client.broker_calls import BrokerCalls
from cluster.client.producer.producer import Producer
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from tests.integration.cluster.local_brokers.conftest import running_brokers, set_topic
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.local.cluster import LocalCluster

    Place = tuple[str, int]

DESCRIPTORS: Final = 1024
TOPICS, QUEUES = 10, 1_000
CALLERS = 64
IS_LONG = os.environ.get("DLEDGER_MANY_QUEUES") == "long"
BEFORE, AFTER = (1, 1) if IS_LONG else (10, 4)
_POPEN: Final = subprocess.Popen
PLACES = [(f"orders-{topic}", queue_id) for topic in range(TOPICS) for queue_id in range(QUEUES)]


def limited(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a process with a hard limit of descriptors."""
    limits = (DESCRIPTORS, DESCRIPTORS)
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
    return _POPEN(*arguments, preexec_fn=limit, **options)  # type: ignore[call-overload, no-any-return]


async def put_all(nodes: LocalCluster) -> None:
    """Put one message into each queue."""
    todo = iter(PLACES)
    async with Producer(nodes.endpoints, deadline_s=PATIENCE_S) as producer:

        async def put() -> None:
            for topic, queue_id in todo:
                await producer.send(topic, f"{topic}/{queue_id}".encode(), queue_id=queue_id)

        await asyncio.gather(*(put() for _ in range(CALLERS)))


async def check(nodes: LocalCluster, each: int) -> None:
    """Ask the leader for the ends of all queues, and read the one message of `each`-th queues.

    If processes pause, there may be another leader meanwhile, which is asked for what is left.
    """
    topics, places = {f"orders-{topic}" for topic in range(TOPICS)}, set(PLACES[::each])
    async with asyncio.timeout(SCENARIO_LIMIT_S):
        while topics or places:
            leader = await asyncio.to_thread(nodes.wait_for_leader, PATIENCE_S)
            async with grpc.aio.insecure_channel(nodes.endpoint_of(leader)) as channel:
                stub = broker_pb2_grpc.BrokerServiceStub(channel)
                for topic in sorted(topics):
                    ends = await stub.Offsets(pb.OffsetsRequest(topic=topic))
                    if not ends.answer.code:
                        found = dict(zip(ends.queue_ids, ends.max_offsets, strict=True))
                        assert found == dict.fromkeys(range(QUEUES), 1)
                        topics.remove(topic)
                todo = iter(sorted(places))
                await asyncio.gather(*(read_each(stub, todo, places) for _ in range(CALLERS)))


async def read_each(stub: broker_pb2_grpc.BrokerServiceAsyncStub, todo: Iterator[Place], places: set[Place]) -> None:
    """Read queues; remove those whose message was returned, and leave those for which the node refused."""
    for topic, queue_id in todo:
        answer = await stub.Get(pb.GetRequest(topic=topic, queue_id=queue_id))
        if not answer.answer.code:
            assert list(answer.columns.bodies) == [f"{topic}/{queue_id}".encode()]
            assert answer.max_offset == 1
            places.remove((topic, queue_id))


@pytest.mark.slow
def test_ten_thousand_queues_fit_the_usual_limit_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.local.process.subprocess, "Popen", limited)
    with running_brokers(tmp_path / "run") as brokers:
        (nodes,) = brokers.clusters.values()
        with BrokerCalls(nodes.endpoint_of(nodes.wait_for_leader(PATIENCE_S)), PATIENCE_S) as calls:
            for topic in range(TOPICS):
                set_topic(calls, f"orders-{topic}", QUEUES)
        asyncio.run(put_all(nodes))
        pids = {node_id: nodes.pid_of(node_id) for node_id in nodes.node_ids}

        asyncio.run(check(nodes, BEFORE))

        assert {node_id: nodes.pid_of(node_id) for node_id in nodes.node_ids} == pids
        nodes.stop()
        nodes.start(PATIENCE_S)
        asyncio.run(check(nodes, AFTER))
        for node_id in nodes.node_ids:
            assert f"limit={DESCRIPTORS}" in nodes.log_of(node_id).read_text()
            # All is checked: a clean stop would write the units of all queues once more.
            nodes.kill(node_id)
