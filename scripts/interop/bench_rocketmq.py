"""Measures a broker through its ports for RocketMQ's clients: pulls of classic consumers, and gRPC of RocketMQ 5.

A broker of three nodes is started (fsync before acknowledgement), with one topic. The clients have no client library:
they send the requests of one, in this process, so they cost less than a real one. All processes share the cores of this
machine, so the figures are compared within one run; the processor time is that of the nodes and of this process.

| part | what is measured |
| --- | --- |
| pull | a pull of 32 messages for each queue at a time, as a push consumer of RocketMQ 4 makes them |
| receive | receives of 32 messages by gRPC, and one acknowledgement for the messages of each |
| get | the same messages by our own consumer |
| send | a tenth as many messages one by one by gRPC, of 64 callers |

Example:
    python scripts/interop/bench_rocketmq.py --messages 20000
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.bench.sending import fill
from cluster.client.broker_calls import BrokerCalls
from cluster.client.consumer.consumer import Consumer
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.local.brokers import LocalBrokers
from cluster.process.procfs import cpu_seconds_of
from cluster.remoting.codec import Reply, decode_frame, encode_request
from cluster.remoting.command import RemotingCode, Request
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.rocketmq_v2 import messaging_pb2_grpc
from cluster.v1 import broker_pb2 as pb
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import grpc.aio

    from cluster.local.cluster import LocalCluster

TOPIC: Final = "bench"
QUEUES: Final = 8
BATCH: Final = 32
FILL_BATCH: Final = 500
SENDERS: Final = 64
BODY: Final = bytes(1_024)
PULL_MESSAGE: Final = 11
LIMIT_S: Final = 30.0
SIZE: Final = struct.Struct(">I")


class Figure(NamedTuple):
    """The result of a part: messages per second, and processor time of a message in milliseconds."""

    rate: float
    nodes_ms: float
    client_ms: float


# ------------------------------------------------------------------------------------------------------------- parts


async def pulled(cluster: LocalCluster, _messages: int) -> int:
    """Pull all messages, one pull for each queue at a time; return their number."""

    async def pull_queue(place: str, queue_id: int) -> int:
        host, _, port = place.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        offset = 0
        try:
            while True:
                fields = {
                    "consumerGroup": "pulls",
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "queueOffset": str(offset),
                    "maxMsgNums": str(BATCH),
                    "sysFlag": "4",
                    "commitOffset": "0",
                    "suspendTimeoutMillis": "0",
                    "subscription": "*",
                    "subVersion": "0",
                }
                writer.write(encode_request(Request(PULL_MESSAGE, fields)))
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                reply = decode_frame(await reader.readexactly(size))
                assert isinstance(reply, Reply), reply
                if reply.response.code == RemotingCode.PULL_NOT_FOUND:
                    return offset
                assert reply.response.code == RemotingCode.SUCCESS, reply
                offset = int(reply.response.fields["nextBeginOffset"])
        finally:
            writer.close()

    place = cluster.remoting_endpoints.split(";")[_follower(cluster)]
    return sum(await asyncio.gather(*(pull_queue(place, queue_id) for queue_id in range(QUEUES))))


async def received(cluster: LocalCluster, messages: int) -> int:
    """Receive and acknowledge all messages, eight receives at a time; return their number."""
    async with _channel(cluster) as channel:
        stub, done = messaging_pb2_grpc.MessagingServiceStub(channel), 0
        group, topic = mq.Resource(name="receives"), mq.Resource(name=TOPIC)
        request = mq.ReceiveMessageRequest(group=group, message_queue=mq.MessageQueue(topic=topic), batch_size=BATCH)
        request.invisible_duration.seconds, request.long_polling_timeout.seconds = 60, 1
        request.filter_expression.expression = "*"

        async def receive() -> None:
            nonlocal done
            while done < messages:
                acks = mq.AckMessageRequest(group=group, topic=topic)
                async for response in stub.ReceiveMessage(request, timeout=LIMIT_S, metadata=_metadata()):
                    if response.HasField("message"):
                        system = response.message.system_properties
                        acks.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
                if acks.entries:
                    answer = await stub.AckMessage(acks, timeout=LIMIT_S, metadata=_metadata())
                    assert answer.status.code == mq.OK, answer
                    done += len(acks.entries)

        await asyncio.gather(*(receive() for _ in range(QUEUES)))
        return done


async def got(cluster: LocalCluster, messages: int) -> int:
    """Read all messages with our own consumer; return their number."""
    done = 0
    async with Consumer(cluster.endpoints, group="gets", topics=TOPIC, start="first") as consumer:
        while done < messages:
            done += len(await consumer.poll())
    return done


async def sent(cluster: LocalCluster, messages: int) -> int:
    """Send a tenth as many messages one by one, of 64 callers; return their number."""
    left = messages // 10
    async with _channel(cluster) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)

        async def send() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                system = mq.SystemProperties(message_id=f"m{left}", message_type=mq.NORMAL, body_encoding=mq.IDENTITY)
                system.born_timestamp.GetCurrentTime()
                message = mq.Message(topic=mq.Resource(name=TOPIC), body=BODY, system_properties=system)
                answer = await stub.SendMessage(
                    mq.SendMessageRequest(messages=[message]), timeout=LIMIT_S, metadata=_metadata()
                )
                assert answer.status.code == mq.OK, answer

        await asyncio.gather(*(send() for _ in range(SENDERS)))
    return messages // 10


PARTS: Final[dict[str, Callable[[LocalCluster, int], Awaitable[int]]]] = {
    "pull": pulled,
    "receive": received,
    "get": got,
    "send": sent,
}


def _follower(cluster: LocalCluster) -> int:
    """Return the number of a node that follows: classic clients use one, and the way to the leader costs the most."""
    leader = cluster.wait_for_leader()
    return next(number for number, node_id in enumerate(cluster.node_ids) if node_id != leader)


def _channel(cluster: LocalCluster) -> grpc.aio.Channel:
    address = cluster.rocketmq_endpoint_of(cluster.node_ids[_follower(cluster)])
    return open_aio_channel(address, PLAIN, options=[("grpc.max_receive_message_length", 64 << 20)])


def _metadata() -> list[tuple[str, str]]:
    return [("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2")]


# ----------------------------------------------------------------------------------------------------------- program


def measured(cluster: LocalCluster, part: str, messages: int) -> Figure:
    """Run one part."""
    pids = [pid for node_id in cluster.node_ids if (pid := cluster.pid_of(node_id)) is not None]
    before_s, own_s, began = sum(map(cpu_seconds_of, pids)), time.process_time(), time.perf_counter()
    count = asyncio.run(_counted(PARTS[part], cluster, messages))
    elapsed_s = time.perf_counter() - began
    nodes_s, client_s = sum(map(cpu_seconds_of, pids)) - before_s, time.process_time() - own_s
    return Figure(count / elapsed_s, nodes_s * 1_000 / count, client_s * 1_000 / count)


async def _counted(part: Callable[[LocalCluster, int], Awaitable[int]], cluster: LocalCluster, messages: int) -> int:
    return await part(cluster, messages)


def prepared(brokers: LocalBrokers, messages: int) -> LocalCluster:
    """Create the topic, and put messages to it."""
    (cluster,) = brokers.clusters.values()
    cluster.wait_for_leader()
    with BrokerCalls(cluster.endpoints, LIMIT_S) as calls:
        topic = pb.Topic(name=TOPIC, read_queues=QUEUES, write_queues=QUEUES, permission=6)
        calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
    asyncio.run(fill(cluster.endpoints, [OutgoingMessage(TOPIC, BODY)] * FILL_BATCH, messages // FILL_BATCH))
    return cluster


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure a broker through its ports for RocketMQ's clients.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--messages", type=int, default=20_000, help="in the topic (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each part (default: %(default)s)")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown or options.messages < FILL_BATCH or options.runs < 1:
        parser.error(f"expected parts of {', '.join(PARTS)}, at least {FILL_BATCH} messages and 1 run")
    print(f"{'part':8} {'messages/s':>12} {'nodes, ms':>10} {'client, ms':>11}")
    for _ in range(options.runs):
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalBrokers.create(Path(folder, "run"), name_servers=0, has_rocketmq=True) as brokers,
        ):
            cluster = prepared(brokers, options.messages)
            for part in options.parts or PARTS:
                found = measured(cluster, part, options.messages // FILL_BATCH * FILL_BATCH)
                print(f"{part:8} {found.rate:12,.0f} {found.nodes_ms:10.3f} {found.client_ms:11.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
