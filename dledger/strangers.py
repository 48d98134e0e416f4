"""Connections that have not greeted yet: few from each address, few in all, and the oldest goes first.

So nobody keeps others out by opening connections and saying nothing: who is quick to greet is let in all the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dledger.errors import DLedgerError
from dledger.peer_connection import PeerConnection

STRANGERS_MAX: Final = 64
# A node dials twice, and again when it was restarted; several nodes may run on one machine.
STRANGERS_PER_ADDRESS_MAX: Final = 16


class Strangers:
    """The connections that were accepted and have not greeted, oldest first."""

    def __init__(self) -> None:
        self._hosts: dict[PeerConnection, str] = {}
        self._closed_for: DLedgerError | None = None

    def add(self, connection: PeerConnection, host: str) -> None:
        """Take one in that has just been made; the oldest goes if there are too many, of its address or in all."""
        if self._closed_for is not None:
            # The loop had accepted it, and made it only after the server was closed.
            connection.close(self._closed_for)
            return
        self._hosts[connection] = host
        if Counter(self._hosts.values())[host] > STRANGERS_PER_ADDRESS_MAX:
            oldest = next(each for each, its_host in self._hosts.items() if its_host == host)
            self._end(oldest, f"more than {STRANGERS_PER_ADDRESS_MAX} connections of {host} that have not greeted")
        elif len(self._hosts) > STRANGERS_MAX:
            self._end(next(iter(self._hosts)), f"more than {STRANGERS_MAX} connections that have not greeted")

    def discard(self, connection: PeerConnection) -> None:
        """Forget one that greeted, or ended."""
        self._hosts.pop(connection, None)

    def close(self, error: DLedgerError) -> None:
        """End all of them, and whichever comes later."""
        self._closed_for = error
        for connection in list(self._hosts):
            connection.close(error)

    def __len__(self) -> int:
        return len(self._hosts)

    def _end(self, connection: PeerConnection, reason: str) -> None:
        del self._hosts[connection]
        connection.close(DLedgerError(reason))
