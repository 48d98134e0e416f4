"""Buckets of quotas: what is taken, what is refused and for how long, and that there are never too many."""

import pytest

from cluster.access import token_buckets
from cluster.access.quotas import Quotas
from cluster.config.quotas import QuotaSettings


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def made(clock, **rates):
    return Quotas(QuotaSettings(**{f"quota_{name}": rate for name, rate in rates.items()}), clock)


def taken(found, user="alice", address="10.0.0.1", size_bytes=100, tries=1_000):
    """Return the number of requests that are taken at once, of many."""
    return next((count for count in range(tries) if found.take(user, address, size_bytes)), tries)


def test_one_second_of_requests_and_one_more_is_taken_at_once(clock):
    found = made(clock, user_requests_per_s=10)
    assert taken(found) == 11
    clock.now_s += 0.5
    assert taken(found) == 5
    clock.now_s += 1000
    assert taken(found) == 11


def test_refusal_takes_nothing_and_says_when_a_request_is_taken(clock):
    found = made(clock, user_requests_per_s=10)
    taken(found)
    wait_s = found.take("alice", "10.0.0.1", 100)
    assert all(found.take("alice", "10.0.0.1", 100) == wait_s for _ in range(100))
    clock.now_s += wait_s
    assert found.take("alice", "10.0.0.1", 100) == 0


def test_large_request_is_taken_and_paid_for_by_those_after_it(clock):
    found = made(clock, user_bytes_per_s=1_000)
    assert found.take("alice", "10.0.0.1", 8_000) == 0
    assert found.take("alice", "10.0.0.1", 1) == pytest.approx(7)


def test_users_do_not_pay_for_each_other_and_an_address_for_all_of_its_users(clock):
    found = made(clock, user_requests_per_s=10, address_requests_per_s=15)
    assert taken(found, "alice") == 11
    assert taken(found, "bob") == 5
    assert taken(found, "bob", "10.0.0.2") == 6
    assert taken(found, "carol", "10.0.0.3") == 11


def test_answers_are_charged_and_delay_what_follows(clock):
    found = made(clock, user_bytes_per_s=1_000, user_requests_per_s=1_000)
    assert found.charge("alice", "10.0.0.1", 500) == 0
    assert found.charge("alice", "10.0.0.1", 2_500) == pytest.approx(2)
    assert found.take("alice", "10.0.0.1", 1) == pytest.approx(2)
    assert found.take("bob", "10.0.0.1", 1) == 0


def test_caller_without_a_user_has_the_quota_of_its_address_alone(clock):
    found = made(clock, user_requests_per_s=1, address_requests_per_s=10)
    assert taken(found, user="") == 11


def test_user_and_address_of_one_name_have_buckets_of_their_own(clock):
    found = made(clock, user_requests_per_s=10, address_requests_per_s=100)
    assert taken(found, user="local", address="local") == 11
    assert taken(found, user="", address="local") == 90


def test_number_of_buckets_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(token_buckets, "BUCKETS_MAX", 10)
    found = made(clock, user_requests_per_s=1)
    for number in range(100):
        found.take(f"user{number}", "10.0.0.1", 1)
    assert len(found) == 10
    assert taken(found, user="user99") == 1


def test_without_rates_everything_is_taken(clock):
    assert QuotaSettings().is_unlimited
    assert taken(made(clock)) == 1_000
    assert made(clock).charge("alice", "10.0.0.1", 1 << 40) == 0
