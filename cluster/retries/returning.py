"""Puts the copies of returned messages: one for each key, although requests are repeated.

The leader decides from three things, in this order:

1. the window of applied keys (`cluster.state.returned_messages`): a repeated request is answered from it;
2. the puts of this process that are pending: a repeated request waits for the outcome of the first one;
3. puts of this process whose outcome is unknown: before a new put each of them is decided
   (`cluster.delivery.own_puts`), so it is in the window, or certainly never will be.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster.delivery.own_puts import OwnPuts

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.port import Replica
    from store.model.message import Message


class Returning:
    """The pending copies of one node.

    Args:
        replica: the node's.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._pending: dict[bytes, asyncio.Task[bool]] = {}
        self._puts = OwnPuts(replica)

    async def put_once(self, key: bytes, make: Callable[[], Message]) -> bool:
        """Put the copy of a message, unless it was put before; return False if it was.

        A caller that is cancelled does not cancel the put.

        Args:
            key: of the returned message.
            make: returns the copy, with its effect; called in the iteration of the loop that puts it.

        Raises:
            RequestFailed, StoreError, DLedgerError: it is not put; or its certainty is that this is unknown, and the
                same request may be repeated.
        """
        if self._replica.state.returned.is_dead(key) is not None:
            return False
        first = self._pending.get(key)
        if first is not None:
            await asyncio.shield(first)
            return False
        task = self._pending[key] = asyncio.ensure_future(self._put(key, make))
        task.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(task)

    def _ended(self, key: bytes, task: asyncio.Task[bool]) -> None:
        del self._pending[key]
        if not task.cancelled():
            # Its callers may all be gone.
            task.exception()

    async def _put(self, key: bytes, make: Callable[[], Message]) -> bool:
        await self._puts.decided()
        # An undecided put may have been that of this key.
        if self._replica.state.returned.is_dead(key) is not None:
            return False
        await self._puts.put([make()])
        return True
