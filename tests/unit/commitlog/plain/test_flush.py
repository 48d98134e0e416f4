"""Group commit: waiters of syncs, and the effect of a failed sync."""

import pytest

from store.errors import Certainty, StorageFailed
from store.model.commit_log import PutStatus
from tests.unit.commitlog.plain.conftest import RECORD_SIZE, flush, message


@pytest.fixture
def log(machine):
    return machine.open()


def test_append_ends_when_the_flush_that_covers_it_has_ended(log):
    ended = []
    pending = log.append([message(10)], [0])
    pending.when_done(ended.append)
    assert (pending.outcome, log.end_offset, log.written_offset) == (None, 0, RECORD_SIZE + 10)
    assert log.read(0, RECORD_SIZE + 10) is None

    ticket = log.begin_flush()
    ticket.sync()
    assert ended == []
    log.end_flush(ticket)

    assert [outcome.status for outcome in ended] == [PutStatus.PUT_OK]
    assert (log.end_offset, log.flushed_offset) == (RECORD_SIZE + 10, RECORD_SIZE + 10)
    assert log.read(0, RECORD_SIZE + 10) is not None


def test_what_arrives_during_a_sync_joins_the_next_one(log):
    first = [log.append([message(1)], [0]) for _ in range(3)]
    ticket = log.begin_flush()
    late = [log.append([message(1)], [0]) for _ in range(2)]
    ticket.sync()
    log.end_flush(ticket)

    assert [pending.outcome is not None for pending in first + late] == [True] * 3 + [False] * 2
    flush(log)
    assert all(pending.outcome.certainty is Certainty.APPENDED for pending in late)
    assert log.begin_flush() is None


def test_append_made_in_the_callback_of_another_waits_for_the_next_flush(log):
    later = []
    log.append([message(1)], [0]).when_done(lambda _: later.append(log.append([message(2)], [1])))

    flush(log)

    assert later[0].outcome is None
    flush(log)
    assert later[0].outcome.places[0].physical_offset == RECORD_SIZE + 1


def test_flush_counts_only_after_all_older_ones_have_completed(log):
    """The younger one covers only the bytes written after the older one started."""
    log.append([message(1)], [0])
    older = log.begin_flush()
    log.append([message(2)], [0])
    younger = log.begin_flush()
    younger.sync()

    log.end_flush(younger)
    assert log.flushed_offset == 0
    older.sync()
    log.end_flush(older)

    assert log.flushed_offset == log.written_offset


def test_async_append_ends_at_once_and_can_be_read_before_it_is_durable(machine):
    log = machine.open(is_flush_sync=False)

    pending = log.append([message(10)], [0])

    assert pending.outcome.certainty is Certainty.APPENDED
    assert (log.end_offset, log.flushed_offset) == (RECORD_SIZE + 10, 0)
    assert log.read(0, RECORD_SIZE + 10).size == RECORD_SIZE + 10


def test_failed_sync_ends_no_append_and_their_outcome_is_unknown(machine, log):
    ended = []
    log.append([message(1)], [0]).when_done(ended.append)
    machine.disk.sync_fault.arm(1, is_lasting=False)
    ticket = log.begin_flush()
    with pytest.raises(StorageFailed):
        ticket.sync()
    assert ended == []

    log.abandon("the disk failed")

    assert [(outcome.certainty, outcome.detail) for outcome in ended] == [(Certainty.UNKNOWN, "the disk failed")]
    assert ended[0].places == ()


def test_close_flushes_and_ends_what_waits(machine, log):
    ended = []
    log.append([message(1)], [0]).when_done(ended.append)

    log.close()

    assert [outcome.certainty for outcome in ended] == [Certainty.APPENDED]
    machine.disk.cut_power()
    assert machine.open(is_clean=True).end_offset == RECORD_SIZE + 1


def test_close_makes_records_of_a_running_flush_durable(machine, log):
    ended = []
    log.append([message(1)], [0]).when_done(ended.append)
    log.begin_flush()

    log.close()

    assert [outcome.certainty for outcome in ended] == [Certainty.APPENDED]
    machine.disk.cut_power()
    assert machine.open(is_clean=True).end_offset == RECORD_SIZE + 1


def test_durable_timestamp_follows_the_flush(machine, log):
    assert (log.flushed_store_timestamp, log.last_store_timestamp) == (-1, -1)
    log.append([message(1)], [0])
    ticket = log.begin_flush()
    first_ms = machine.clock.now_ms
    machine.clock.now_ms += 9
    log.append([message(1)], [0])
    ticket.sync()
    log.end_flush(ticket)

    assert (log.flushed_store_timestamp, log.last_store_timestamp) == (first_ms, first_ms)
    flush(log)
    assert (log.flushed_store_timestamp, log.last_store_timestamp) == (first_ms + 9, first_ms + 9)


def test_opening_syncs_records_that_a_killed_process_had_only_written(machine, log):
    log.append([message(1)], [0])
    log.abandon("killed")

    again = machine.open()

    assert again.flushed_offset == RECORD_SIZE + 1
    assert again.flushed_store_timestamp == machine.clock.now_ms
    machine.disk.cut_power()
    assert machine.open().end_offset == RECORD_SIZE + 1
