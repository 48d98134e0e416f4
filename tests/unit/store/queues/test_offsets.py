"""Queue offsets are given out once."""

from store.model.message import Message, QueueKey
from store.queues.offsets import QueueOffsets
from tests.support.records import columns_of

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def message(topic="T", queue_id=0, sys_flag=0):
    return Message(topic, b"", queue_id, sys_flag=sys_flag)


def table(**known):
    asked = []

    def max_offset_of(key):
        assert isinstance(key, QueueKey)
        asked.append(key)
        return known.get(key.topic, 0)

    return QueueOffsets(max_offset_of), asked


def test_offsets_continue_where_the_queues_end():
    offsets, asked = table(T=7)

    assert offsets.take([message(), message("U"), message(), message(queue_id=1)]) == [7, 0, 8, 7]
    assert offsets.take([message()]) == [9]
    assert offsets.next_offset(QueueKey("T", 0)) == 10
    assert offsets.next_offset(QueueKey("U", 0)) == 1
    assert asked == [("T", 0), ("U", 0), ("T", 1)]


def test_messages_in_no_queue_take_no_offset():
    offsets, _ = table(T=3)
    flags = (PREPARED, 0, ROLLBACK, COMMIT, PREPARED | 0x1, COMMIT | 0x30)

    assert offsets.take([message(sys_flag=flag) for flag in flags]) == [0, 3, 0, 4, 0, 5]


def test_columns_take_the_offsets_of_their_messages():
    one_queue, some, rare = [message()] * 3, [message(queue_id=n % 2) for n in range(5)], [message(sys_flag=PREPARED)]
    of_messages, of_columns = table(T=3)[0], table(T=3)[0]

    for batch in (one_queue, some, rare, some, one_queue):
        taken = of_columns.take(columns_of(batch))
        assert list(taken) == of_messages.take(batch)
    of_columns.take_back(columns_of(batch), taken)

    assert list(of_columns.take(columns_of(batch))) == list(taken)


def test_offsets_of_failed_appends_are_assigned_again():
    offsets, _ = table(T=3)
    batch = [message(), message("U"), message(sys_flag=PREPARED), message()]
    taken = offsets.take(batch)

    offsets.take_back(batch, taken)

    assert offsets.take(batch) == taken == [3, 0, 0, 4]


def test_offsets_are_read_from_the_queues_again_after_a_change_of_the_log():
    known = {"T": 3}
    offsets = QueueOffsets(lambda key: known[key.topic])
    assert offsets.take([message()]) == [3]

    known["T"] = 2
    offsets.forget()

    assert offsets.take([message()]) == [2]
