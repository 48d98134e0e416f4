"""Tag expressions, and the messages that they match."""

import numpy as np
import pytest

from store.errors import IllegalRequest
from store.model.java_hash import java_hash
from store.model.tag_filter import EVERYTHING, TagFilter
from store.model.tags_codes import may_match


class Tagged:
    """The part of a stored message that a filter uses."""

    def __init__(self, tag):
        self.properties = {} if tag is None else {"TAGS": tag}


@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_a_filter_without_tags_matches_everything(expression):
    assert TagFilter.parse(expression) is EVERYTHING


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("A", {"A"}),
        ("A || B", {"A", "B"}),
        ("A||B|| ", {"A", "B"}),
        (" two words || ü ", {"two words", "ü"}),
    ],
)
def test_tags_are_distinguished(expression, tags):
    found = TagFilter.parse(expression)

    assert found.tags == tags
    assert set(found.codes) == {java_hash(tag) for tag in tags}


@pytest.mark.parametrize(
    "expression", ["||", " || || ", "A | B", "A || *", "A\x01B", "A || B\x02", "|| ".join("abc") + "|"]
)
def test_invalid_expression_is_refused(expression):
    with pytest.raises(IllegalRequest, match="tags expression: expected '\\*' or"):
        TagFilter.parse(expression)


def test_expressions_are_bounded():
    assert len(TagFilter.parse("||".join(map(str, range(256)))).tags) == 256
    with pytest.raises(IllegalRequest):
        TagFilter.parse("||".join(map(str, range(257))))


def test_two_tags_of_one_hash_are_distinguished_by_the_message():
    """Java gives `Aa` and `BB` the same hash."""
    found = TagFilter.parse("Aa")
    codes = np.array([java_hash("Aa"), java_hash("BB"), java_hash("C"), 0], np.int64)

    assert may_match(found, codes).tolist() == [True, True, False, False]
    assert found.matches(Tagged("Aa"))
    assert not found.matches(Tagged("BB"))
    assert not found.matches(Tagged(None))
    assert EVERYTHING.matches(Tagged(None))


def test_code_that_is_no_hash_excludes_nothing():
    """Units of delayed messages hold a delivery time, the address of an extension unit in others."""
    codes = np.array([1_700_000_000_000, -(2**63) + 40, 2**31 - 1, -(2**31)], np.int64)

    assert may_match(TagFilter.parse("A"), codes).tolist() == [True, True, False, False]


def test_negative_hash_is_found():
    tag = "polygenelubricants"

    assert java_hash(tag) == -(2**31)
    assert may_match(TagFilter.parse(tag), np.array([java_hash(tag)], np.int64)).all()
