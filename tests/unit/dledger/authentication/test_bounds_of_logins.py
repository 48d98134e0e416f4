"""Waiting logins and failed ones: a flood delays only its sender, and memory is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.authentication import failures
from dledger.authentication.exchanges import ExchangeTable
from dledger.authentication.failures import LoginFailures
from dledger.authentication.scram import ScramExchange, begin_exchange

if TYPE_CHECKING:
    import pytest


def exchange(number: int) -> ScramExchange:
    return begin_exchange(f"n,,n=alice,r=client-nonce-{number:08}", "server", lambda _: None, b"k" * 32)


def test_an_exchange_is_taken_once_and_in_time() -> None:
    table = ExchangeTable(lifetime_s=10)
    one, two = exchange(1), exchange(2)
    table.add(one, "a", 0)
    table.add(two, "a", 5)

    assert table.take(one.nonce, 9.9) is one
    assert table.take(one.nonce, 9.9) is None
    assert table.take(two.nonce, 15) is None
    assert table.take("", 0) is None
    assert len(table) == 0


def test_a_flood_of_one_address_ends_its_own_exchanges() -> None:
    table = ExchangeTable(exchanges_max=100, per_address_max=3)
    honest = exchange(0)
    table.add(honest, "honest", 0)
    for number in range(1, 50):
        table.add(exchange(number), "attacker", 0)

    assert len(table) == 4
    assert table.take(honest.nonce, 1) is honest
    assert table.take(exchange(49).nonce, 1) is not None
    assert table.take(exchange(46).nonce, 1) is None


def test_a_flood_of_many_addresses_ends_the_oldest() -> None:
    table = ExchangeTable(exchanges_max=10)
    for number in range(30):
        table.add(exchange(number), f"address {number}", 0)

    assert len(table) == 10 == len(table._of_address)
    assert table.take(exchange(19).nonce, 1) is None
    assert table.take(exchange(20).nonce, 1) is not None


def test_expired_exchanges_are_removed_for_new_ones() -> None:
    table = ExchangeTable(exchanges_max=10, lifetime_s=10)
    for number in range(10):
        table.add(exchange(number), "a", number)
    table.add(exchange(10), "b", 15)

    assert len(table) == 5


def test_an_address_may_fail_ten_times_at_once_and_then_once_a_second() -> None:
    kept = LoginFailures()
    delays = [kept.note("a", f"user {number}", 100) for number in range(10)]

    assert not kept.may_try("a", 100.5)
    assert kept.may_try("a", 101)
    assert kept.may_try("b", 100)
    assert delays == sorted(delays)
    assert 0.1 < delays[0] < 0.2
    assert delays[-1] == 0.5


def test_a_user_is_never_locked_out() -> None:
    kept = LoginFailures()
    for number in range(1_000):
        delay = kept.note(f"address {number}", "alice", 100)

    assert delay == 0.5
    assert kept.may_try("alice's own", 100)
    assert kept.note("alice's own", "alice", 100) == 0.5
    assert kept.note("alice's own", "alice", 200) < 0.2


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BUCKETS_MAX", 20)
    kept = LoginFailures()
    for number in range(100):
        kept.note(f"address {number}", "x" * 1_000_000 + str(number), 0)

    assert len(kept._addresses) == 20
    assert len(kept._users) == 1
    assert all(len(key) <= 64 for key in kept._users._kept)
