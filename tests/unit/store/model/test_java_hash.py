"""Hashes are Java's, for one text and for many at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.model.java_hash import java_hash, key_hash, key_prefix_hash, positive_hash
from store.model.java_hashes import TEXTS_SIZE_MAX, each_key_hash, java_hashes, key_hashes

TEXTS = st.lists(st.one_of(st.text(max_size=12), st.text("abc#", max_size=12)), max_size=8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("A", 65),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("TAG1", 2567159),
        ("polygenelubricants", -2147483648),
        ("标签", 857175),
        ("😀", 1772899),
    ],
)
def test_hash_equals_javas(text, value):
    assert java_hash(text) == value


@pytest.mark.parametrize(("value", "positive"), [(0, 0), (-5, 5), (5, 5), (-(1 << 31), 0), ((1 << 31) - 1,) * 2])
def test_a_hash_of_the_index_is_never_negative(value, positive):
    assert positive_hash(value) == positive


def ranges_of(texts):
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
    return np.frombuffer(b"".join(encoded), np.uint8), begins, ends


@given(TEXTS)
def test_hashes_of_many_equal_those_of_each(texts):
    hashes = java_hashes(*ranges_of(texts))

    assert hashes.view(np.int32).tolist() == [java_hash(text) for text in texts]


@given(TEXTS, st.text(max_size=5))
def test_hashes_of_many_keys_equal_those_of_each(keys, topic):
    data, begins, ends = ranges_of(keys)
    prefixes = np.full(len(keys), key_prefix_hash(topic), np.uint32)

    assert key_hashes(prefixes, data, begins, ends).tolist() == [key_hash(topic, key) for key in keys]


@given(st.lists(st.tuples(st.text("ab", max_size=3), st.one_of(st.text("01F", max_size=40), st.text())), max_size=30))
def test_hashes_of_keys_of_many_topics_equal_those_of_each(keys):
    assert each_key_hash(keys) == [key_hash(*key) for key in keys]
    plain = [(topic, key.encode("ascii", "ignore").decode()) for topic, key in keys] + [("t", "k" * 32)] * 12
    assert each_key_hash(plain) == [key_hash(*key) for key in plain]


@pytest.mark.parametrize("before", ["", "t"])
def test_hashes_of_many_keys_equal_those_of_each_for_long_and_empty_ones(before):
    keys = [(before, ""), ("", "polygenelubricants"), (before, "k" * TEXTS_SIZE_MAX)] * 4

    assert each_key_hash(keys) == [key_hash(*key) for key in keys]
    assert each_key_hash([(before, "")] * 20) == [key_hash(before, "")] * 20


def test_a_key_whose_hash_has_no_absolute_value_counts_as_0():
    # The only number of 32 bits without one is -2^31, which is the hash of "polygenelubricants" alone: no prefix.
    data, begins, ends = ranges_of(["polygenelubricants", "A"])

    assert key_hashes(np.zeros(2, np.uint32), data, begins, ends).tolist() == [0, 65]


def test_the_last_bytes_that_can_be_hashed_at_once_are_hashed_right():
    text = "polygenelubricants"
    data = np.frombuffer((b"x" * TEXTS_SIZE_MAX)[: -len(text)] + text.encode(), np.uint8)

    hashes = java_hashes(data, np.array([0, len(data) - len(text)]), np.array([0, len(data)]))

    assert hashes.view(np.int32).tolist() == [0, -2147483648]


def test_invalid_utf_8_is_decoded_as_in_java():
    data = np.frombuffer(b"a\xffb", np.uint8)

    assert java_hashes(data, np.array([0]), np.array([3])).view(np.int32).tolist() == [java_hash("a\ufffdb")]
