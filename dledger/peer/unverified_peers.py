"""Bounds for peers that have not proven that they are members: connections without a greeting, and large frames.

Connections without a greeting are bounded for each address and in all. Beyond the bound of an address its oldest one is
closed, beyond that of all the oldest one of the network that has most: so a peer that opens connections and sends
nothing cannot lock others out, not even with all addresses of an IPv6 network. Large frames of all such peers share one
bound.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from dledger.errors import DLedgerError
from dledger.networks import network_of_host
from dledger.peer.wire.frames import FRAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from dledger.peer.connection import PeerConnection

# Enough for a leader that this node does not know yet, and its predecessor.
LARGE_FRAMES_SIZE_BYTES_MAX: Final = 2 * FRAME_SIZE_BYTES_MAX
UNVERIFIED_MAX: Final = 64
# A node dials twice, and again when it was restarted; several nodes may run on one machine.
UNVERIFIED_PER_ADDRESS_MAX: Final = 16


class Closable(Protocol):
    """A connection, or the handshake before it."""

    def close(self, error: DLedgerError) -> None:
        """End at once."""


class UnverifiedPeers:
    """The accepted connections without a greeting, oldest first.

    Args:
        total_max: in all.
        per_address_max: of each host.
    """

    def __init__(self, total_max: int = UNVERIFIED_MAX, per_address_max: int = UNVERIFIED_PER_ADDRESS_MAX) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        # Oldest first; after `add` within both bounds.
        self._hosts: dict[Closable, str] = {}
        # Set once, by `close`: later connections are closed at once.
        self._closed_for: DLedgerError | None = None

    def add(self, connection: Closable, host: str) -> None:
        """Add a new connection; an old one is closed if there are too many, of its address or in all.

        Args:
            connection: the new one.
            host: its address; or the key of a network, which then counts as one address.
        """
        if self._closed_for is not None:
            # The loop had accepted it, and made it only after the server was closed.
            connection.close(self._closed_for)
            return
        self._hosts[connection] = host
        if Counter(self._hosts.values())[host] > self._per_address_max:
            oldest = next(each for each, its_host in self._hosts.items() if its_host == host)
            self._end(oldest, f"more than {self._per_address_max} connections of {host} that have not greeted")
        elif len(self._hosts) > self._total_max:
            networks = {each: network_of_host(its_host) for each, its_host in self._hosts.items()}
            most = Counter(networks.values()).most_common(1)[0][0]
            oldest = next(each for each, network in networks.items() if network == most)
            self._end(oldest, f"more than {self._total_max} connections that have not greeted, most of {most}")

    def discard(self, connection: Closable) -> None:
        """Remove a connection that has greeted, or ended."""
        self._hosts.pop(connection, None)

    def close(self, error: DLedgerError) -> None:
        """Close all of them, and all later ones."""
        self._closed_for = error
        for connection in list(self._hosts):
            connection.close(error)

    def __len__(self) -> int:
        return len(self._hosts)

    def _end(self, connection: Closable, reason: str) -> None:
        del self._hosts[connection]
        connection.close(DLedgerError(reason))


class LargeFrames:
    """Connections with an incomplete large frame, of peers that are not proven members; oldest first.

    Each of them may announce a frame of 16 MiB and never end it.
    """

    def __init__(self) -> None:
        # Oldest first; after `add` their large buffers have at most `LARGE_FRAMES_SIZE_BYTES_MAX` together.
        self._connections: dict[PeerConnection, None] = {}

    def add(self, connection: PeerConnection) -> None:
        """Add the memory of a connection; the oldest is closed while all of them together have too much."""
        self._connections.setdefault(connection)
        large = [each for each in self._connections if each.is_buffer_large]
        size_bytes = sum(each.buffer_size_bytes for each in large)
        while size_bytes > LARGE_FRAMES_SIZE_BYTES_MAX:
            oldest = large.pop(0)
            size_bytes -= oldest.buffer_size_bytes
            oldest.close(DLedgerError(f"frames of non-members exceed {LARGE_FRAMES_SIZE_BYTES_MAX} bytes in all"))
        self._connections = dict.fromkeys(large)

    def discard(self, connection: PeerConnection) -> None:
        """Remove a connection that ended."""
        self._connections.pop(connection, None)
