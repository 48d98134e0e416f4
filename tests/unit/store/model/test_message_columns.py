"""Columns of messages and of places are sequences like the lists that they replace."""

import pytest

from store.model.commit_log import Place, Places
from store.model.message import Host, Message
from store.model.message_columns import each_queue_id
from store.model.unique_keys import unique_key
from tests.support.records import columns_of

CLIENT = Host(b"\x0a\0\0\1", 5555)
MESSAGES = [
    Message("T", b"one", 3, {"UNIQ_KEY": "a", "TAGS": "x"}, 1, 0x100, 1_700_000_000_000, CLIENT),
    Message("T", b"", 3, {}, -1, 0, 1_700_000_000_001, CLIENT),
    Message("T", b"three", 3, {"KEYS": "k"}, 0, 0, 5, CLIENT),
]


def fields(message):
    return message._replace(properties=dict(message.properties))


def test_columns_are_the_messages_in_order():
    columns = columns_of(MESSAGES)

    assert [fields(each) for each in columns] == MESSAGES
    assert [fields(columns[row]) for row in range(3)] == MESSAGES
    assert [fields(each) for each in columns[1:]] == MESSAGES[1:]
    assert [fields(each) for each in reversed(columns)] == MESSAGES[::-1]
    assert list(columns.unique_keys) == [unique_key("T", "a"), b"", b""]
    assert list(each_queue_id(columns)) == each_queue_id(MESSAGES) == [3, 3, 3]
    with pytest.raises(IndexError):
        columns[3]


@pytest.mark.parametrize("field", [{"reconsume_times": 1}, {"sys_flag": 0x4}, {"sys_flag": 0xC}, {"sys_flag": 0x80}])
def test_redelivered_transactional_and_inner_batches_are_not_ordinary(field):
    for rows in ([0], [2], [0, 1, 2]):
        changed = [each._replace(**field) if row in rows else each for row, each in enumerate(MESSAGES)]
        assert not columns_of(changed).is_ordinary
    assert columns_of(MESSAGES).is_ordinary


def test_keys_of_different_topics_and_values_differ():
    assert unique_key("a", "b\x01c") != unique_key("a\x01b", "c")
    assert unique_key("ab", "c") != unique_key("a", "bc")
    assert unique_key("T", "\ud800") != unique_key("T", "?")


def test_places_are_those_of_each_message():
    places = Places([48, 248], [200, 100], range(7, 9), 1_700_000_000_000)

    assert places == [Place(48, 200, 7, 1_700_000_000_000), Place(248, 100, 8, 1_700_000_000_000)]
    assert places[-1].physical_offset == 248
    assert places[:1] == [places[0]]
    assert places != [places[0]]
    assert len(places) == 2
    assert repr(places) == repr(list(places))
