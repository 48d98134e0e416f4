"""The properties of messages for any time: RocketMQ's slot, and the time in the unit."""

import pytest

from commitlog.record import timer_properties
from commitlog.record.tags_code import tags_code
from store.model.topics import TIMER_TOPIC


@pytest.mark.parametrize(
    ("deliver_ms", "out_ms"),
    [
        (1_700_000_000_001, 1_700_000_000_000),
        (1_700_000_000_999, 1_700_000_000_000),
        (1_700_000_001_000, 1_700_000_000_000),
        (1_700_000_001_001, 1_700_000_001_000),
        (1_699_999_999_999, 1_699_999_999_000),
        (1_700_000_000_000, 1_699_999_999_000),
    ],
)
def test_slot_is_rounded_down_and_an_exact_multiple_is_the_one_before(deliver_ms, out_ms):
    """The slot S is emptied at S + 1000 or later, so never before the time, and less than a second after it."""
    assert timer_properties.timer_out_ms(deliver_ms) == out_ms
    assert deliver_ms <= out_ms + 1_000 < deliver_ms + 1_000


@pytest.mark.parametrize(
    ("properties", "time_ms"),
    [
        ({"TIMER_DELIVER_MS": "1700000000123", "TIMER_OUT_MS": "1700000000000"}, 1_700_000_000_123),
        # As RocketMQ stores a message with a delay.
        ({"TIMER_DELAY_SEC": "9", "TIMER_OUT_MS": "1700000000000"}, 1_700_000_001_000),
        ({"TIMER_DELIVER_MS": "soon", "TIMER_OUT_MS": "1700000000000"}, 1_700_000_001_000),
        ({"TIMER_DELIVER_MS": "9" * 19}, 0),
        ({"TIMER_DELIVER_MS": "1700000000123", "TIMER_DEL_UNIQKEY": "T+k"}, 0),
        ({"TAGS": "a"}, 0),
    ],
)
def test_unit_has_the_exact_time_or_the_end_of_the_slot(properties, time_ms):
    assert timer_properties.timer_time_ms(properties) == time_ms
    assert tags_code(TIMER_TOPIC, properties, 5) == time_ms
