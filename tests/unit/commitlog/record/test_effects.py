"""Effects that message records carry: one property, at the end, and a mark that only brokers set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.effects import effect_of, without_effect
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import CRC_NAME, RawProperties, decode_properties
from commitlog.record.record import decode
from store.model.message import LOOPBACK, Message
from store.model.message_columns import MessageColumns
from store.model.sys_flag import CARRIES_EFFECT
from tests.support.effects import with_effect

pytestmark = pytest.mark.usefixtures("both_forms")
TEXT = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1)


def encoded(message, *, may_carry_effects):
    encoder = RecordEncoder(LOOPBACK)
    return encoder.encode_each([message], [0], 7, may_carry_effects=may_carry_effects)[0][0]


@given(st.dictionaries(TEXT.filter(lambda name: name != CRC_NAME), TEXT), TEXT, st.binary())
def test_effect_comes_back_and_the_message_is_otherwise_unchanged(properties, effect, body):
    raw = b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())
    message = Message("T", body, 3, RawProperties(raw), sys_flag=0x8)

    record = encoded(with_effect(message, raw, effect), may_carry_effects=True)

    assert effect_of(record) == effect
    stored = decode(memoryview(record), 0)
    assert (stored.body, stored.queue_id, stored.sys_flag) == (body, 3, 0x8 | CARRIES_EFFECT)
    assert dict(stored.properties) == {**decode_properties(without_effect(raw)), "__EFFECT": effect}


def test_effect_of_an_earlier_record_is_replaced():
    """A consumer that sends what it received sends the property, too."""
    raw = b"A\x011\x02__EFFECT\x01d:1:5\x02B\x012"
    record = encoded(with_effect(Message("T", b"x"), raw, "d:2:9"), may_carry_effects=True)

    assert decode(memoryview(record), 0).properties_raw == b"A\x011\x02B\x012\x02__EFFECT\x01d:2:9\x02"
    assert effect_of(record) == "d:2:9"


def test_property_that_only_ends_with_the_name_is_kept():
    raw = b"my__EFFECT\x01d:1:5\x02A\x01__EFFECT\x02"

    assert without_effect(raw) == raw


@pytest.mark.parametrize("sys_flag", [CARRIES_EFFECT, 0x4000_0000, 0x0040_0000, CARRIES_EFFECT | 0x1])
def test_mark_in_what_a_client_sends_is_removed(sys_flag):
    message = Message("T", b"x", 0, RawProperties(b"__EFFECT\x01d:1:5\x02"), sys_flag=sys_flag)
    numbers = dict.fromkeys(("queue_ids", "flags", "born_timestamps", "reconsume_times"), 0)
    columns = MessageColumns(
        *("T", [b"x"], [b"__EFFECT\x01d:1:5\x02"], RawProperties),
        **numbers,
        sys_flags=sys_flag,
        born_host=LOOPBACK,
        unique_keys=[b""],
        key_hashes=[0],
    )

    one = decode(memoryview(encoded(message, may_carry_effects=False)), 0)
    many = decode(memoryview(RecordEncoder(LOOPBACK).encode_each(columns, [0], 7)[0][0]), 0)

    assert one.sys_flag == many.sys_flag == sys_flag & 0x1


@pytest.mark.parametrize(
    "properties", [b"", b"A\x011\x02", b"__EFFECT\x01d:1:5\x02A\x011\x02", b"__EFFECT\x01d:1:5", b"x__EFFECT\x02"]
)
def test_record_without_an_effect_as_last_property_has_none(properties):
    """Clients of older versions could store any sysFlag."""
    message = Message("T", b"__EFFECT\x01d:1:1\x02", 0, RawProperties(properties), sys_flag=CARRIES_EFFECT)

    assert effect_of(encoded(message, may_carry_effects=True)) is None
