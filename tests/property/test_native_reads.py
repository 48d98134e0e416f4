"""Records at given places are found and checked alike in C and in Python, and as one record at a time is."""

import random

from hypothesis import given, settings

from commitlog.record.record import BadRecord, decode
from commitlog.record.record_runs import ReadableBytes, good_records
from tests.fuzz.kernels import view_of
from tests.property.test_native_columns import RUNS_OF_SEED, SEEDS, drawn_logs, logs
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native


def plain(records):
    """Return records as values that can be compared."""
    return [(each.position, each.size, each.topic, each.body, each.properties_raw, each.born_host) for each in records]


def is_good(view, position, size, place):
    """Return whether a record is valid by the functions for a single one; headers are not compared."""
    try:
        record = decode(view, position, position + size)
    except BadRecord:
        return False
    return record.size == size and record.check(physical_offset=place) is None


@settings(max_examples=40)
@given(seed=SEEDS)
def test_records_are_found_alike_and_as_single_ones(seed):
    for draw, content, begins, ends, header_size, base in drawn_logs(seed):
        view = view_of(content)
        places, sizes = (begins + base).tolist(), (ends - begins).tolist()
        if places and draw.random() < 0.4:
            numbers = draw.choice((places, sizes))
            numbers[draw.randrange(len(numbers))] += draw.choice((-1, 1, 8, -(1 << 20), 1 << 61, 1 << 63))
        begin, end = base + header_size, base + len(content) - draw.choice((0, 0, 1, 200))
        part = ReadableBytes(view, base, begin, end, header_size > 0)

        found = assert_same(lambda *given: plain(good_records(*given)), part, places, sizes)

        at = begin
        for row, (position, *_) in enumerate(found):
            assert position == places[row] - base
            assert at <= places[row]
            at = places[row] + sizes[row]
            assert at <= end
            assert is_good(view, position, sizes[row], places[row])
        if not header_size and len(found) < len(places):
            place, size = places[len(found)], sizes[len(found)]
            is_inside = at <= place and size > 0 and place + size <= end
            assert not (is_inside and is_good(view, place - base, size, place))


@settings(max_examples=30)
@given(seed=SEEDS)
def test_arguments_of_any_size_are_refused_or_served(seed):
    """No place that does not fit leads outside of the buffer; the module under address checks finds out."""
    draw = random.Random(seed)
    content, begins, ends, header_size, base = logs(draw)
    hostile = [-1, 0, 1, len(content), len(content) + 1, (1 << 62) - 1, -(1 << 62), (1 << 63) - 1, 1 << 70, "1", None]
    for _ in range(RUNS_OF_SEED):
        places, sizes = (begins + base).tolist(), (ends - begins).tolist()
        numbers = [base, base + header_size, base + len(content)]
        for values in (places, sizes, numbers):
            if values and draw.random() < 0.7:
                values[draw.randrange(len(values))] = draw.choice(hostile)
        if sizes and draw.random() < 0.2:
            sizes.pop()
        found = NATIVE.locate_records(view_of(content), places, sizes, *numbers, draw.choice((0, 1, header_size > 0)))
        assert found is None or len(found) <= len(places)
