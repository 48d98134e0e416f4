"""All connections between this node and one other node, and the dialers that maintain half of them.

Not here: which nodes have a link, and the connection for each message (`dledger.peer.transport`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.errors import DLedgerError
from dledger.peer.wire.slots import ACCEPTED_BULK, ACCEPTED_CONTROL, DIALLED_BULK, DIALLED_CONTROL

if TYPE_CHECKING:
    from dledger.config import Address
    from dledger.peer.connection import PeerConnection
    from dledger.peer.dialer import Dialer


class GreetAgain(DLedgerError):
    """Both sides must greet again: the group id is known now, or certificates have changed."""


class PeerLink:
    """The connections of this node and one other; it dials from `begin` to `end`.

    Attributes:
        address: of the other node.
        is_member: it is in the membership of this node; a non-member otherwise.
        host: from which a non-member connected; that of `address` otherwise.
        last_message_at: when its last message arrived, in seconds of the event loop's clock.
        client_address: of its LogService; empty until it has sent it.
        feature_level: of its program, from its last greeting; 0 until it has greeted.
        is_reported_unreachable: it was reported to the listener that messages to it are dropped.
    """

    def __init__(self, address: Address, *, is_member: bool, last_message_at: float, host: str = "") -> None:
        self.address = address
        self.is_member = is_member
        self.host = host or address.host
        self.last_message_at = last_message_at
        self.client_address = ""
        self.feature_level = 0
        self.is_reported_unreachable = False
        # By `slot_of`: at most one connection of each kind. A replaced one is closed; its end then changes no slot.
        self._slots: list[PeerConnection | None] = [None] * 4
        # Those of control and bulk, and their tasks, from `begin` on.
        self._dialers: tuple[Dialer, ...] = ()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def begin(self, *dialers: Dialer) -> None:
        """Dial with `dialers` until cancelled."""
        loop = asyncio.get_running_loop()
        self._dialers = dialers
        self._tasks = tuple(loop.create_task(dialer.run()) for dialer in dialers)

    def end(self, error: DLedgerError) -> tuple[asyncio.Task[None], ...]:
        """Stop dialling and close all connections; return the dialers' tasks, which are about to end."""
        for task in self._tasks:
            task.cancel()
        connections, self._slots = self._slots, [None] * 4
        for connection in filter(None, connections):
            connection.close(error)
        return self._tasks

    def connections(self) -> list[PeerConnection]:
        """Return the open ones."""
        return list(filter(None, self._slots))

    def at(self, slot: int) -> PeerConnection | None:
        """Return the connection in `slot`, if it is open."""
        return self._slots[slot]

    def holds(self, connection: PeerConnection) -> bool:
        """Return whether `connection` is in use."""
        return self._slots[slot_of(connection)] is connection

    def is_proven_at(self, connection: PeerConnection) -> bool:
        """Return whether the other side proved our group's id on any open connection that the same side dialled."""
        return any(each.is_proven and each.is_dialled == connection.is_dialled for each in self.connections())

    def greet_again(self, group_id: int, error: DLedgerError) -> list[PeerConnection]:
        """Repeat the greeting where the group id was not proven; return those that the other side must redial.

        This node redials its own connections at once. If the other side sent another group id, it is refused when it
        dials.
        """
        unproven = [each for each in self.connections() if not each.prove(group_id)]
        ended = [each for each in unproven if each.is_dialled or each.is_of_another_group(group_id)]
        for connection in ended:
            self.renew(connection, error)
        return [each for each in unproven if each not in ended]

    def renew(self, connection: PeerConnection, error: DLedgerError) -> None:
        """Close `connection`; if this node dialed it, it is dialed again without a pause."""
        for dialer in self._dialers:
            dialer.skip_pause_after(connection)
        connection.close(error)

    @property
    def is_proven(self) -> bool:
        """Whether the other node proved, on one of its open connections, that it is of our group."""
        return any(connection.is_proven for connection in self.connections())

    def put(self, connection: PeerConnection) -> None:
        """Use `connection` from now on; it replaces an older one of its kind."""
        slot = slot_of(connection)
        older, self._slots[slot] = self._slots[slot], connection
        if older is not None:
            older.close(DLedgerError("replaced by a newer connection"))

    def drop(self, connection: PeerConnection) -> None:
        """Remove `connection`, which ended."""
        self._slots[slot_of(connection)] = None

    def dial_again(self, connection: PeerConnection) -> None:
        """Make the dialer of `connection`, which ended, dial again."""
        for dialer in self._dialers:
            dialer.ended(connection)


def slot_of(connection: PeerConnection) -> int:
    """Return the slot of a connection."""
    if connection.is_dialled:
        return DIALLED_BULK if connection.is_bulk else DIALLED_CONTROL
    return ACCEPTED_BULK if connection.is_bulk else ACCEPTED_CONTROL
