"""Connections that have not greeted: few of each address, few in total; the oldest is closed first."""

import pytest

from dledger.errors import DLedgerError
from dledger.peer.unverified_peers import UNVERIFIED_MAX, UNVERIFIED_PER_ADDRESS_MAX, UnverifiedPeers


class Connection:
    """Replaces `PeerConnection`: records why it was closed."""

    def __init__(self):
        self.error = None

    def close(self, error):
        self.error = error


def added(unverified, hosts):
    connections = []
    for host in hosts:
        connections.append(Connection())
        unverified.add(connections[-1], host)
    return connections


@pytest.mark.parametrize(
    ("hosts", "bound"),
    [
        (["10.0.0.1"] * (UNVERIFIED_PER_ADDRESS_MAX + 3), UNVERIFIED_PER_ADDRESS_MAX),
        ([f"10.0.0.{number}" for number in range(UNVERIFIED_MAX + 3)], UNVERIFIED_MAX),
    ],
)
def test_the_oldest_connections_are_closed_when_there_are_too_many(hosts, bound):
    unverified = UnverifiedPeers()

    connections = added(unverified, hosts)

    assert len(unverified) == bound
    assert [each.error is not None for each in connections] == [True] * 3 + [False] * bound
    assert "have not greeted" in str(connections[0].error)


def test_one_address_closes_only_its_own_connections():
    unverified = UnverifiedPeers()
    (other,) = added(unverified, ["10.0.0.2"])

    added(unverified, ["10.0.0.1"] * (3 * UNVERIFIED_PER_ADDRESS_MAX))

    assert other.error is None
    assert len(unverified) == UNVERIFIED_PER_ADDRESS_MAX + 1


def test_greeted_or_ended_connection_no_longer_counts():
    unverified = UnverifiedPeers()
    greeted, *others = added(unverified, ["10.0.0.1"] * UNVERIFIED_PER_ADDRESS_MAX)
    unverified.discard(greeted)

    added(unverified, ["10.0.0.1"])

    assert [each.error for each in (greeted, *others)] == [None] * UNVERIFIED_PER_ADDRESS_MAX


def test_close_ends_existing_and_later_connections():
    unverified, error = UnverifiedPeers(), DLedgerError("the node stops")
    early = added(unverified, ["10.0.0.1"] * 2)

    unverified.close(error)

    assert [each.error for each in (*early, *added(unverified, ["10.0.0.1"]))] == [error] * 3


def test_all_addresses_of_one_network_of_ipv6_close_only_connections_of_that_network():
    unverified = UnverifiedPeers()
    others = added(unverified, ["10.0.0.2", "2001:db8:0:1::1"])

    flood = added(unverified, [f"2001:db8::{number:x}" for number in range(1, 3 * UNVERIFIED_MAX)])

    assert len(unverified) == UNVERIFIED_MAX
    assert [each.error for each in others] == [None, None]
    assert flood[0].error is not None
    assert flood[-1].error is None
