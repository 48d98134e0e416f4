"""Three nodes with a message store each, in one process, over real sockets: a group that continues a plain log."""

import asyncio
import shutil
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from commitlog.conversion.base_log import BaseLog
from commitlog.conversion.divide import LogDirectories, OpeningCase, divide_log
from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from commitlog.record.system_records import STAMP_AT, STATE_CHANNEL, MessageEntryCodec, system_body
from commitlog.replicated.commit_log import DLedgerCommitLog, DLedgerCommitLogConfig
from commitlog.replicated.leadership import Leadership
from dledger.config import NodeConfig, Peer
from dledger.entries.store import EntryStoreConfig
from dledger.errors import ResponseCode
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from store.access.message_store import MessageStore
from store.dispatch.recovery import LastState
from store.errors import Certainty
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from store.model.message import Message, QueueKey
from tests.support.brokers.replicated import RAFT, WAIT_ACK_MS, free_port
from tests.support.waiting import PATIENCE_S, run, until

FILE_SIZE = 1 << 16
SIZES = EntryStoreConfig(FILE_SIZE, 32 << 12)
CONFIG = MessageStoreConfig(mapped_file_size_consume_queue=1000, max_hash_slot_num=100, max_index_num=400)
NOW = 1_700_000_000_000
OLD_COUNT = 40


class Commands:
    """A state machine of the broker's own commands."""

    def __init__(self):
        self.commands = []

    def apply(self, entries):
        self.commands += [system_body(entry.body) for entry in entries]
        return self.commands[-len(entries) :]

    def snapshot_save(self):
        return [b""]

    def snapshot_load(self, content):
        raise AssertionError(content)


class Broker:
    """The parts of a broker, without gRPC."""

    def __init__(self, config):
        files, root = OsFiles(), config.store_base_dir
        codec = MessageEntryCodec(clock=lambda: NOW)
        places = LogDirectories(f"{root}/commitlog", f"{root}/dledger-{config.self_id}", SIZES)
        self.divided = divide_log(files, places, codec)
        self.state = Commands()
        self.codec = codec
        metrics = NodeMetrics(CollectorRegistry(), config.group, config.self_id)
        keep_from = lambda: self.log.retention_floor(self.store.derived.durable_offset)  # noqa: E731
        self.node = Node(config, metrics, codec=codec, state_machine=self.state, keep_from=keep_from)
        entries = self.node.open()
        base = BaseLog.open(files, places.base_directory, FILE_SIZE, self.divided.divide)
        self.log = DLedgerCommitLog(
            self.node, entries, self.divided.divide, base, DLedgerCommitLogConfig(), lambda: NOW
        )
        self.store = MessageStore.open(files, root, self.log, CONFIG, LastState())
        self.leadership = Leadership(
            self.node,
            term_at=entries.term_at,
            end_offset=lambda: self.log.end_offset,
            dispatched_offset=lambda: self.store.derived.dispatcher.offset,
            is_idle=lambda: True,
            recover_queue_offsets=self.store.recover_queue_offsets,
        )

    @property
    def is_ready(self):
        self.store.dispatch()
        return self.leadership.check().is_ready

    async def put(self, *messages):
        assert self.is_ready
        done = asyncio.get_running_loop().create_future()
        self.store.put_many(messages).when_done(done.set_result)
        return await done

    def queue(self, topic="T", queue_id=0):
        self.store.dispatch()
        queue = self.store.derived.queues.get(QueueKey(topic, queue_id))
        return queue.unit_tuples(queue.min_offset, queue.max_offset - queue.min_offset)

    async def stop(self):
        await self.node.stop()
        self.store.close()
        self.log.close()


def write_plain(root):
    log = PlainCommitLog.open(
        OsFiles(), f"{root}/commitlog", CommitLogConfig(mapped_file_size=FILE_SIZE), LastExit(), lambda: NOW
    )
    for number in range(OLD_COUNT):
        log.append([Message("T", b"old %d" % number * 300)], [number])
    log.close()


@pytest.fixture
def configs(tmp_path):
    write_plain(tmp_path / "n0")
    for name in ("n1", "n2"):
        shutil.copytree(tmp_path / "n0", tmp_path / name)
    peers = tuple(Peer(f"n{number}", free_port()) for number in range(3))
    first = NodeConfig(
        group="test",
        self_id="n0",
        peers=peers,
        store_base_dir="",
        client_address=free_port(),
        mapped_file_size_for_entry_data=FILE_SIZE,
        mapped_file_size_for_entry_index=SIZES.index_file_size_bytes,
        max_wait_ack_time_ms=WAIT_ACK_MS,
        raft=RAFT,
    )
    return [
        replace(first, self_id=peer.id, store_base_dir=str(tmp_path / peer.id), client_address=free_port())
        for peer in peers
    ]


async def ready_leader(brokers):
    await until(lambda: any(broker.is_ready for broker in brokers))
    return next(broker for broker in brokers if broker.is_ready)


async def put(brokers, *messages):
    """Put at the leader, which may have lost its quorum just now; return (the leader, the places)."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        leader = await ready_leader(brokers)
        outcome = await leader.put(*messages)
        if outcome.certainty is Certainty.APPENDED:
            return leader, outcome.places
        assert outcome.certainty is Certainty.NOT_APPENDED, outcome
        assert asyncio.get_running_loop().time() < deadline, outcome


async def scenario(configs):
    brokers = [Broker(config) for config in configs]
    assert {broker.divided.case for broker in brokers} == {OpeningCase.BASE_LOG}
    assert len({broker.divided.divide for broker in brokers}) == 1
    assert [len(broker.queue()) for broker in brokers] == [OLD_COUNT] * 3
    for broker in brokers:
        await broker.node.start()
    _, first = await put(brokers, Message("T", b"first"))
    leader, others = await put(brokers, *[Message("T", b"x" * 999)] * 100)
    places = [*first, *others]
    assert [place.queue_offset for place in places] == list(range(OLD_COUNT, OLD_COUNT + 101))
    command = await leader.node.append([leader.codec.record(b"a command")], STAMP_AT, channel=STATE_CHANNEL)
    assert (command.code, command.results) == (ResponseCode.SUCCESS, [b"a command"])

    await leader.stop()
    rest = [broker for broker in brokers if broker is not leader]
    second, (place,) = await put(rest, Message("T", b"after the failover"))
    assert place.queue_offset == OLD_COUNT + 101
    again = Broker(configs[brokers.index(leader)])
    assert again.divided.case is OpeningCase.ENTRIES
    await again.node.start()
    brokers = [*rest, again]
    await until(lambda: all(len(broker.queue()) == OLD_COUNT + 102 for broker in brokers))
    # Commands are applied a step after the commit, messages are dispatched when a queue is read.
    await until(lambda: all(broker.node.applied_index >= broker.node.commit_index for broker in brokers))

    assert brokers[0].queue() == brokers[1].queue() == brokers[2].queue()
    assert [broker.log.end_offset for broker in brokers] == [second.log.end_offset] * 3
    assert all(broker.state.commands == [b"a command"] for broker in brokers)
    for broker in brokers:
        assert broker.log.find(place.physical_offset).body == b"after the failover"
        found = broker.store.get("T", 0, OLD_COUNT - 1, 2)
        assert [message.body for message in found.messages] == [b"old %d" % (OLD_COUNT - 1) * 300, b"first"]
        await broker.stop()


@pytest.mark.slow
def test_group_continues_from_a_plain_log_over_a_failover(configs):
    run(scenario(configs))


def test_node_that_was_only_opened_releases_its_files(configs):
    async def main():
        broker = Broker(configs[0])
        assert (broker.node.commit_index, broker.node.term) == (-1, -1)
        await broker.stop()
        await Broker(configs[0]).stop()

    asyncio.run(main())
