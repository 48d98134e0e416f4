"""Readers of one topic and of one group: bounded, and nothing is left when they have gone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.broker.reader_bounds import ReaderBounds, Readers
from cluster.config.quotas import BrokerLimits
from cluster.protocol.errors import Reason, RequestFailed

LIMITS = BrokerLimits(topic_waits_max=10, group_waits_max=6, group_streams_max=3)


def taken(count: int, take) -> int:
    """Return the number that is taken at once."""
    for number in range(count):
        try:
            take(number)
        except RequestFailed:
            return number
    return count


def test_waits_of_a_topic_and_of_a_group_are_bounded_and_others_are_not_affected() -> None:
    limited: Counter[str] = Counter()
    bounds = ReaderBounds(LIMITS, lambda limit: limited.update([limit]))
    assert taken(100, lambda _: bounds.take_waits("orders", "billing", 1)) == 6
    assert taken(100, lambda _: bounds.take_waits("orders", "", 1)) == 4
    assert taken(100, lambda _: bounds.take_waits("others", "mails", 1)) == 6
    assert limited == {"group_waits": 2, "topic_waits": 1}


def test_streams_of_a_group_are_bounded_and_those_without_a_group_are_not() -> None:
    bounds = ReaderBounds(LIMITS, lambda _: None)
    assert taken(100, lambda _: bounds.take_stream("billing")) == 3
    assert taken(100, lambda _: bounds.take_stream("mails")) == 3
    assert taken(100, lambda _: bounds.take_stream("")) == 100


def test_refusal_says_which_limit_it_is_and_may_be_repeated() -> None:
    bounds = ReaderBounds(LIMITS, lambda _: None)
    bounds.take_waits("orders", "billing", 50)
    with pytest.raises(RequestFailed, match=r"group 'billing' has 50 waits .*group_waits_max") as caught:
        bounds.take_waits("others", "billing", 1)
    assert (caught.value.reason, caught.value.is_worth_trying) == (Reason.TOO_MANY_WAITERS, True)
    bounds.take_waits("others", "mails", 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "g", "h"]), st.integers(1, 5)), max_size=50))
def test_sums_never_exceed_a_bound_by_more_than_one_request_and_end_at_nothing(requests) -> None:
    bounds, held = ReaderBounds(LIMITS, lambda _: None), list[tuple[str, str, Readers]]()
    for topic, group, amount in requests:
        try:
            held.append((topic, group, bounds.take_waits(topic, group, amount)))
        except RequestFailed:
            of_topic = sum(each.amount for name, _, each in held if name == topic)
            of_group = sum(each.amount for _, name, each in held if name == group)
            assert of_topic >= 10 or (group and of_group >= 6)
    for topic, group, _ in held:
        assert sum(each.amount for name, _, each in held if name == topic) < 10 + 5
        assert not group or sum(each.amount for _, name, each in held if name == group) < 6 + 5
    for _, _, each in held:
        bounds.give_back(each)
    assert not len(bounds)
