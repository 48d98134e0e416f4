"""The address in gRPC's name of a connection, and the client that it counts for."""

import ipaddress

import pytest

from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer


@pytest.mark.parametrize(
    ("peer", "address", "client"),
    [
        ("ipv4:10.1.2.3:40000", "10.1.2.3", "10.1.2.3"),
        ("ipv6:[fd00::1]:40000", "fd00::1", "fd00::/64"),
        ("ipv6:%5Bfd00::2%5D:40000", "fd00::2", "fd00::/64"),
        ("ipv6:[fd00:0:0:1::1]:40000", "fd00:0:0:1::1", "fd00:0:0:1::/64"),
        ("ipv6:[::ffff:10.1.2.3]:40000", "10.1.2.3", "10.1.2.3"),
        ("ipv6:[fe80::1%25eth0]:1", "fe80::1", "fe80::/64"),
        ("unix:", None, "local"),
        ("ipv4:?", None, "local"),
        ("ipv4:?:1", None, "local"),
        ("", None, "local"),
    ],
)
def test_addresses_and_clients_of_peers(peer: str, address: str | None, client: str) -> None:
    found = address_of_peer(peer)
    assert (ipaddress.ip_address(address) if address else None) == found
    assert client == client_of_address(found)
