"""The done units of the timer queue: against a plain set, in snapshots, and their memory with ten million that wait."""

import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, decode_command, encode_command
from cluster.state.compact_bytes import Reader, Unreadable, Writer
from cluster.state.effects import TimerDone, TimerEnd, decode_effect, encode_effect
from cluster.state.timers import DoneTimers
from cluster.state.verdicts import CHANGED, UNCHANGED
from cluster.state.waiting_commands import PassTimers

CHUNK = 8_192
UNITS = st.one_of(st.integers(0, 40), st.integers(CHUNK - 20, CHUNK + 20), st.integers(3 * CHUNK - 9, 3 * CHUNK + 9))
RANGES = st.tuples(UNITS, st.integers(1, CHUNK + 100)).map(lambda each: (each[0], each[0] + each[1]))
STEPS = st.lists(st.one_of(UNITS, RANGES, UNITS.map(lambda unit: {"floor": unit})), max_size=30)
END = 5 * CHUNK


def snapshot(timers):
    writer = Writer()
    for _ in timers.frozen().write(writer):
        continue
    return bytes(writer.data)


def loaded(data):
    timers = DoneTimers()
    reader = Reader(data, "timers")
    for _ in timers.loading(reader):
        continue
    reader.end()
    return timers


def all_waiting(timers, end):
    found, unit = [], 0
    while unit < end:
        found += timers.waiting(unit, end, END)
        unit = timers.next_chunk(unit)
    return found


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_units_are_done_exactly_if_they_were_marked(steps):
    timers, model = DoneTimers(), set()
    for step in steps:
        before = set(model)
        if isinstance(step, int):
            model.add(step)
            assert timers.add(step) == (step not in before)
        else:
            floor, ranges = (step["floor"], ()) if isinstance(step, dict) else (0, (step,))
            model |= set(range(floor)) | {unit for begin, end in ranges for unit in range(begin, end)}
            assert timers.pass_over(floor, ranges) == (model != before)
    waiting = [unit for unit in range(END) if unit not in model]
    assert timers.floor == waiting[0]
    assert timers.waiting_count(END) == len(waiting)
    assert all_waiting(timers, END) == waiting
    assert [timers.is_done(unit) for unit in range(0, END, 7)] == [unit in model for unit in range(0, END, 7)]
    above = {unit for begin, end in timers.done_ranges() for unit in range(begin, end)}
    assert above == {unit for unit in model if unit > timers.floor}
    assert timers.above_count == len(above)

    again = loaded(snapshot(timers))
    assert (again.floor, again.above_count, again._chunks) == (timers.floor, timers.above_count, timers._chunks)
    other = DoneTimers()
    other.pass_over(timers.floor, timers.done_ranges())
    assert snapshot(other) == snapshot(timers), "equal states have equal bytes"


def test_units_above_the_floor_stay_done_when_it_rises():
    timers = DoneTimers()
    far = 2 * CHUNK + 1
    assert timers.add(far)
    assert timers.add(0)
    assert (timers.floor, timers.is_done(far), timers.above_count) == (1, True, 1)


@pytest.mark.parametrize(
    "data", [b"\x00", b"\x00\x01\x00\x01\x01", b"\x05\x01\x00\x01\x1f", b"\x00\x02\x01\x01\x02\x01\x01\x02"]
)
def test_invalid_part_of_a_snapshot_is_refused(data):
    with pytest.raises(Unreadable):
        loaded(data)


def test_ten_million_that_wait_take_a_few_megabytes():
    """Every second unit of ten million is done: the worst case for ranges."""
    tracemalloc.start()
    try:
        timers = DoneTimers()
        timers._chunks = {
            chunk: int.from_bytes(b"\xaa" * (CHUNK // 8), "little") for chunk in range(20_000_000 // CHUNK)
        }
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    timers._above_count = timers._count()
    assert timers.waiting_count(len(timers._chunks) * CHUNK) >= 9_990_000
    assert size < 4 << 20
    assert len(snapshot(timers)) < 3 << 20
    # Done ones between those that wait cost nothing but their place in the table.
    timers.pass_over(0, ((0, 20_000_000 // CHUNK * CHUNK),))
    assert (timers.waiting_count(20_000_000 // CHUNK * CHUNK), len(timers._chunks)) == (0, 0)
    assert sys.getsizeof(timers._chunks) < 1 << 20


@pytest.mark.parametrize("end", TimerEnd)
def test_each_effect_ends_the_wait_of_its_unit_once(end):
    state = BrokerState()
    state.apply_command(SetFeatureLevel(2))
    text = encode_effect(TimerDone(7, end))
    assert decode_effect(text) == TimerDone(7, end)
    assert state.apply_effect(text, b"") is CHANGED
    assert state.timers.is_done(7)
    assert state.apply_effect(text, b"") is UNCHANGED
    assert state.unfit_effects_count == 1
    again = BrokerState()
    again.snapshot_load(b"".join(state.snapshot_save()))
    assert again.timers.is_done(7)
    assert not again.timers.is_done(6)


@pytest.mark.parametrize("text", ["t:", "t:01", "t:-1", "t:9223372036854775808", "q:1", "t:1:2", "c:1 ", "t:²"])
def test_text_that_is_no_effect_stops_the_node(text):
    with pytest.raises(Unreadable):
        decode_effect(text)


def test_passing_over_is_a_command_that_is_checked_and_idempotent():
    state = BrokerState()
    command = PassTimers(3, ((5, 6), (9, 12)))
    assert decode_command(encode_command(command)) == command
    assert state.apply_command(command) is CHANGED
    assert state.apply_command(command) is UNCHANGED
    assert [unit for unit in range(14) if not state.timers.is_done(unit)] == [3, 4, 6, 7, 8, 12, 13]
    for wrong in (
        PassTimers(-1),
        PassTimers(0, ((2, 2),)),
        PassTimers(0, ((4, 6), (5, 7))),
        PassTimers(0, ((0, 1 << 40),)),
    ):
        assert not state.apply_command(wrong).is_done
