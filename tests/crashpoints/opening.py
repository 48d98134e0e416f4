"""One node of a broker on a simulated disk, bootstrapped and opened as in production, and run without a network."""

from collections import Counter
from dataclasses import replace

from prometheus_client import CollectorRegistry

from cluster.protocol.topic_config import TopicConfig
from cluster.replica.opening import open_replica
from cluster.replica.replicated import ReplicatedConfig
from cluster.state.commands import SetTopic, encode_command
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from commitlog.record.system_records import STAMP_AT, STATE_CHANNEL, MessageEntryCodec
from dledger.config import Address, NodeConfig, Peer
from dledger.metrics import NodeMetrics
from dledger.node.host import NodeHost
from dledger.storage.properties import parse_checked
from store.model.config import MessageStoreConfig
from tests.crashpoints.workload import files_on
from tests.support.brokers.base_log import bootstrap_alone
from tests.support.message_stores import numbered
from tests.unit.commitlog.conftest import SimpleNode

ROOT = "/s"
FILE_SIZE = 2048
STORE = MessageStoreConfig(
    mapped_file_size_consume_queue=160, max_hash_slot_num=16, max_index_num=20, dispatch_size_bytes=700
)
NODE = NodeConfig(
    group="test",
    self_id="n0",
    peers=(Peer("n0", Address("127.0.0.1", 1)),),
    store_base_dir=ROOT,
    client_address=Address("127.0.0.1", 2),
    mapped_file_size_for_entry_data=FILE_SIZE,
    mapped_file_size_for_entry_index=32 * 8,
)
CONFIG = ReplicatedConfig(NODE, broker="broker-a", store=STORE)
PLAIN = PlainStoreConfig(log=CommitLogConfig(mapped_file_size=FILE_SIZE), store=STORE)
METRICS = NodeMetrics(CollectorRegistry(), NODE.group, NODE.self_id)
# Files about the process that has the store open; they hold no data.
OF_THE_PROCESS = ("/s/lock", "/s/abort", "/s/dledger-n0/lock")
# Contains the number of starts, and random numbers of each start.
IDENTITY = "/s/dledger-n0/identity"


class OpenedBroker:
    """All stores of a node; the log has a leader without a network, and the test acts as its quorum.

    Args:
        files: of one process.
        clock: for store timestamps.
        end_opening: called after everything is open.
        is_adopting: accept entries without the file `identity`.
    """

    def __init__(self, files, clock, end_opening=lambda: None, *, is_adopting=False):
        codec = MessageEntryCodec(lambda: 0)
        self.agreed = bootstrap_alone(files, NODE, codec)
        config = replace(CONFIG, node=replace(NODE, is_adopting=is_adopting))
        self.parts = open_replica(files, config, METRICS, None, NodeHost(read_clocks=clock), None)
        end_opening()
        self.messages = self.parts.messages
        self.node = SimpleNode(self.parts.entries, self.parts.codec)
        self.node.commit_index = self.parts.log.commit_index
        self.parts.log._node = self.node

    def lead(self, term):
        """Begin a term, in which all entries are committed and dispatched."""
        self.node.lead(term)
        self.commit()
        self.messages.recover_queue_offsets()

    def commit(self):
        self.node.flush()
        self.node.commit()
        self.messages.dispatch()

    def put(self, *messages):
        assert self.messages.put_many(messages).outcome is None

    def set_topic(self, name, queues):
        record = self.parts.codec.record(encode_command(SetTopic(TopicConfig(name, queues, queues))))
        entries = self.parts.entries
        entries.append([record], entries.last_index + 1, self.node.term, channel=STATE_CHANNEL, stamp_at=STAMP_AT)

    def save_progress(self):
        """Save the commit index and the durable part of queues and index, as a running node does periodically."""
        self.parts.entries.begin_checkpoint(self.node.commit_index).save()
        self.parts.messages.derived.flush()
        self.parts.lifecycle.save_checkpoint()

    def close(self):
        """Close cleanly."""
        self.commit()
        self.parts.lifecycle.flush()
        self.parts.entries.begin_checkpoint(self.node.commit_index).save()
        self.parts.node.abandon()
        self.parts.lifecycle.abandon(is_clean=True)
        self.parts.log.close()

    def found(self):
        """Return all messages in log order."""
        log, found, offset = self.parts.log, [], self.parts.log.begin_offset
        while (batch := log.scan(offset, 1 << 20, is_body_checked=True)) is not None:
            assert not batch.skipped
            found += [log.find(at) for at in batch.physical_offsets.tolist()]
            offset = batch.next_offset
        return found


def write_plain(disk, clock, *, is_closed):
    """Write a plain store of a few files; return its messages, all of which are durable."""
    store = open_plain_store(files_on(disk), ROOT, PLAIN, process_id=1, clocks=clock)
    messages = [numbered(number, "A", 2, 300) for number in range(14)]
    for number, message in enumerate(messages):
        clock.pass_s(4)
        store.messages.put_many([message])
        if number == 9:
            store.flush()
    store.lifecycle.flush_log()
    if is_closed:
        store.close()
    else:
        store.dispatch()
    return messages


def contents(disk):
    """Return all files of a disk as programs see them, except files about the processes that opened it."""
    return {path: data for path, data in _files(disk) if path not in (*OF_THE_PROCESS, IDENTITY)}


def identity_on(disk):
    """Return (node, group, directory, starts) of the file `identity`; before the first start (None, None, None, 0)."""
    content = dict(_files(disk)).get(IDENTITY)
    found = {} if content is None else parse_checked(content)
    return (*(found.get(key) for key in ("nodeId", "group", "directoryId")), int(found.get("starts", 0)))


def _files(disk):
    for path, directory in disk.directories.items():
        for name, inode in directory.cached.items():
            yield f"{path}/{name}", bytes(inode.cache)


def check_queues(broker, messages):
    """Compare queues and index with the messages of the log."""
    queues = Counter((message.topic, message.queue_id) for message in messages)
    for (topic, queue_id), count in queues.items():
        store = broker.messages
        assert (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)) == (0, count)
        found = store.get(topic, queue_id, 0).messages
        expected = [each.body for each in messages if (each.topic, each.queue_id) == (topic, queue_id)]
        assert [each.body for each in found] == expected[: len(found)]
        assert len(found) == min(count, 32)
    for message in messages[:1] + messages[-1:]:
        hits = broker.messages.query_by_key(message.topic, message.properties["UNIQ_KEY"]).messages
        assert [hit.body for hit in hits] == [message.body]
