"""A client's batch is taken apart into what it was made of; what is no batch is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.message_batch import encode_batch, split_batch
from commitlog.record.properties import RawProperties
from store.errors import IllegalMessage
from store.model.message import LOOPBACK, Host, Message

TEXT = st.text("abcé", min_size=1, max_size=6)
MESSAGES = st.builds(
    Message,
    topic=st.just("orders"),
    body=st.binary(max_size=30),
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    queue_id=st.just(0),
    sys_flag=st.just(0),
    born_timestamp=st.just(0),
    born_host=st.just(LOOPBACK),
    reconsume_times=st.just(0),
    prepared_transaction_offset=st.just(0),
)
HEAD = Message("orders", b"", 3, sys_flag=1, born_timestamp=5, born_host=Host(bytes(4), 7), reconsume_times=2)


@given(st.lists(MESSAGES, min_size=1, max_size=6))
def test_a_batch_gives_back_its_messages_with_what_the_batch_says_of_all(messages):
    split = split_batch(HEAD._replace(body=encode_batch(messages)))

    expected = [HEAD._replace(body=m.body, flag=m.flag, properties=m.properties) for m in messages]
    assert split == expected
    assert encode_batch(split) == encode_batch(messages)


def test_layout_of_a_batch():
    encoded = encode_batch([Message("t", b"hello", properties={"a": "b"}, flag=9)])

    assert encoded == struct.pack(">iiiii5sh4s", 31, 0, 0, 9, 5, b"hello", 4, b"a\x01b\x02")


@pytest.mark.parametrize(
    ("own", "stored"),
    [(b"", b"x\x01y\x02"), (b"a\x01b\x02", b"a\x01b\x02x\x01y\x02"), (b"a\x01b", b"a\x01b\x02x\x01y\x02")],
)
def test_properties_of_the_batch_go_behind_those_of_each_message(own, stored):
    body = encode_batch([Message("t", b"", properties=RawProperties(own))] * 2)

    split = split_batch(HEAD._replace(body=body, properties={"x": "y"}))

    assert [message.properties.raw for message in split] == [stored, stored]


def test_properties_are_kept_byte_for_byte():
    body = encode_batch([Message("t", b"", properties=RawProperties(b"a\x01\x02b\x01c"))])

    assert split_batch(HEAD._replace(body=body))[0].properties.raw == b"a\x01\x02b\x01c"


@given(st.binary(max_size=80))
def test_any_bytes_are_a_batch_or_refused(body):
    try:
        messages = split_batch(HEAD._replace(body=body))
    except IllegalMessage:
        return
    assert sum(22 + len(m.body) + len(m.properties.raw) for m in messages) == len(body)


GOOD = encode_batch([Message("t", b"hello", properties={"a": "b"})] * 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"body": b""}, "at least one message"),
        ({"body": GOOD[:-1]}, "a message of 22 to 30 bytes at byte 31"),
        ({"body": GOOD + b"x"}, "a message of at least 22 bytes at byte 62"),
        ({"body": struct.pack(">i", 30) + GOOD[4:]}, "a properties length of 3 at byte 25"),
        ({"body": struct.pack(">i", 21) + GOOD[4:]}, "a message of 22 to 62 bytes at byte 0"),
        ({"body": struct.pack(">iiiii", 31, 0, 0, 0, -1) + GOOD[20:]}, "a message of 22 to 62 bytes at byte 0"),
        ({"body": struct.pack(">iiiii", 31, 0, 0, 0, 10) + GOOD[20:]}, "a message of 22 to 62 bytes at byte 0"),
        ({"sys_flag": 4}, "no transaction"),
        ({"topic": "%RETRY%g"}, "a topic that is none for retries or dead letters"),
        ({"properties": {"DELAY": "3"}}, "no delay"),
    ],
)
def test_what_is_no_batch_is_refused(change, expected):
    with pytest.raises(IllegalMessage) as refused:
        split_batch(HEAD._replace(**{"body": GOOD, **change}))

    assert refused.value.expected == expected


def test_a_batch_that_is_too_large_is_refused():
    assert len(split_batch(HEAD._replace(body=GOOD), max_message_size=62)) == 2
    with pytest.raises(IllegalMessage, match="at most 61 bytes, found 62"):
        split_batch(HEAD._replace(body=GOOD), max_message_size=61)
