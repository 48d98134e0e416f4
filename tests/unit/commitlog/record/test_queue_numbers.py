"""Queues that numpy distinguishes are those that a loop over the records finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record import queue_numbers as module
from commitlog.record.encoder import RecordEncoder
from commitlog.record.queue_numbers import queue_numbers
from commitlog.record.rows import good_rows
from store.model.message import Host, Message

# Names of equal length with common prefixes and suffixes.
NAMES = ["t", "topic", "topic-01", "topic-02", "a-long-name-of-a-topic-01", "a-long-name-Of-a-topic-01", "x" * 127]


def encoded(queues):
    messages = [Message(topic, b"", queue_id, {}) for topic, queue_id in queues]
    prepared = RecordEncoder(Host(b"\x7f\0\0\1", 10911)).prepare(messages)
    data = prepared.encode(0, range(len(messages)), 1)
    ends = np.cumsum(np.array(prepared.sizes, np.int64))
    return memoryview(bytes(data)), good_rows(np.frombuffer(data, np.uint8), ends - prepared.sizes, ends, 0)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), min_size=1, max_size=40))
def test_each_row_has_its_queue_in_the_order_of_first_occurrence(queues):
    found, numbers = queue_numbers(*encoded(queues))

    assert found == list(dict.fromkeys(queues))
    assert [tuple(found[number]) for number in numbers] == queues


# With the second one the whole hash of each row is the same number.
@pytest.mark.parametrize(("name", "value"), [("_TABLE_BITS", 1), ("_ODD", np.uint64(0))])
def test_queues_with_the_same_hash_are_distinguished(monkeypatch, name, value):
    queues = [(name, queue_id) for name in NAMES for queue_id in range(4)] * 3
    monkeypatch.setattr(module, name, value)

    found, numbers = queue_numbers(*encoded(queues))

    assert found == list(dict.fromkeys(queues))
    assert [tuple(found[number]) for number in numbers] == queues


def test_no_rows_have_no_queues():
    view, rows = encoded([("t", 0)])

    assert queue_numbers(view, rows.select(slice(0)))[0] == []
