"""The parts of copies of waiting records are the same in C and in Python, and as the record says of itself."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.copied_records import WaitingQueue, copied, copied_in_python
from commitlog.record.effects import EFFECT_NAME, effect_property
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from commitlog.record.record_runs import split_records
from store.model.message import LOOPBACK, Host, Message
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC
from tests.fuzz.kernels import view_of
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native

TOPIC = SCHEDULE_TOPIC.encode()
DELAYED = WaitingQueue(TOPIC, 2, effect_property("d:3:"))
TIMED = DELAYED._replace(before_unit=b"\x02OUT\x015\x02" + effect_property("t:"), before_time=b"IN\x01")
PARTS = [
    *(b"\x01", b"\x02", b"", b"\xff", b"x", b"DELAY\x013", REAL_TOPIC.encode(), REAL_QUEUE_ID.encode()),
    *(
        f"{REAL_TOPIC}\x01orders\x02".encode(),
        f"{REAL_TOPIC}\x01\xe4\x02".encode(),
        f"{REAL_QUEUE_ID}\x017\x02".encode(),
    ),
    *(f"{EFFECT_NAME}\x01b:00\x02".encode(), f"{EFFECT_NAME}\x01".encode(), EFFECT_NAME.encode()),
]
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.sampled_from([LOOPBACK, LOOPBACK, LOOPBACK, Host(b"\x0a\x00\x00\x02", 65_535), Host(bytes(range(16)), 7)])
MESSAGES = st.builds(
    Message,
    st.sampled_from([SCHEDULE_TOPIC] * 5 + ["orders", SCHEDULE_TOPIC[:-1]]),
    st.binary(max_size=9),
    st.sampled_from([2, 2, 2, 2, 1]),
    st.lists(st.sampled_from(PARTS), max_size=6).map(lambda parts: RawProperties(b"".join(parts))),
    INT32, INT32, INT64, HOSTS, INT32, INT64,
)  # fmt: skip
UNITS = st.one_of(st.integers(0, 99), st.sampled_from([(1 << 62) - 1, 1 << 62, (1 << 63) - 1]))
RUNS = st.lists(st.tuples(MESSAGES, UNITS, st.sampled_from([0, 0, 0, 0, 1])), max_size=6)


def records_of(messages, offsets, time_ms):
    """Return the records of messages, back to back."""
    encoded, _ = RecordEncoder(LOOPBACK, check_topic=lambda _: None).encode_each(
        messages, offsets, time_ms, may_carry_effects=True
    )
    return split_records(view_of(b"".join(encoded)))


@given(RUNS, st.sampled_from([DELAYED, TIMED]), st.sampled_from([0, 5, 1_700_000_000_000, -1, (1 << 62) - 1]))
def test_copies_are_alike(run, queue, time_ms):
    records = records_of([each[0] for each in run], [each[1] for each in run], time_ms)
    units = [unit + shift for _, unit, shift in run]

    found = assert_same(copied, records, units, queue)

    assert found == list(copied_in_python(records, units, queue))
    is_expected = [
        record.topic == SCHEDULE_TOPIC and record.queue_id == 2 and record.queue_offset == unit
        for record, unit in zip(records, units, strict=True)
    ]
    assert len(found) == (is_expected.index(False) if False in is_expected else len(run))
    for (_, body, _, raw, flag, sys_flag, born_ms, _, times, prepared), record in zip(found, records, strict=False):
        assert (body, flag, born_ms) == (record.body, record.flag, record.born_timestamp)
        assert (times, prepared) == (record.reconsume_times, record.prepared_transaction_offset)
        assert sys_flag == record.sys_flag | CARRIES_EFFECT
        assert raw.endswith(queue.before_unit + b"%d\x02" % record.queue_offset)


def test_usual_records_are_not_left_to_python():
    """Of several topics and clients, with an earlier effect, with the last separator and without."""
    real = f"TAGS\x01a\x02{REAL_TOPIC}\x01%s\x02{REAL_QUEUE_ID}\x01%d"
    texts = [
        real % ("orders", 1),
        real % ("orders", 1) + "\x02",
        real % ("bills", 12) + f"\x02{EFFECT_NAME}\x01b:0\x02",
    ]
    hosts = [LOOPBACK, Host(b"\x0a\x00\x00\x02", 1), LOOPBACK]
    messages = [
        Message(SCHEDULE_TOPIC, b"body", 2, RawProperties(text.encode()), 0, 0, 7, host)
        for text, host in zip(texts, hosts, strict=True)
    ]
    records = records_of(messages, [4, 5, 6], 8)

    found = NATIVE.copy_records(
        *(records[0].view, [each.row for each in records], [4, 5, 6], TOPIC, 2, b"IN\x01", b"\x02E\x01"),
    )

    assert [each[:4] for each in found] == [
        (b"orders", b"body", b"1", texts[0].encode() + b"\x02IN\x018\x02E\x014\x02"),
        (b"orders", b"body", b"1", texts[1].encode() + b"IN\x018\x02E\x015\x02"),
        (b"bills", b"body", b"12", (real % ("bills", 12)).encode() + b"\x02IN\x018\x02E\x016\x02"),
    ]
    assert [each[7] for each in found] == [each.address + each.port.to_bytes(4, "big") for each in hosts]


@pytest.mark.parametrize("hostile", [-1, 0, 1, 87, 400, 10**6, (1 << 62) - 1, -(1 << 62), 1 << 70, "1", None])
def test_places_of_any_size_are_refused_or_served(hostile):
    """No place leads outside of the buffer; the module under address checks finds out."""
    (record,) = records_of([Message(SCHEDULE_TOPIC, b"body", 2, RawProperties(b"a\x01b"))], [0], 5)
    for place in range(len(record.row)):
        row = (*record.row[:place], hostile, *record.row[place + 1 :])
        found = NATIVE.copy_records(record.view, [row, record.row], [0, 0], TOPIC, 2, b"", b"E\x01")
        assert len(found) in (0, 2)


@given(st.integers(0, 1 << 32))
def test_arguments_of_any_type_are_refused(seed):
    draw = random.Random(seed)
    (record,) = records_of([Message(SCHEDULE_TOPIC, b"body", 2)], [0], 5)
    arguments = [record.view, [record.row], [0], TOPIC, 2, b"", b"E\x01"]
    at = draw.randrange(3, len(arguments))
    arguments[at] = draw.choice((None, "text", -1, 1 << 31, bytearray(3), bytes(1 << 15)))

    found = NATIVE.copy_records(*arguments)

    assert not found
    assert NATIVE.copy_records(record.view, [record.row], [0, 1], TOPIC, 2, b"", b"") is None
