"""Messages without keys, and entries without messages: a start reads as little as with keys, and files are deleted.

Method: a node of a broker on a simulated disk.
"""

from random import Random

import pytest

from commitlog.replicated.commit_log import DLedgerCommitLog
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.model.message import Message
from tests.crashpoints.images import killed
from tests.crashpoints.opening import OpenedBroker
from tests.crashpoints.workload import files_on
from tests.support.message_stores import Clock

COUNT = 30


def put(broker, clock, properties, count=1):
    for _ in range(count):
        clock.pass_s(4)
        broker.put(Message("A", bytes(200), properties=properties))
    broker.commit()


def test_entries_without_messages_are_durable_in_queues_and_index_after_a_flush():
    """Else files that end in such entries, and a base log before them, are kept until the next message."""
    clock = Clock()
    broker = OpenedBroker(files_on(SimDisk(Random(1), FaultCounts())), clock)
    broker.lead(1)
    put(broker, clock, {"KEYS": "a"})
    derived, log = broker.messages.derived, broker.parts.log
    derived.flush()
    before, times = derived.durable_offset, (derived.queues_timestamp, derived.index_timestamp)
    broker.set_topic("T", 2)
    broker.commit()
    assert derived.durable_offset == before

    derived.flush()

    assert derived.durable_offset == log.end_offset > before
    assert (derived.queues_timestamp, derived.index_timestamp) == times


def read_at_the_next_start(monkeypatch, properties, *, is_clean):
    """Return the number of records that a start reads to complete queues and index."""
    disk, clock, read = SimDisk(Random(1), FaultCounts()), Clock(), []
    broker = OpenedBroker(files_on(disk), clock)
    broker.lead(1)
    put(broker, clock, properties, COUNT)
    broker.save_progress()
    put(broker, clock, properties, 3)
    if is_clean:
        broker.close()
    else:
        disk = killed(disk).disk

    def scan(log, *arguments, **settings):
        batch = original(log, *arguments, **settings)
        read.append(0 if batch is None else len(batch))
        return batch

    original = DLedgerCommitLog.scan
    with monkeypatch.context() as patch:
        patch.setattr(DLedgerCommitLog, "scan", scan)
        broker = OpenedBroker(files_on(disk), clock)
    broker.lead(7)
    assert broker.messages.max_offset("A", 0) == COUNT + 3
    broker.close()
    return sum(read)


@pytest.mark.parametrize("is_clean", [True, False])
def test_start_of_a_node_reads_no_more_entries_without_keys_than_with_keys(monkeypatch, is_clean):
    expected = read_at_the_next_start(monkeypatch, {"KEYS": "a"}, is_clean=is_clean)
    assert expected < COUNT / 2

    assert read_at_the_next_start(monkeypatch, {}, is_clean=is_clean) <= expected
