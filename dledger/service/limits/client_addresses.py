"""The client of a call as one that is counted: its address, or of IPv6 the network that one client may have.

| gRPC's name of a connection | address | client |
| --- | --- | --- |
| `ipv4:10.1.2.3:40000` | `10.1.2.3` | `10.1.2.3` |
| `ipv6:[::ffff:10.1.2.3]:40000` | `10.1.2.3`, so that one rule covers both forms | `10.1.2.3` |
| `ipv6:%5Bfd00::1%5D:40000` | `fd00::1` | `fd00::/64` |
| `unix:`, or anything else | None | `local` |
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from dledger.service.limits.open_connections import peer_of

# Gates ask for each call, some for each request: of the connections that are in use, each is parsed once.
_PEERS_MAX: Final = 4_096
# The network of an IPv6 address that counts as one client.
_CLIENT_NETWORK_BITS: Final = 64


@lru_cache(maxsize=_PEERS_MAX)
def address_of_peer(peer: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a peer of gRPC, without the zone of IPv6; None: it has none."""
    found = peer_of(peer)
    return None if found is None else address_of_host(found.host)


def address_of_host(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, without the zone of IPv6; None: it is a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=_PEERS_MAX)
def client_of_address(address: IPv4Address | IPv6Address | None) -> str:
    """Return the key by which requests of one client are counted."""
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _CLIENT_NETWORK_BITS), strict=False))
    return "local" if address is None else str(address)
