"""Shares of a resource: what one holder gets alone, beside others, and that a newcomer is never refused."""

from collections import Counter
from random import Random

import pytest

from dledger.service.limits.fair_shares import FairShares

SIZE = 1_000


def fill(shares, *holders):
    """Let the holders take one after the other until none gets more; return what each of them took."""
    taken = Counter()
    while holders:
        holders = [holder for holder in holders if shares.take(holder, 1)]
        taken.update(holders)
    return taken


def test_one_holder_alone_gets_half_of_the_resource():
    shares = FairShares(SIZE)
    taken = fill(shares, "a")
    assert (taken["a"], shares.has_space("a"), shares.has_space("b")) == (500, False, True)


@pytest.mark.parametrize("count", [2, 3, 9])
def test_holders_that_take_all_they_can_get_have_equal_shares_and_leave_one(count):
    shares, names = FairShares(SIZE), [f"user {number}" for number in range(count)]
    taken = fill(shares, *names)
    equal = SIZE / (count + 1)
    assert all(abs(taken[name] - equal) <= 1 for name in names)
    assert shares.take("newcomer", int(equal) - count)


def test_holder_above_its_share_gets_more_only_after_it_has_given_back():
    shares = FairShares(SIZE)
    taken = fill(shares, "a") + fill(shares, "b", "c")
    # Half was the share of `a` while it was alone.
    assert (taken["a"], taken["b"]) == (500, 167)
    shares.give_back("a", 100)
    assert (shares.take("a", 1), shares.take("b", 1)) == (False, True)


def test_last_request_may_exceed_the_share_and_none_exceeds_the_resource():
    shares = FairShares(SIZE)
    assert shares.take("a", 900)
    assert not shares.take("b", 101)
    assert shares.take("b", 100)
    assert not shares.take("c", 1)


def test_holders_are_forgotten_when_they_have_returned_everything():
    seed = 7
    print(f"seed {seed}")
    random, shares, taken = Random(seed), FairShares(SIZE), []
    for _ in range(5_000):
        holder, amount = f"user {random.randrange(20)}", random.randint(1, 60)
        if random.random() < 0.5 and taken:
            shares.give_back(*taken.pop(random.randrange(len(taken))))
        elif shares.take(holder, amount):
            taken.append((holder, amount))
        assert shares.used == sum(amount for _, amount in taken) <= SIZE
        assert len(shares) == len({holder for holder, _ in taken})
    for holder, amount in taken:
        shares.give_back(holder, amount)
    assert (shares.used, len(shares)) == (0, 0)
