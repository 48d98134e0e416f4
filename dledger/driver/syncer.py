"""Makes written entries durable: group commit, inline or in the storage thread.

Place on the path of an append: after the driver has written and pushed a batch, it passes a ticket (the data that is
dirty now). One ticket is in progress at a time, so everything written during a sync is part of the next one.

A sync runs *inline* if it is expected to take less time than two thread switches (about 0.2 ms on a busy machine) and
no other work waits for the loop; otherwise in the *thread*. Measured without Raft, 1 KiB bodies, on a fast disk: inline
is 1.4 times as fast for one caller, the thread 1.5 times as fast for many. Rules, in order:

1. For `_STALL_PENALTY_S` after a sync that took `_STALL_S` or longer: thread. A disk that stalled once will stall
   again, and a blocked loop sends no heartbeats.
2. The load is high (`is_lightly_loaded` returns False): thread; one long sync for everything written meanwhile is
   cheaper.
3. The decaying maximum of recent syncs is `_FAST_S` or more: thread.
4. Otherwise inline; the first syncs use the thread, because the disk's speed is not known yet.

Inline means in the next iteration of the event loop. So the pushes of this iteration are sent first (uvloop sends what
was written after the callbacks of an iteration), and followers write and sync at the same time as this node.

A failed sync is never retried (`store.errors.StorageFailed`): the owner is notified and must stop the node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.entries.store import EntriesTicket
    from store.fs.storage_thread import Worker

# Well above a thread switch, so that syncs stay inline when several nodes share a disk; far below a heartbeat.
_FAST_S = 0.001
_STALL_S = 0.02
_STALL_PENALTY_S = 5.0
# The decay of the maximum at each sync: after one of 5 ms it takes 16 fast syncs to be below `_FAST_S` again.
_KEPT = 0.9


class GroupSyncer:
    """The driver's syncer port: runs one ticket at a time, inline or in the thread. Construct it in the event loop.

    Args:
        listener: the node.
        worker: syncs outside the event loop.
        now_s: a monotonic clock with a resolution of at least 0.1 ms.

    Attributes:
        inline_count: syncs that ran on the loop.
        threaded_count: syncs that ran in the storage thread.
    """

    def __init__(self, listener: SyncListener, worker: Worker, *, now_s: Callable[[], float]) -> None:
        self._listener = listener
        self._worker = worker
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()
        self._policy = SyncPolicy()
        self.inline_count = 0
        self.threaded_count = 0

    def start(self, ticket: EntriesTicket) -> None:
        """Sync `ticket` soon; the listener is called at the end, never from within this call."""
        if self._policy.is_inline(self._now_s(), is_lightly_loaded=self._listener.is_lightly_loaded()):
            self.inline_count += 1
            self._loop.call_soon(self._sync_inline, ticket)
        else:
            self.threaded_count += 1
            self._sync_in_thread(ticket)

    def _sync_inline(self, ticket: EntriesTicket) -> None:
        begun_s = self._now_s()
        try:
            ticket.sync()
        except StoreError as error:
            self._listener.on_sync_failed(error)
            return
        self._ended(ticket, self._now_s() - begun_s)

    def _sync_in_thread(self, ticket: EntriesTicket) -> None:
        duration_s = 0.0

        def sync() -> None:
            nonlocal duration_s
            begun_s = self._now_s()
            ticket.sync()
            duration_s = self._now_s() - begun_s

        def finished(error: Exception | None) -> None:
            if error is None:
                self._ended(ticket, duration_s)
            else:
                self._listener.on_sync_failed(error)

        self._worker.run(sync, finished)

    def _ended(self, ticket: EntriesTicket, duration_s: float) -> None:
        self._policy.observe(duration_s, self._now_s())
        self._listener.on_synced(ticket, duration_s)


class SyncPolicy:
    """Decides, by past syncs and the current load, where the next sync runs; has no resources.

    Times are seconds of any monotonic clock.
    """

    def __init__(self) -> None:
        self._slow_s = _FAST_S
        self._stalled_until_s = float("-inf")

    def observe(self, duration_s: float, now_s: float) -> None:
        """Record a finished sync."""
        self._slow_s = max(duration_s, self._slow_s * _KEPT)
        if duration_s >= _STALL_S:
            self._stalled_until_s = now_s + _STALL_PENALTY_S
            # The penalty covers the stall; after the penalty, recent syncs decide again.
            self._slow_s = _FAST_S

    def is_inline(self, now_s: float, *, is_lightly_loaded: bool) -> bool:
        """Return whether the next sync should run on the event loop."""
        return is_lightly_loaded and self._slow_s < _FAST_S and now_s >= self._stalled_until_s


class SyncListener(Protocol):
    """The node, which owns the driver. Calls come from the event loop."""

    def is_lightly_loaded(self) -> bool:
        """Return whether loop and disk are lightly loaded, so that blocking the loop briefly delays no other work."""

    def on_synced(self, ticket: EntriesTicket, duration_s: float) -> None:
        """`ticket` is durable; call `Driver.synced`."""

    def on_sync_failed(self, error: Exception) -> None:
        """A sync failed; stop the node, and do not sync again."""
