"""The store host in a broker's records: the address of its node, resolved if it is configured as a name.

RocketMQ: `BrokerConfig.brokerIP1`, an address of the machine; it is part of each message id.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from store.model.message import LOOPBACK, Host

if TYPE_CHECKING:
    from dledger.config import Address

logger = logging.getLogger(__name__)

# The limit of a start's wait for the resolver.
RESOLVE_LIMIT_S: Final = 5.0


async def resolve_store_host(address: Address, limit_s: float = RESOLVE_LIMIT_S) -> Host:
    """Return the store host of a broker whose clients use `address`.

    A name is resolved once, in a thread of the loop's pool; of several addresses the first IPv4 address is taken, else
    the first one. If it is not resolved within `limit_s` seconds, a warning is logged, and loopback is used.
    """
    try:
        return Host(ip_address(address.host).packed, address.port)
    except ValueError:
        pass  # a name
    try:
        async with asyncio.timeout(limit_s):
            found = await asyncio.to_thread(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a TimeoutError among them
        reason = str(error) or f"no answer within {limit_s} s"
        logger.warning("store_host_unresolved host=%s reason=%r: using loopback in messages", address.host, reason)
        return LOOPBACK._replace(port=address.port)
    *_, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    return Host(ip_address(place[0]).packed, address.port)
