"""Shares of the appends that are not committed yet, of users or addresses, on a log of raw entries.

Without them one client could fill the whole backlog of a leader, and all others would be refused. Puts of brokers have
shares of their own (`cluster.api.put_calls`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dledger.errors import Overloaded
from dledger.service.call_gate import holder
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.pending.appends import AppendResult


class AppendShares:
    """The backlog of one node. Loop thread only.

    Args:
        config: of the node; its bounds of entries and bytes are what is shared.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._pending = FairShares(config.max_pending_size_bytes)
        # Entries have a bound of their own, so each counts as at least its part of all bytes.
        self._entry_bytes_min = -(-config.max_pending_size_bytes // config.max_pending_requests_num)
        self._retries = RetryTimes(time.monotonic)

    def held_while(
        self, bodies: list[bytes], append: Callable[[list[bytes]], asyncio.Future[AppendResult]]
    ) -> asyncio.Future[AppendResult]:
        """Append with a share that is held until the outcome is known; the caller must not cancel the future.

        Raises:
            Overloaded: the holder of the current call has its share. Nothing was done; repeat the request later.
        """
        size_bytes = sum(map(len, bodies))
        amount = max(size_bytes, len(bodies) * self._entry_bytes_min)
        if not bodies or amount > self._pending.size:
            # The log refuses it with the reason.
            return append(bodies)
        name = holder()
        if not self._pending.take(name, amount):
            share = f"the {self._pending.size} bytes of pending appends"
            raise Overloaded(name, share, self._retries.next_s())
        try:
            future = append(bodies)
        except BaseException:
            self._pending.give_back(name, amount)
            raise
        if future.done():
            self._pending.give_back(name, amount)
        else:
            future.add_done_callback(lambda _: self._pending.give_back(name, amount))
        return future
