"""RocketMQ's DLedger opens our replicated log, also one that continued a plain log, and finds every message.

Leaders' own entries are among them: no-ops, memberships, broker state. To Java they are prepared messages of a topic of
their own, which are in no queue.
"""

import os

import pytest

from commitlog.record.system_records import STAMP_AT, STATE_CHANNEL
from dledger.entries.format.codec import SystemEntry
from dledger.entries.store import EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState, Member, Membership
from store.access.message_store import MessageStore
from store.fs.linux.files import OsFiles
from store.maintenance.directory import StoreRoot
from store.model.config import MessageStoreConfig
from store.model.topics import DLEDGER_TOPIC
from tests.interop.java_program import SMALL
from tests.interop.ours import OurStore
from tests.interop.puts import IPV4_STORE as HOST
from tests.interop.puts import Place, lines_of, puts_of_every_kind
from tests.unit.commitlog.conftest import Clock, Opened

pytestmark = pytest.mark.slow

# RocketMQ cannot set the size of DLedger's index files.
SIZES = EntryStoreConfig(SMALL.log_file, 5 * 1024 * 1024 * 32)
MEMBERS = Membership((Member("n0", "127.0.0.1:1"),))
NOW = 1_700_000_100_000


class ReplicatedStore:
    """Our replicated store without a server: a group of one that commits at once."""

    def __init__(self, directory, store_host):
        self.files, self.directory, self.places = OsFiles(), str(directory), []
        self.root = StoreRoot.open(self.files, self.directory, os.getpid())
        self.clock = Clock(NOW)
        self.opened = Opened(self.directory, self.files, self.clock, SIZES, store_host=store_host)
        config = MessageStoreConfig(
            mapped_file_size_consume_queue=SMALL.queue_file,
            max_hash_slot_num=SMALL.index_slots,
            max_index_num=SMALL.index_items,
        )
        self.store = MessageStore.open(self.files, self.directory, self.opened.log, config, self.root.last)

    def lead(self, term):
        HardStateFile.open(self.files, f"{self.directory}/dledger-n0").save(HardState(term, "n0"))
        self.opened.node.lead(term)
        self.opened.node.commit()
        self.store.dispatch()
        self.store.recover_queue_offsets()

    def put(self, puts):
        node = self.opened.node
        for number, put in enumerate(puts):
            self.clock.now += 1
            pending = self.store.put_many(put.messages)
            if number % 10 == 3:
                node.append_own(node.codec.membership(MEMBERS))
            if number % 10 == 6:
                node.append_own(SystemEntry(1, STATE_CHANNEL, node.codec.record(b"a command"), STAMP_AT))
            node.commit()
            self.places += [Place(p.physical_offset, p.queue_offset, p.store_timestamp) for p in pending.outcome.places]
        self.store.dispatch()

    def close(self):
        self.opened.node.flush()
        while (ticket := self.store.begin_flush()) is not None:
            ticket.sync()
            self.store.end_flush(ticket)
        derived = self.store.derived
        timestamp = self.opened.log.flushed_store_timestamp
        self.root.write_checkpoint(timestamp, derived.queues_timestamp, derived.index_timestamp)
        self.root.sync_checkpoint()
        self.store.close()
        self.opened.close()
        self.root.close(is_clean=True)


def assert_java_finds(java, directory, lines):
    contents = java.read(directory, node_id="n0")
    system = [line for line in contents.lines if line["topic"] == DLEDGER_TOPIC]
    assert contents.summary["problems"] == []
    assert [line for line in contents.lines if line["topic"] != DLEDGER_TOPIC] == lines
    assert len(system) > 10
    assert not any(line["inConsumeQueue"] for line in system)


def test_java_finds_all_of_a_replicated_store(java, tmp_path):
    puts = puts_of_every_kind(seed=41, count=300)
    store = ReplicatedStore(tmp_path / "store", HOST)
    store.lead(1)
    store.put(puts[:100])
    store.lead(2)
    store.put(puts[100:])
    places = store.places
    store.close()

    assert len(list((tmp_path / "store" / "dledger-n0" / "data").iterdir())) > 2
    assert_java_finds(java, tmp_path / "store", lines_of(puts, places, HOST))


def test_java_finds_all_of_a_plain_store_that_was_continued_as_a_replicated_one(java, tmp_path):
    puts = puts_of_every_kind(seed=42, count=300)
    plain = OurStore(tmp_path / "store")
    plain.put(puts[:120])
    plain.close()
    store = ReplicatedStore(tmp_path / "store", HOST)
    store.lead(1)
    store.put(puts[120:])
    places = [*plain.places, *store.places]
    store.close()

    assert store.opened.divided.divide > 0
    assert_java_finds(java, tmp_path / "store", lines_of(puts, places, HOST))
