"""The client of a call as one that is counted: its address, or of IPv6 the network that one client may have.

| gRPC's name of a connection | address | client (`dledger.networks.client_of_address`) |
| --- | --- | --- |
| `ipv4:10.1.2.3:40000` | `10.1.2.3` | `10.1.2.3` |
| `ipv6:[::ffff:10.1.2.3]:40000` | `10.1.2.3`, so that one rule covers both forms | `10.1.2.3` |
| `ipv6:%5Bfd00::1%5D:40000` | `fd00::1` | `fd00::/64` |
| `unix:`, or anything else | None | `local` |
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dledger.networks import address_of_host
from dledger.service.limits.open_connections import peer_of

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

# Gates ask for each call, some for each request: of the connections that are in use, each is parsed once.
_PEERS_MAX: Final = 4_096


@lru_cache(maxsize=_PEERS_MAX)
def address_of_peer(peer: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a peer of gRPC, without the zone of IPv6; None: it has none."""
    found = peer_of(peer)
    return None if found is None else address_of_host(found.host)
