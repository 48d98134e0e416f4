"""The window of returned messages: a model, its bound, and snapshots of it."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.state import returned_messages
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel
from cluster.state.compact_bytes import Reader, Unreadable, Writer
from cluster.state.effects import Returned, decode_effect, encode_effect
from cluster.state.features import WITH_RETRIES
from cluster.state.returned_messages import ReturnedMessages


def key(number):
    return number.to_bytes(16)


def written(window):
    writer = Writer()
    for _ in window.frozen().write(writer):
        continue
    return bytes(writer.data)


def loaded(data):
    window, reader = ReturnedMessages(), Reader(data, "a window")
    for _ in window.loading(reader):
        continue
    reader.end()
    return window


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans())), st.integers(1, 6), st.integers(0, 40))
def test_window_has_the_latest_keys_in_the_order_of_their_application(added, size, reload_at):
    before = returned_messages.WINDOW_MAX
    returned_messages.WINDOW_MAX = size
    try:
        window, model = ReturnedMessages(), OrderedDict()
        for step, (number, is_dead) in enumerate(added):
            assert window.add(key(number), is_dead=is_dead) is (number not in model)
            if model.setdefault(number, is_dead) is is_dead and len(model) > size:
                model.popitem(last=False)
            while len(model) > size:
                model.popitem(last=False)
            if step == reload_at:
                window = loaded(written(window)) if len(window) else window
            assert len(window) == len(model) <= size
            assert {each: window.is_dead(key(each)) for each in range(13)} == {
                each: model.get(each) for each in range(13)
            }
        assert window.is_empty is not bool(model)
    finally:
        returned_messages.WINDOW_MAX = before


def test_snapshot_is_not_changed_by_what_is_added_later():
    window = ReturnedMessages()
    window.add(key(1), is_dead=False)
    frozen = window.frozen()
    window.add(key(2), is_dead=True)
    writer = Writer()
    for _ in frozen.write(writer):
        continue
    assert bytes(writer.data) == b"\x01\x10" + key(1) + b"\x00"
    assert written(window) == b"\x02\x10" + key(1) + b"\x00\x10" + key(2) + b"\x01"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x01\x0f" + bytes(15) + b"\x00",
        b"\x01\x10" + bytes(16) + b"\x02",
        b"\x02\x10" + bytes(16) + b"\x00\x10" + bytes(16) + b"\x00",
        b"\x01\x10" + bytes(9),
        (100_001).to_bytes(3),
    ],
)
def test_invalid_window_is_refused(data):
    with pytest.raises(Unreadable):
        loaded(data)


def test_effects_of_returned_messages_have_one_text_each():
    for effect, text in ((Returned(key(255), False), f"b:{'0' * 30}ff"), (Returned(key(1), True), f"x:{'0' * 31}1")):
        assert encode_effect(effect) == text
        assert decode_effect(text) == effect
        for other in (text.upper().replace("B:", "b:"), text + "0", text[:-1], text.replace(":", ":0", 1)):
            if other != text:
                with pytest.raises(Unreadable):
                    decode_effect(other)


def test_state_has_the_keys_after_a_snapshot_and_counts_a_key_that_comes_twice():
    state = BrokerState()
    state.apply_command(SetFeatureLevel(WITH_RETRIES))
    effect = encode_effect(Returned(key(5), True))
    state.apply_effect(effect, b"")
    other = BrokerState()
    other.snapshot_load(b"".join(state.snapshot_save()))
    assert (other.returned.is_dead(key(5)), other.returned.is_dead(key(6))) == (True, None)
    assert b"".join(other.snapshot_save()) == b"".join(state.snapshot_save())
    assert state.unfit_effects_count == 0
    other.apply_effect(effect, b"")
    assert (other.unfit_effects_count, len(other.returned)) == (1, 1)


def test_full_window_drops_its_oldest_key_in_constant_time():
    window = ReturnedMessages()
    for number in range(3 * returned_messages.WINDOW_MAX):
        window.add(key(number), is_dead=False)
    assert len(window) == returned_messages.WINDOW_MAX
    assert window.is_dead(key(2 * returned_messages.WINDOW_MAX - 1)) is None
    assert window.is_dead(key(2 * returned_messages.WINDOW_MAX)) is False
