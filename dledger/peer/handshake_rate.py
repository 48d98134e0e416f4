"""Bounds how often one address, and one network, may begin a handshake at a peer port.

A handshake costs some processor time before the other side has proven anything, and a peer that closes it early may
begin the next one at once. Each address has a token bucket, and each IPv6 network one for all its addresses. Addresses
from which a member has authenticated itself are not bounded: otherwise another process there could keep the member out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dledger.networks import network_of_host

# Buckets that are kept; the one that was not used for the longest time is forgotten first.
BUCKETS_MAX: Final = 1_024
# Addresses of members that are kept, the last ones.
PROVEN_MAX: Final = 256


class Rate(NamedTuple):
    """A token bucket.

    Attributes:
        per_s: tokens that it gains in a second.
        burst: tokens that it has at most.
    """

    per_s: float
    burst: int


# A member dials twice, and again a few times a second while it is refused; several may run on one machine.
OF_ADDRESS: Final = Rate(16.0, 64)
# Some 1 ms of processor time each: a tenth of the event loop's time at most.
OF_NETWORK: Final = Rate(64.0, 256)


class _Buckets:
    """Buckets of one rate, each as the time at which it is full: the generic cell rate algorithm."""

    def __init__(self, rate: Rate) -> None:
        self._interval_s = 1 / rate.per_s
        self._tolerance_s = (rate.burst - 1) * self._interval_s
        # By key, the one that was used last at the end.
        self._full_s: dict[str, float] = {}

    def has_token(self, key: str, now_s: float) -> bool:
        return self._full_s.get(key, now_s) - now_s <= self._tolerance_s

    def take(self, key: str, now_s: float) -> None:
        full_s = max(self._full_s.pop(key, now_s), now_s)
        self._full_s[key] = full_s + self._interval_s
        if len(self._full_s) > BUCKETS_MAX:
            del self._full_s[next(iter(self._full_s))]


class HandshakeRate:
    """The handshakes of one port. Loop thread only."""

    def __init__(self, of_address: Rate = OF_ADDRESS, of_network: Rate = OF_NETWORK) -> None:
        self._addresses = _Buckets(of_address)
        self._networks = _Buckets(of_network)
        self._proven: dict[str, None] = {}

    def may_begin(self, host: str, now_s: float) -> bool:
        """Count a handshake; False: it is not counted, and the caller closes the connection.

        Args:
            host: address of the other side.
            now_s: seconds of a monotonic clock.
        """
        if host in self._proven:
            return True
        network = network_of_host(host)
        if not (self._addresses.has_token(host, now_s) and self._networks.has_token(network, now_s)):
            return False
        self._addresses.take(host, now_s)
        self._networks.take(network, now_s)
        return True

    def prove(self, host: str) -> None:
        """Note that a handshake of an address was authenticated: further ones are not bounded."""
        self._proven.pop(host, None)
        self._proven[host] = None
        if len(self._proven) > PROVEN_MAX:
            del self._proven[next(iter(self._proven))]
