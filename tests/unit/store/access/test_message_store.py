"""Putting messages and waiting for them: every outcome, and invalid input."""

import pytest

from store.errors import (
    Certainty,
    DiskFull,
    IllegalMessage,
    IllegalRequest,
    StorageFailed,
    StoreStopped,
    TooManyWaiters,
)
from store.model.commit_log import PutStatus
from store.model.message import Message
from tests.support.faulty_disk import FaultyDisk
from tests.support.message_stores import SMALL, numbered, numbers, open_small, with_log, with_store

PREPARED, COMMIT, ROLLBACK = 4, 8, 12

# ------------------------------------------------------------------------------------------------------------- putting


def test_put_returns_the_position_of_its_message(opened):
    store = opened()

    outcome = store.messages.put_many([numbered(0), numbered(1), numbered(4)]).outcome

    assert (outcome.status, outcome.certainty) == (PutStatus.PUT_OK, Certainty.APPENDED)
    assert [place.queue_offset for place in outcome.places] == [0, 0, 1]
    assert outcome.places[0].physical_offset == 0
    assert outcome.places[1].physical_offset == outcome.places[0].size
    assert outcome.places[0].store_timestamp == 1_700_000_000_000


def test_message_is_read_when_it_was_dispatched(opened):
    store = opened()
    store.messages.put(numbered(0))
    assert store.messages.max_offset("TopicTest", 0) == 0

    store.dispatch()

    assert store.messages.max_offset("TopicTest", 0) == 1
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0]


def test_put_that_waits_for_the_disk_returns_after_the_flush(opened):
    store = opened(with_log(SMALL, is_flush_sync=True))
    pending = store.messages.put(numbered(0))
    store.dispatch()
    assert pending.outcome is None
    assert store.messages.max_offset("TopicTest", 0) == 0

    store.flush()

    assert pending.outcome.certainty is Certainty.APPENDED
    assert store.messages.max_offset("TopicTest", 0) == 1


def test_messages_of_transactions_take_queue_offsets_only_when_they_are_visible(opened):
    store = opened()
    flags = (0, PREPARED, 0, ROLLBACK, COMMIT)

    places = store.messages.put_many([numbered(4 * at, sys_flag=flag) for at, flag in enumerate(flags)]).outcome.places

    assert [place.queue_offset for place in places] == [0, 0, 1, 0, 2]
    store.dispatch()
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0, 8, 16]
    assert len(store.messages.query_by_key("TopicTest", "k4").messages) == 1, "prepared ones are indexed"
    assert len(store.messages.query_by_key("TopicTest", "k12").messages) == 0, "rolled-back ones are not"


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "batch"),
        ([numbered(0)] * 4097, "batch"),
        ([numbered(0), Message("TopicTest", b"", -1)], "queue"),
        ([Message("TopicTest", b"", 0, sys_flag=0x80)], "sys flag"),
        ([Message("no/topic", b"")], "topic"),
        ([Message("t" * 128, b"")], "topic"),
        ([numbered(0), Message("T", bytes((4 << 20) + 1))], "body"),
        ([Message("T", b"", properties={"a": "b\x01"})], "properties"),
        ([numbered(at, body_size=40_000) for at in range(2)], "batch"),
    ],
)
def test_illegal_message_is_refused_and_uses_no_offset(opened, messages, field):
    store = opened()

    with pytest.raises(IllegalMessage) as caught:
        store.messages.put_many(messages)

    assert field in caught.value.field
    assert store.messages.put(numbered(0)).outcome.places[0].queue_offset == 0
    assert store.log.written_offset < 300


def test_full_disk_refuses_a_put_and_leaves_no_gap(tmp_path, clock):
    disk = FaultyDisk()
    store = open_small(tmp_path, clock=clock, files=disk)
    store.messages.put(numbered(0, body_size=40_000))
    disk.is_full = True

    outcome = store.messages.put_many([numbered(4, body_size=40_000)]).outcome

    assert (outcome.status, outcome.certainty) == (PutStatus.CREATE_MAPPED_FILE_FAILED, Certainty.NOT_APPENDED)
    assert "no space" in outcome.detail
    with pytest.raises(DiskFull):
        store.dispatch()
    disk.is_full = False
    assert store.messages.put(numbered(8)).outcome.places[0].queue_offset == 1
    store.dispatch()
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0, 8]
    store.close()


def test_puts_are_refused_while_a_refusal_reason_is_set(opened):
    store = opened()
    store.messages.refuse_puts("the disk is 91 % full")

    outcome = store.messages.put(numbered(0)).outcome

    assert (outcome.status, outcome.certainty) == (PutStatus.SERVICE_NOT_AVAILABLE, Certainty.NOT_APPENDED)
    assert outcome.detail == "the disk is 91 % full"
    store.messages.refuse_puts("")
    assert store.messages.put(numbered(0)).outcome.places[0].queue_offset == 0


def test_failed_write_ends_the_store(opened, monkeypatch):
    store = opened()
    woken = []
    store.messages.put(numbered(0))
    store.dispatch()
    store.messages.wait("TopicTest", 0, 1, lambda: woken.append("woken"))

    def fail(*_):
        raise StorageFailed("log", "write", OSError(5, "input/output error"))

    monkeypatch.setattr(store.log, "_write", fail)
    with pytest.raises(StorageFailed):
        store.messages.put(numbered(1))

    assert woken == ["woken"]
    assert store.messages.put(numbered(2)).outcome.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0], "what is there can still be read"
    for operation in (store.dispatch, lambda: store.messages.wait("TopicTest", 0, 1, print)):
        with pytest.raises(StoreStopped, match="write failed"):
            operation()


def test_queue_offsets_continue_after_a_restart(opened):
    store = opened()
    store.messages.put_many([numbered(number) for number in range(9)])
    store.close()

    store = opened()

    assert store.messages.put(numbered(0)).outcome.places[0].queue_offset == 3
    assert store.messages.put(numbered(1)).outcome.places[0].queue_offset == 2


# ------------------------------------------------------------------------------------------------------------- waiting


def test_waiter_is_woken_by_dispatch(opened):
    store, woken = opened(), []
    waiter = store.messages.wait("TopicTest", 0, 0, lambda: woken.append(1))
    other = store.messages.wait("TopicTest", 1, 0, lambda: woken.append(2))
    store.messages.put(numbered(0))
    assert (woken, store.messages.waiters_count) == ([], 2)

    store.dispatch()

    assert (woken, store.messages.waiters_count) == ([1], 1)
    waiter.cancel()
    other.cancel()
    assert store.messages.waiters_count == 0


def test_waiter_for_an_existing_message_is_woken_at_once(filled):
    woken = []

    filled.messages.wait("TopicTest", 0, 49, lambda: woken.append(1))

    assert (woken, filled.messages.waiters_count) == ([1], 0)


def test_waiters_are_bounded(opened):
    store = opened(with_store(SMALL, waiters_max=1))
    store.messages.wait("T", 0, 0, print)

    with pytest.raises(TooManyWaiters):
        store.messages.wait("T", 0, 0, print)
    with pytest.raises(IllegalRequest):
        store.messages.wait("T", 0, -1, print)
