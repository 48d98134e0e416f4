"""Records become the same columns in C and in Python: valid, rare and damaged ones, with the same errors."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.record.rows import good_rows, good_rows_in_python
from dledger import native
from pipeline.columns.decoder import decode_places, decode_rows
from pipeline.columns.native_columns import RecordPlaces
from pipeline.columns.schema import ALL_NAMES, DEFAULT_NAMES
from pipeline.reading.corrupt_policy import CorruptPolicy, PolicyKind
from pipeline.reading.read_slice import reading_of
from tests.fuzz.kernels import view_of
from tests.fuzz.message_logs import log
from tests.fuzz.mutation import changed_inputs
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native

SEEDS = st.integers(0, 1 << 60)
RUNS_OF_SEED = 4


def plain(rows):
    """Return rows as values that can be compared."""
    arrays = (rows.begins, rows.body_begins, rows.body_ends, rows.topic_begins, rows.topic_ends, rows.ends)
    return rows.fields.tobytes(), rows.fields.dtype, [array.tolist() for array in arrays], rows.extras is None


def names_of(draw):
    return draw.sample(ALL_NAMES, draw.randint(1, len(ALL_NAMES)))


def logs(draw):
    """Return a log of a few messages, some of them rare, and its base; damaged at times."""
    header_size, base = draw.choice((0, 48)), draw.choice((0, 1 << 30, 7))
    is_rare = draw.random() < 0.5
    content, begins, ends = log(draw, draw.randrange(12), is_rare=is_rare, header_size=header_size, base=base)
    if content and draw.random() < 0.4:
        size = len(content)
        (content,) = changed_inputs([content], draw, 1)
        content = content.ljust(size, b"\0")[:size]
    return content, begins, ends, header_size, base


def drawn_logs(seed):
    """Yield the generator of a seed, and some logs that it draws; it may be used for more between them."""
    draw = random.Random(seed)
    for _ in range(RUNS_OF_SEED):
        yield draw, *logs(draw)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_records_are_checked_alike(seed):
    for draw, content, *bounds, header_size, base in drawn_logs(seed):
        begins, ends = bounds
        if len(begins) and draw.random() < 0.3:
            row, by = draw.randrange(len(begins)), draw.choice((-1, 1, 8, -100_000, 1 << 40))
            (ends if draw.random() < 0.5 else begins)[row] += by
        data = np.frombuffer(view_of(content), np.uint8)

        assert_same(
            lambda *given, **named: plain(good_rows(*given, **named)),
            data, begins, ends, base, has_headers=header_size > 0,
        )  # fmt: skip


@settings(max_examples=30)
@given(seed=SEEDS)
def test_records_become_the_same_columns(seed):
    for draw, content, begins, ends, header_size, base in drawn_logs(seed):
        view = view_of(content)
        rows = good_rows_in_python(np.frombuffer(view, np.uint8), begins, ends, base, has_headers=header_size > 0)
        rows = rows.select(np.array([draw.random() < 0.8 for _ in range(len(rows))], np.bool_))

        batch = assert_same(decode_rows, view, rows, names_of(draw), header_size=header_size)

        batch.validate(full=True)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_log_is_read_alike_and_its_damage_reported_alike(seed):
    for draw, content, _, _, header_size, base in drawn_logs(seed):
        names, verify_crc, rows_max = names_of(draw), draw.random() < 0.5, draw.choice((1, 3, 100))

        def read(content=content, names=names, verify_crc=verify_crc, rows_max=rows_max, place=(base, header_size)):
            skipped = []
            policy = CorruptPolicy(PolicyKind.SKIP, on_skipped=skipped.append)
            reading = reading_of(names, verify_crc=verify_crc, on_corrupt=policy, batch_rows=rows_max)
            batches = list(reading.walk(view_of(content), place[0], "log", place[1]))
            return batches, skipped

        assert_same(read)


def usual(count, header_size, base=1 << 30):
    content, begins, ends = log(random.Random(1), count, is_rare=False, header_size=header_size, base=base)
    return RecordPlaces(view_of(content), begins, ends, header_size, base, 7 if header_size else None, header_size > 0)


@pytest.mark.parametrize("header_size", [0, 48])
def test_c_itself_decodes_usual_records(monkeypatch, header_size):
    monkeypatch.setattr(native, "kernels", NATIVE)
    places = usual(500, header_size)

    batch = decode_places(places, ALL_NAMES)

    monkeypatch.setattr(native, "kernels", None)
    data = np.frombuffer(places.view, np.uint8)
    rows = good_rows_in_python(data, places.begins, places.ends, places.base, has_headers=header_size > 0)
    assert len(rows) == 500
    batch.validate(full=True)
    assert batch == decode_rows(places.view, rows, ALL_NAMES, header_size=header_size)


def test_batches_of_other_content_have_space(monkeypatch):
    """The space for texts is estimated by the batch before."""
    monkeypatch.setattr(native, "kernels", NATIVE)
    small = log(random.Random(1), 1, is_rare=False, header_size=0, base=0)
    for content, begins, ends in (small, log(random.Random(2), 900, is_rare=False, header_size=0, base=0), small):
        assert decode_places(RecordPlaces(view_of(content), begins, ends, 0, 0), ALL_NAMES) is not None


def test_what_a_reader_has_to_check_is_left_to_python(monkeypatch):
    monkeypatch.setattr(native, "kernels", NATIVE)
    places = usual(9, 48)
    assert decode_places(places) is not None

    content = bytearray(places.view)
    content[int(places.ends[4]) - 1] ^= 1
    for changed in (
        places._replace(first_index=8),
        places._replace(base=places.base + 1),
        places._replace(view=view_of(bytes(content))),
        places._replace(refused_topic=decode_places(places).column("topic")[3].as_py()),
        places._replace(view=places.view[:-1]),
        places._replace(ends=places.ends.astype(np.int32)),
    ):
        assert decode_places(changed) is None


@settings(max_examples=30)
@given(seed=SEEDS)
def test_arguments_of_any_size_are_refused_or_served(seed):
    """No size that does not fit leads outside of a buffer; the module under address checks finds out."""
    draw = random.Random(seed)
    content, begins, ends, header_size, base = logs(draw)
    hostile = np.array([-1, 0, 1, len(content), len(content) + 1, (1 << 63) - 1, -(1 << 63)])
    for _ in range(RUNS_OF_SEED):
        some = [array.copy() for array in (begins, ends)]
        for array in some:
            if len(array):
                array[draw.randrange(len(array))] = draw.choice(hostile)
        rows = len(begins)
        heads, positions = np.empty(draw.choice((0, 88 * rows, 136 * rows)), np.uint8), np.empty((4, rows), np.int64)
        found = NATIVE.check_records(content, *some, base, int(header_size > 0), heads, positions)
        assert found is None or 0 <= found <= rows
        capacity = draw.choice((0, 1, 7, 100, 1 << 16))
        text = np.empty(capacity // 4, np.int32), np.empty(capacity, np.uint8)
        outputs = (
            int(header_size > 0), ((12, np.empty(rows, np.int32)),), (), (), ((48, *text),), (text, text, ()),
            ((b"TAGS", np.empty(2, np.uint8), *text),), (np.empty(rows + 1, np.int32), *text, *text),
        )  # fmt: skip
        NATIVE.decode_records(content, *some, base, -1, 0, b"", outputs[: draw.randint(0, 8)])


@pytest.mark.parametrize("names", [DEFAULT_NAMES, ("tags",), ("properties",), ("index", "body")])
def test_no_records_have_no_columns_of_a_length(names):
    places = RecordPlaces(memoryview(b""), np.empty(0, np.int64), np.empty(0, np.int64), 0)
    rows = good_rows(np.empty(0, np.uint8), places.begins, places.ends, 0)

    assert assert_same(decode_rows, places.view, rows, names).num_rows == 0
