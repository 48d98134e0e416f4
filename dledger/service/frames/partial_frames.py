"""Bounds the bytes of incomplete frames of all connections of a port.

Beyond the bound the connection with the largest incomplete frame ends, of the client that has most: so a client that
sends parts of frames ends its own connections first.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from dledger.service.frames.limits import Closed


class FrameReceiver(Protocol):
    """A connection that may have an incomplete frame.

    Attributes:
        client: the key by which its bytes are counted.
    """

    client: str

    def end(self, reason: Closed) -> None:
        """End the connection at once."""


class PartialFrames:
    """The incomplete frames of one port. Loop thread only.

    Args:
        size_bytes_max: of all of them together.

    Attributes:
        size_bytes: of all of them now, without those of connections that were ended for it.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes = 0
        self._size_bytes_max = size_bytes_max
        # Only connections with an incomplete frame.
        self._sizes: dict[FrameReceiver, int] = {}

    def set(self, connection: FrameReceiver, size_bytes: int) -> None:
        """Note the bytes of a connection's incomplete frame, 0: there is none; may end connections, also this one."""
        self.size_bytes += size_bytes - self._sizes.pop(connection, 0)
        if size_bytes:
            self._sizes[connection] = size_bytes
        while self.size_bytes > self._size_bytes_max:
            self._end_one()

    def _end_one(self) -> None:
        clients: Counter[str] = Counter()
        for each, size_bytes in self._sizes.items():
            clients[each.client] += size_bytes
        client = max(clients, key=clients.__getitem__)
        largest = max((each for each in self._sizes if each.client == client), key=self._sizes.__getitem__)
        self.size_bytes -= self._sizes.pop(largest)
        largest.end(Closed.SLOW)
