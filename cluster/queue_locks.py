"""Locks on queues, for consumers that need each queue for themselves: held by the leader, for a limited time. Pure.

A lock holds for 60 s and is taken again every 20 s; who takes it again before it ends keeps it. Locks live in memory: a
new leader has none, so for up to 60 s behind an election two consumers may believe in one queue. What they commit is
still taken only forwards.

Times are milliseconds of a monotonic clock. Source: RocketMQ `RebalanceLockManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from store.message import QueueKey

LOCK_MS: Final = 60_000
LOCKS_MAX: Final = 500_000


class QueueLocks:
    """All locks of one broker."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, QueueKey], tuple[str, int]] = {}

    def __len__(self) -> int:
        """Return how many there are, ended ones too."""
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[QueueKey], now_ms: int) -> list[QueueKey]:
        """Give the client those of the queues that no other client of the group holds; return those it holds now."""
        held: list[QueueKey] = []
        for queue in queues:
            holder, until_ms = self._locks.get((group, queue), (client_id, 0))
            if holder != client_id and until_ms > now_ms:
                continue
            if (group, queue) not in self._locks and not self._has_room(now_ms):
                continue
            self._locks[group, queue] = (client_id, now_ms + LOCK_MS)
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> bool:
        """Take the locks of these queues from the client, if it holds them; return whether it held one."""
        is_changed = False
        for queue in queues:
            if self._locks.get((group, queue), ("", 0))[0] == client_id:
                del self._locks[group, queue]
                is_changed = True
        return is_changed

    def clear(self) -> None:
        """Forget all: another node leads now, or this one leads anew."""
        self._locks.clear()

    def _has_room(self, now_ms: int) -> bool:
        if len(self._locks) >= LOCKS_MAX:
            self._locks = {key: lock for key, lock in self._locks.items() if lock[1] > now_ms}
        return len(self._locks) < LOCKS_MAX
