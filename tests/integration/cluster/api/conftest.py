"""Standalone brokers: in the test's own loop, or as real processes; small files, free ports."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from cluster.broker.core import BrokerOptions, wall_clock_ms
from cluster.local.node import choose_ports
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.server.broker import Broker
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig
from dledger.config import Address
from dledger.service.frames.port import FramePort
from store.fs.linux.files import OsFiles
from store.maintenance.debouncer import Debouncer
from store.model.config import MessageStoreConfig
from tests.support import waiting
from tests.support.brokers.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

TOPIC = "orders"
SMALL = {
    "mapped_file_size": 4 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
}


class Shop:
    """A broker in the running loop, and a client of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: Any = OsFiles()
        self.stub: Any = None
        self.replica: Any = None
        self.replica_kind = StandaloneReplica
        self.first_user: Any = None
        self.audit: Any = None
        self.registry: Any = None
        self.spans: Any = None
        # Added to the clock by which delayed messages are due.
        self.clock_ahead_ms = 0

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Any]:
        """Serve, with a topic of two queues."""
        port, frame_port = choose_ports(2, None)
        self.frames = FramePort(Address("127.0.0.1", frame_port))
        address = self.address = Address("127.0.0.1", port)
        plain = PlainStoreConfig(
            log=CommitLogConfig(mapped_file_size=SMALL["mapped_file_size"]),
            store=MessageStoreConfig(
                mapped_file_size_consume_queue=SMALL["mapped_file_size_consume_queue"],
                max_hash_slot_num=SMALL["max_hash_slot_num"],
                max_index_num=SMALL["max_index_num"],
                max_transfer_count_on_message_in_memory=32_767,
                max_transfer_bytes_on_message_in_memory=4 << 20,
                dedupe_window_count=1_000,
                waiters_max=16,
            ),
        )
        self.replica = self.replica_kind.open(self.files, StandaloneConfig(str(self.path), "b", str(address), plain))
        try:
            async with (
                Broker(
                    self.replica,
                    BrokerOptions("b", **{"waiters_max": 16, **options}),
                    address,
                    first_user=self.first_user,
                    audit=self.audit,
                    registry=self.registry,
                    frames=self.frames,
                    spans=self.spans,
                    clock_ms=lambda: wall_clock_ms() + self.clock_ahead_ms,
                ) as broker,
                grpc.aio.insecure_channel(str(address)) as channel,
            ):
                self.broker = broker
                self.stub = broker_pb2_grpc.BrokerServiceStub(channel)
                if self.first_user is None:
                    await self.set_topic(TOPIC)
                yield self.stub
        finally:
            await self.replica.stop()

    async def set_topic(self, name: str, queues: int = 2, permission: int = 6) -> Any:
        topic = pb.Topic(name=name, read_queues=queues, write_queues=queues, permission=permission)
        return await self.stub.SetTopic(pb.SetTopicRequest(topic=topic))

    async def put(self, *bodies: bytes, topic: str = TOPIC, queue_id: int = 0, **fields: Any) -> Any:
        return await self.stub.Put(pb.PutRequest(topic=topic, queue_ids=[queue_id], bodies=bodies, **fields))

    async def get(self, offset: int = 0, topic: str = TOPIC, **fields: Any) -> Any:
        return await self.stub.Get(pb.GetRequest(topic=topic, offset=offset, **fields))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a function that opens a broker in a new directory each time."""
    return Shop(tmp_path / "store")


def run_only_awaited_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let dispatch run only while a caller waits for it, as on a machine that is late with it."""
    monkeypatch.setattr(Debouncer, "later", lambda _dispatching: None)
    monkeypatch.setattr(Debouncer, "soon", lambda _dispatching: None)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run one scenario in a new event loop."""
    waiting.run(scenario())  # type: ignore[arg-type]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a running broker process; it is ended after the test."""
    process = BrokerProcess(tmp_path / "store", **SMALL)
    process.start()
    yield process
    process.kill()
