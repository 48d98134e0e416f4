"""A broker with a hundred thousand topics: registrations do not block its loop."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from cluster.api.name_server import NameServer
from cluster.broker.core import BrokerOptions
from cluster.local.node import choose_ports
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.server.broker import Broker
from cluster.state.broker_state import CHANGED_TOPICS_MAX, TOPICS_MAX
from cluster.state.commands import DeleteTopic, SetTopic
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig
from dledger.config import Address
from dledger.service.grpc_server import start_grpc_server
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from tests.support import waiting
from tests.support.network.hostile_requests import TURN_S_MAX, measured_turns, slowness
from tests.support.waiting import until

pytestmark = pytest.mark.slow

# Some rounds of the broker's registration.
IDLE_S = 1.6


class CountingNameServer(NameServer):
    """Records the number of topics of each registration."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    async def Register(self, request, context):  # noqa: N802  (gRPC's name)
        self.counts.append(len(request.topics) + len(request.deleted_topics))
        return await super().Register(request, context)


def test_a_hundred_thousand_topics_block_no_turn_and_a_change_sends_one_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        ports = choose_ports(2, None)
        server_address, address = (Address("127.0.0.1", port) for port in ports)
        plain = PlainStoreConfig(
            log=CommitLogConfig(mapped_file_size=1 << 20),
            store=MessageStoreConfig(max_hash_slot_num=1_000, max_index_num=4_000),
        )
        replica = StandaloneReplica.open(OsFiles(), StandaloneConfig(str(tmp_path), "b", str(address), plain))
        for number in range(TOPICS_MAX - 10):
            replica.state.apply_command(SetTopic(TopicConfig(f"t{number:06}")))
        service = CountingNameServer()
        server = await start_grpc_server(server_address, [service.served()])
        limit_s = 2 * TURN_S_MAX * slowness()
        try:
            async with (
                measured_turns() as turns,
                Broker(replica, BrokerOptions("b"), address, name_servers=str(server_address)) as broker,
                grpc.aio.insecure_channel(str(address)) as channel,
            ):
                stub = broker_pb2_grpc.BrokerServiceStub(channel)
                await until(lambda: service.topics_count == TOPICS_MAX - 10, "all topics are registered")
                assert turns.take() < limit_s
                await asyncio.sleep(IDLE_S)
                assert turns.take() < limit_s / 2, "nothing has changed, but much work was done"

                service.counts.clear()
                topic = pb.Topic(name="new", read_queues=1, write_queues=1, permission=6)
                assert not (await stub.SetTopic(pb.SetTopicRequest(topic=topic))).answer.code
                assert not (await stub.DeleteTopic(pb.DeleteTopicRequest(topic="t000007"))).answer.code
                await until(lambda: len(service.counts) == 2, "the name server has both")
                assert service.counts == [1, 1]
                assert service.topics_count == TOPICS_MAX - 10
                assert turns.take() < limit_s
                for number in range(CHANGED_TOPICS_MAX + 1):
                    replica.state.apply_command(SetTopic(TopicConfig(f"t{number + 10:06}", read_queues=9)))
                replica.state.apply_command(DeleteTopic("new"))
                broker.core.on_topics_changed()
                await until(
                    lambda: sum(service.counts) > TOPICS_MAX / 2,
                    "more changes than are remembered: all topics are sent",
                )
                await until(lambda: service.topics_count == TOPICS_MAX - 11, "and nothing else is left")
        finally:
            await server.stop(None)
            await replica.stop()

    waiting.run(scenario())
