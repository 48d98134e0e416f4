"""How often an address, and a network, may begin handshakes at a peer port."""

import pytest

from dledger.peer.handshake_rate import BUCKETS_MAX, PROVEN_MAX, HandshakeRate, Rate

RATE = Rate(per_s=2.0, burst=4)
LARGE = Rate(per_s=1e6, burst=1_000_000)


def begun(rate: HandshakeRate, host: str, now_s: float, attempts: int = 20) -> int:
    return sum(rate.may_begin(host, now_s) for _ in range(attempts))


def test_address_begins_a_burst_and_then_its_rate() -> None:
    rate = HandshakeRate(RATE, LARGE)
    assert begun(rate, "10.0.0.1", 100.0) == 4
    assert begun(rate, "10.0.0.1", 101.0) == 2
    assert begun(rate, "10.0.0.1", 101.4) == 0
    assert begun(rate, "10.0.0.1", 1000.0) == 4


def test_address_does_not_take_the_tokens_of_another() -> None:
    rate = HandshakeRate(RATE, LARGE)
    assert begun(rate, "10.0.0.1", 0.0) == 4
    assert begun(rate, "10.0.0.2", 0.0) == 4


def test_refused_handshakes_cost_no_tokens() -> None:
    rate = HandshakeRate(RATE, LARGE)
    begun(rate, "10.0.0.1", 0.0, attempts=10_000)
    assert begun(rate, "10.0.0.1", 0.5) == 1


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([f"2001:db8::{number:x}" for number in range(1, 20)], 4),
        ([f"2001:db8:0:{number:x}::1" for number in range(1, 20)], 19),
        ([f"10.0.0.{number}" for number in range(1, 20)], 19),
    ],
)
def test_addresses_of_one_network_of_ipv6_share_one_rate(hosts: list[str], expected: int) -> None:
    rate = HandshakeRate(Rate(1.0, 1), RATE)
    assert sum(rate.may_begin(host, 0.0) for host in hosts) == expected


def test_address_of_a_member_is_not_bounded() -> None:
    rate = HandshakeRate(RATE, RATE)
    begun(rate, "10.0.0.1", 0.0)
    rate.prove("10.0.0.1")
    assert begun(rate, "10.0.0.1", 0.0) == 20
    assert begun(rate, "10.0.0.2", 0.0) == 4


def test_buckets_and_proven_addresses_are_bounded() -> None:
    rate = HandshakeRate(RATE, RATE)
    for number in range(2 * BUCKETS_MAX):
        rate.may_begin(f"10.1.{number >> 8}.{number & 255}", 0.0)
    for number in range(2 * PROVEN_MAX):
        rate.prove(f"10.2.{number >> 8}.{number & 255}")
    assert len(rate._addresses._full_s) == len(rate._networks._full_s) == BUCKETS_MAX
    assert len(rate._proven) == PROVEN_MAX
    # The oldest are forgotten: their buckets are full again.
    assert begun(rate, "10.1.0.0", 0.0) == 4
