"""Which addresses count as one machine: an address of IPv4, or a network of IPv6, of which one machine may use all."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

# Gates ask for each call, some for each request: of the connections that are in use, each is parsed once.
_ADDRESSES_MAX: Final = 4_096
_NETWORK_BITS: Final = 64


def address_of_host(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, without the zone of IPv6; None: it is a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=_ADDRESSES_MAX)
def client_of_address(address: IPv4Address | IPv6Address | None) -> str:
    """Return the key by which requests of one client are counted: `10.1.2.3`, `fd00::/64`; `local` for no address."""
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _NETWORK_BITS), strict=False))
    return "local" if address is None else str(address)


@lru_cache(maxsize=_ADDRESSES_MAX)
def network_of_host(host: str) -> str:
    """Return the key by which connections of one network are counted; a host that is no address is its own."""
    address = address_of_host(host)
    return host if address is None else client_of_address(address)
