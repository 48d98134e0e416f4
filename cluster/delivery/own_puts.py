"""Puts of the broker's own messages, whose outcome is decided before the next ones.

What a task of the leader puts is chosen from the applied state, so this must have all that the task has put before.
A put whose outcome is unknown may still become an entry of the log: then a later entry of the same term is committed
first, after which the put is in the state, or certainly never will be.

Used by everything that puts messages with effects: deliveries (`cluster.delivery.leader_task`), ends of transactions,
returned messages (`cluster.retries.returning`), moves of pop messages (`cluster.pop.moving`). All of it is dropped with
the process; a new leader serves only after it has applied all earlier entries.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster.protocol.errors import RequestFailed, reason_of_put
from store.errors import Certainty, IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.replica.port import Replica
    from store.model.message import Message


class OwnPuts:
    """The puts of one task; several may be pending at a time.

    Args:
        replica: the node's.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        # The number of puts whose outcome was unknown, and of those among them that are decided since.
        self._unknown_count = 0
        self._decided_count = 0

    async def decided(self) -> bool:
        """Wait until all earlier puts are decided; return whether some were not, so that the node may not lead now.

        Raises:
            RequestFailed, StoreError, DLedgerError: it is still not known.
        """
        if self._decided_count >= self._unknown_count:
            return False
        while self._decided_count < self._unknown_count:
            count = self._unknown_count
            await self._replica.serving_puts().decide_own_puts()
            self._decided_count = max(self._decided_count, count)
        return True

    async def put(self, messages: Sequence[Message], while_pending: Callable[[], None] | None = None) -> None:
        """Put messages with effects; when this returns, these are applied.

        Args:
            messages: of the broker itself.
            while_pending: called after the put was proposed, unless it is decided by then.

        Raises:
            IllegalMessage: one of them cannot be stored; nothing was put.
            RequestFailed, StoreError, DLedgerError: they are not put, or it is not known, see `decided`.
        """
        puts, certainty = self._replica.serving_puts(), Certainty.UNKNOWN
        try:
            try:
                put = puts.begin_own_put(messages)
            except IllegalMessage:
                certainty = Certainty.NOT_APPENDED
                raise
            if while_pending is not None:
                # The put is proposed first; then other work is done while it is replicated.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if not put.done():
                    while_pending()
            outcome = await put
            certainty = outcome.certainty
        finally:
            # Also if the task is cancelled, or the put raises.
            self._unknown_count += certainty is Certainty.UNKNOWN
        if certainty is not Certainty.APPENDED:
            raise RequestFailed(reason_of_put(outcome.status), outcome.detail, certainty=certainty)
