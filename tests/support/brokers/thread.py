"""A standalone broker in a separate thread, for tests with blocking clients."""

import asyncio
from contextlib import contextmanager

import grpc.aio

from cluster.broker.core import BrokerOptions
from cluster.local.node import choose_ports
from cluster.process.loop_thread import LoopThread
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.server.broker import Broker
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig
from dledger.config import Address
from dledger.security.settings import PLAIN
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from store.model.message import UNIQUE_KEY
from tests.support.waiting import wait_until


class BrokerThread:
    """Serves the store in `path`; can be stopped and started again. All methods block."""

    def __init__(self, path, name_servers="", security=PLAIN, name_server_security=PLAIN, **store_settings):
        self.path = path
        self.security = security
        self.name_server_security = name_server_security
        self.name_servers = name_servers
        self.address = Address("127.0.0.1", choose_ports(1, None)[0])
        self.endpoints = str(self.address)
        self.config = PlainStoreConfig(
            log=CommitLogConfig(mapped_file_size=4 << 20, is_flush_sync=False),
            store=MessageStoreConfig(
                mapped_file_size_consume_queue=20_000,
                max_transfer_count_on_message_in_memory=32_767,
                max_transfer_bytes_on_message_in_memory=4 << 20,
                **{"dedupe_window_count": 1_000, "max_hash_slot_num": 1_000, "max_index_num": 4_000} | store_settings,
            ),
        )
        self._thread = LoopThread("broker")
        self._end = None

    def start(self):
        self._thread.run(self._start())

    def stop(self):
        async def end():
            end, self._end = self._end, None
            if end is not None:
                end.set()
                await self._running

        self._thread.run(end())

    def close(self):
        self.stop()
        self._thread.close()

    def set_topic(self, name, queues=2):
        topic = pb.Topic(name=name, read_queues=queues, write_queues=queues, permission=6)
        self.call("SetTopic", pb.SetTopicRequest(topic=topic))

    def call(self, method, request):
        async def ask():
            return await getattr(self._stub, method)(request)

        return self._thread.run(ask())

    def change(self, command):
        """Apply a command to the state of the broker."""
        self._thread.run(self.broker.core.change(command))

    def wait_dispatched(self):
        """Wait until queues and index have all messages; takes 0.1 s if no reader waits."""
        store = self.replica.store
        wait_until(lambda: store.derived.dispatcher.offset >= store.log.end_offset, "all is dispatched")

    def messages(self, topic):
        """Return the records of each queue, in order."""
        found = {}
        store = self.replica.store
        self.wait_dispatched()
        for name, queue_id in sorted(store.derived.queues):
            if name == topic:
                offset = store.min_offset(topic, queue_id)
                rows = found[queue_id] = []
                while offset < store.max_offset(topic, queue_id):
                    result = store.get(topic, queue_id, offset, 1_000, 4 << 20)
                    rows += result.messages
                    offset = result.next_begin_offset
        return found

    def bodies(self, topic):
        """Return all bodies, queue by queue."""
        return [each.body for rows in self.messages(topic).values() for each in rows]

    def unique_keys(self, topic):
        """Return all UNIQ_KEYs, queue by queue."""
        return [each.properties.get(UNIQUE_KEY) for rows in self.messages(topic).values() for each in rows]

    async def _start(self):
        self._end = asyncio.Event()
        is_ready = asyncio.Event()
        self._running = asyncio.ensure_future(self._run(self._end, is_ready))
        ready = asyncio.ensure_future(is_ready.wait())
        await asyncio.wait([ready, self._running], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await self._running

    async def _run(self, end, is_ready):
        config = StandaloneConfig(str(self.path), "b", str(self.address), self.config)
        self.replica = StandaloneReplica.open(OsFiles(), config)
        try:
            async with (
                Broker(
                    self.replica,
                    BrokerOptions("b"),
                    self.address,
                    name_servers=self.name_servers,
                    name_server_security=lambda: self.name_server_security,
                    security=self.security,
                ) as self.broker,
                grpc.aio.insecure_channel(str(self.address)) as channel,
            ):
                self._stub = broker_pb2_grpc.BrokerServiceStub(channel)
                is_ready.set()
                await end.wait()
        finally:
            await self.replica.stop()


@contextmanager
def running_broker(path, *topics, **store_settings):
    """Yield a broker with these topics, of two queues each."""
    broker = BrokerThread(path, **store_settings)
    try:
        broker.start()
        for topic in topics:
            broker.set_topic(topic)
        yield broker
    finally:
        broker.close()
