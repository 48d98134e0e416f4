"""Messages of a batch, queue by queue."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store.model.message import QueueKey
from store.queues.rows import rows_by_queue
from tests.support.dispatch_batches import batch_of

MESSAGES = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(1, 99)), max_size=6)


@given(MESSAGES)
def test_a_queue_gets_the_same_rows_alone_and_with_others_in_a_batch(found):
    messages, place = [], 100
    for queue_offset, size in found:
        messages.append(("t", 0, queue_offset, place, size, place))
        place += size
    batch = batch_of(messages)
    beside = replace(batch, queues=[*batch.queues, QueueKey("other", 1)])

    alone, general = ([(key, *rows, regular) for key, rows, regular in rows_by_queue(each)] for each in (batch, beside))

    offsets = [message[2] for message in messages if message[2] is not None]
    is_regular = all(after == before + 1 for before, after in pairwise(offsets))
    assert [(row[0], row[-1]) for row in alone] == ([(QueueKey("t", 0), is_regular)] if offsets else [])
    assert len(alone) == len(general)
    for row, wanted in zip(alone, general, strict=True):
        assert (row[0], bytes(row[4]), row[5]) == (wanted[0], bytes(wanted[4]), wanted[5])
        for column, other in zip(row[1:4], wanted[1:4], strict=True):
            assert np.array_equal(column, other)
            assert column.dtype == other.dtype
