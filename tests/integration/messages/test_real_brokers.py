"""Producer and consumer with brokers of our own: in this process, and as processes that are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cluster import OutgoingMessage, Producer
from cluster.local_node import choose_ports
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.integration.messages.helpers import PATIENCE_S, bodies, consumer_of, numbers, run, take, until

pytestmark = pytest.mark.slow


class BrokerProcess:
    """One `dledger broker --standalone`; may be killed and started again."""

    def __init__(self, path: Path, queues: int = 4) -> None:
        (port,) = choose_ports(1, None)
        self.address = f"127.0.0.1:{port}"
        self._path = path
        self._process: subprocess.Popen[str] | None = None
        self.start()
        with grpc.insecure_channel(self.address) as channel:
            topic = pb.Topic(name="orders", read_queues=queues, write_queues=queues, permission=6)
            BrokerServiceStub(channel).SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S)

    def start(self) -> None:
        command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(self._path)]
        command += ["--listen", self.address, "--name", "b", "--set", "mapped_file_size=4194304"]
        command += ["--set", "max_hash_slot_num=1000", "--set", "max_index_num=4000"]
        command += ["--set", "dedupe_window_count=10000"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(PATIENCE_S)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a broker in a process of its own."""
    process = BrokerProcess(tmp_path / "store")
    yield process
    process.kill()


def test_what_is_sent_is_received_with_tags_keys_and_places(broker: BrokerProcess) -> None:
    large = b"large" * 2_000
    with Producer(broker.address) as producer:
        sent = [producer.send("orders", large, tags="paid", keys=["k1"]) for _ in range(8)]
        producer.send("orders", b"other", tags="open")

    async def main() -> list[Any]:
        async with consumer_of(broker, topics={"orders": "paid"}) as consumer:
            return await take(consumer, 8)

    received = run(main())
    expected = {(each.queue_id, each.queue_offset, each.message_id, each.unique_key) for each in sent}
    found = {(each.queue_id, each.queue_offset, each.message_id, each.unique_key) for each in received}
    assert expected == found
    assert {(large, "paid", ("k1",))} == {(each.body, each.tags, tuple(each.keys)) for each in received}


def test_killed_broker_costs_no_message_and_repeats_none(broker: BrokerProcess) -> None:
    """While one sends with retries and one receives, the broker is killed twice."""

    async def main() -> list[Any]:
        received: list[Any] = []
        async with (
            Producer(broker.address, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer,
            consumer_of(broker, commit_interval_s=0.2) as consumer,
        ):
            for life in range(3):
                for number in range(life * 200, life * 200 + 200):
                    producer.submit(OutgoingMessage("orders", b"%d" % number))
                if life < 2:
                    received += await consumer.poll(50, 0.5)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
            await producer.flush()
            deadline = time.monotonic() + PATIENCE_S
            while len(received) < 600 and time.monotonic() < deadline:
                received += await consumer.poll(100, 0.5)
        return received

    received = run(main())
    assert sorted(numbers(600)) == sorted(bodies(received))


_CONSUMER = """
import sys
from cluster import Consumer
with Consumer(sys.argv[1], group="g", topics="orders", start="first", client_id=sys.argv[2]) as consumer:
    for message in consumer:
        print(message.queue_id, message.queue_offset, flush=True)
"""


def test_group_of_processes_reads_everything_when_one_is_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    outputs = {name: tmp_path / name for name in "abc"}
    processes = {}
    for name, path in outputs.items():
        with path.open("w") as output:
            command = [sys.executable, "-c", _CONSUMER, broker.address, name]
            processes[name] = subprocess.Popen(command, stdout=output)

    def places(*names: str) -> list[tuple[int, ...]]:
        texts = [outputs[name].read_text() for name in names]
        return [tuple(map(int, line.split())) for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]

    async def main() -> None:
        async with Producer(broker.address) as producer:

            async def send_all(total: int) -> None:
                for _ in range(100):
                    for queue_id in range(4):
                        producer.submit(OutgoingMessage("orders", b"x"), queue_id=queue_id)
                await producer.flush()
                await until(lambda: len(set(places(*outputs))) == total)

            await until(lambda: members(broker) == ["a", "b", "c"])
            await send_all(400)
            processes["b"].kill()
            await until(lambda: members(broker) == ["a", "c"])
            await send_all(800)

    try:
        run(main())
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert {(queue_id, offset) for queue_id in range(4) for offset in range(200)} == set(places(*outputs))
    # Who died is not what the others waited for: they read on, each message as often as queues changed hands at most.
    assert max(Counter(places(*outputs)).values()) <= 3


def members(broker: BrokerProcess) -> list[str]:
    with grpc.insecure_channel(broker.address) as channel:
        response = BrokerServiceStub(channel).ListGroups(pb.ListGroupsRequest(group="g"), timeout=PATIENCE_S)
    return sorted(client_id for group in response.groups for client_id in group.client_ids)
