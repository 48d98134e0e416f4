"""Sketches: their results are correct within the stated error, and merging in any way changes nothing."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.sketches import (
    BUCKETS,
    VALUE_MAX,
    HeavyHitters,
    KeySample,
    OffsetRuns,
    bucket_begins,
    buckets_of,
    hash_texts,
    mix,
    percentile,
)


@given(st.lists(st.integers(-5, VALUE_MAX + 5), min_size=1, max_size=50))
def test_a_bucket_contains_its_values_and_is_narrow(values):
    found, begins = buckets_of(np.array(values, np.int64)), bucket_begins()

    for value, bucket in zip(np.clip(values, 0, VALUE_MAX).tolist(), found.tolist(), strict=True):
        assert begins[bucket] <= value < begins[bucket + 1]
        assert begins[bucket + 1] - 1 <= value * 33 / 32
    assert len(begins) == BUCKETS + 1
    assert (np.diff(begins) > 0).all()


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.999, 1.0]))
def test_a_percentile_is_at_least_the_true_one_and_hardly_above_it(values, share):
    counts = np.bincount(buckets_of(np.array(values, np.int64)), minlength=BUCKETS)
    true = sorted(values)[max(int(np.ceil(share * len(values))), 1) - 1]

    assert true <= percentile(counts, share) <= true * 33 / 32


def test_no_values_have_no_percentile():
    assert percentile(np.zeros(BUCKETS, np.int64), 0.5) is None


@given(st.lists(st.lists(st.sampled_from([*"abcdefghij", None]), max_size=30), max_size=6), st.integers(1, 4))
def test_heavy_hitters_are_bounded_in_error_and_number(streams, size_max):
    merged = HeavyHitters(size_max)
    true = Counter(name for stream in streams for name in stream if name is not None)
    for stream in streams:
        one = HeavyHitters(size_max)
        one.add(pa.array(stream, pa.string()))
        merged.merge(one)

    assert len(merged.counts) <= size_max
    assert merged.error <= true.total() / size_max
    for name, count in true.items():
        assert count - merged.error <= merged.counts.get(name, 0) <= count


@given(st.lists(st.lists(st.integers(0, 40), max_size=40), max_size=5))
def test_repeated_keys_are_counted_exactly_while_there_is_space(parts):
    merged = KeySample(1000)
    for part in parts:
        one = KeySample(1000)
        one.add(mix(np.array(part, np.uint64)))
        merged.merge(one)

    keys = [key for part in parts for key in part]
    assert merged.level == 0
    assert merged.estimate() == len(keys) - len(set(keys))


def test_a_sample_of_keys_stays_small_and_estimates():
    keys = np.arange(60_000, dtype=np.uint64)
    whole, parts = KeySample(4096), KeySample(4096)
    hashes = mix(np.concatenate((keys, keys[:20_000])))
    whole.add(hashes)
    for part in np.array_split(hashes, 7):
        one = KeySample(4096, level=2)
        one.add(part)
        parts.merge(one)

    assert len(whole.hashes) <= 4096
    assert whole.level == parts.level
    assert whole.hashes.tolist() == parts.hashes.tolist()
    assert abs(whole.estimate() - 20_000) < 4_000


@given(st.lists(st.text(max_size=40) | st.none(), max_size=30))
def test_equal_texts_have_equal_hashes_at_any_position(texts):
    array = pa.array(["padding", *texts, *reversed(texts)], pa.string())[1:]
    hashes = hash_texts(array).tolist()

    assert hashes[: len(texts)] == hashes[len(texts) :][::-1]
    by_text = {text or "": value for text, value in zip(texts, hashes, strict=False)}
    assert len(set(by_text.values())) == len(by_text)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), max_size=20))
def test_runs_do_not_depend_on_the_order_of_offsets(pieces):
    runs, seen = OffsetRuns(), Counter()
    for begin, size in pieces:
        runs.add(begin, begin + size)
        seen.update(range(begin, begin + size))

    assert {offset for begin, end in runs.runs for offset in range(begin, end)} == set(seen)
    assert all(before[1] < after[0] for before, after in zip(runs.runs, runs.runs[1:], strict=False))
    assert runs.repeated == seen.total() - len(seen)


def test_too_many_runs_are_joined_at_the_smallest_gaps():
    runs = OffsetRuns()
    for number in range(OffsetRuns.RUNS_MAX + 10):
        runs.add(10 * number, 10 * number + (5 if number == 700 else 9))

    assert len(runs.runs) == OffsetRuns.RUNS_MAX
    assert runs.is_cut
    assert (7005, 7010) in runs.gaps()
