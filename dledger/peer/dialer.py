"""Keeps one connection to one peer: dials, waits for its end, dials again after a growing pause.

Not here: the content of the connection (`dledger.peer.connection`).
"""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import TYPE_CHECKING

from dledger.errors import DLedgerError
from dledger.peer.connection import ConnectionLost, PeerConnection
from dledger.peer.dialing import DialedNode, open_peer_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import Address

# First pause: a node that restarts is reached again well within an election timeout. Last: a node that is down for long
# costs one attempt a second.
_PAUSE_MIN_S = 0.05
_PAUSE_MAX_S = 1.0
_DIAL_TIMEOUT_S = 2.0
# After a connection that lasted this long the peer is dialed again at once: if its process has ended, its host refuses
# that, and the other nodes need not wait for an election timeout. Then the first pause is used again.
_GOOD_AFTER_S = 2.0


class DialRefused(ConnectionLost):
    """No process listens at the address of the peer: its host refused the connection."""


class Dialer:
    """Dials one address until `run` is cancelled.

    Args:
        address: of the peer.
        new_connection: creates the protocol object for the next attempt.
        on_failed: called with the reason when an attempt did not even connect.
        seed: of the jitter, so that two nodes do not dial in step.
        node: which node, and how: the second kind of connections is dialed only after the other side has not accepted
            the first one.
    """

    def __init__(
        self,
        address: Address,
        new_connection: Callable[[], PeerConnection],
        on_failed: Callable[[DLedgerError], None],
        *,
        seed: int,
        node: DialedNode | None = None,
    ) -> None:
        self.attempts_count = 0
        self._address = address
        self._new_connection = new_connection
        self._on_failed = on_failed
        self._random = random.Random(seed)
        # Of the current attempt, or of the last one during a pause. Only its end sets `_ended`: the end of an older
        # connection may be reported later.
        self._connection: PeerConnection | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._node = node or DialedNode()
        # Index of the kind that is dialed next.
        self._kind_number = 0
        # The next pause is skipped.
        self._is_pause_skipped = False

    def ended(self, connection: PeerConnection) -> None:
        """Record that `connection` ended, in case it is the one of the present attempt."""
        if connection is self._connection:
            self._ended.set()

    def skip_pause_after(self, connection: PeerConnection) -> None:
        """Make the attempt after `connection` without a pause, in case it is the one of the present attempt."""
        self._is_pause_skipped = self._is_pause_skipped or connection is self._connection

    async def run(self) -> None:
        """Dial until cancelled; the connection of the present attempt ends with it, greeted or not."""
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_MIN_S
        try:
            while True:
                begun_at = loop.time()
                await self._dial_once()
                is_good = loop.time() - begun_at > _GOOD_AFTER_S
                if is_good:
                    pause_s = _PAUSE_MIN_S
                if is_good or self._is_pause_skipped:
                    self._is_pause_skipped = False
                    continue
                await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        finally:
            if self._connection is not None:
                self._connection.close(ConnectionLost(f"{self._address} is dialled no more"))

    async def _dial_once(self) -> None:
        """Connect, and wait until the connection ends."""
        self._ended.clear()
        self.attempts_count += 1
        kinds = self._node.security.kinds
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await open_peer_connection(self._connect, self._address, self._node, kinds[self._kind_number])
        except (OSError, TimeoutError, ValueError, DLedgerError) as error:
            # ValueError: an invalid name (a label too long, a zero byte); some such names pass `Address.parse`.
            if _is_of_handshake(error):
                self._kind_number = (self._kind_number + 1) % len(kinds)
            kind = DialRefused if isinstance(error, ConnectionRefusedError) else ConnectionLost
            self._on_failed(kind(f"cannot connect to {self._address}: {str(error) or 'timeout'}"))
            return
        await self._ended.wait()
        is_greeted = self._connection is not None and self._connection.is_greeted
        self._kind_number = 0 if is_greeted else (self._kind_number + 1) % len(kinds)

    def _connect(self) -> PeerConnection:
        self._connection = self._new_connection()
        return self._connection


def _is_of_handshake(error: Exception) -> bool:
    """Return whether the other side was reached, and the handshake failed."""
    return isinstance(error, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, DLedgerError))
