"""Exclusive queue locks of consumers, kept by the leader and limited in time. Pure.

A lock is valid for 60 s and is renewed every 20 s. A new leader has no locks. In its first seconds, while the group's
consumers join, it grants none; consumers keep the queues that they locked at the previous leader.

| lock | ends | a new leader |
| --- | --- | --- |
| kept: of consumption in order | with its time, or when it is released | knows its holder, which is in the log |
| | | (`cluster.state.order.owners`): for 60 s only that consumer gets it |
| any other | also with its consumer's membership in the group | may grant it to another consumer |

So a kept lock has one holder at every moment, whatever leaders and consumers know of each other: the holder counts the
time from its request, the broker confirms that it leads after it has the request, and a new leader counts 60 s from its
election. Other locks only order a handover: a consumer that is partitioned from the new leader but not from the old one
may read a queue that another one has; commits of either move offsets only forwards.

Times are milliseconds of a monotonic clock. Source: RocketMQ `RebalanceLockManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.model.message import QueueKey

LOCK_MS: Final = 60_000
LOCKS_MAX: Final = 500_000


class QueueLocks:
    """All locks of one broker."""

    def __init__(self) -> None:
        # Holder and expiry of each lock, at most `LOCKS_MAX`. Expired locks are kept until another client locks the
        # queue, or the limit is reached.
        self._locks: dict[tuple[str, QueueKey], tuple[str, int]] = {}
        # Index of the same locks by group and client, without empty sets; `_remove` relies on both.
        self._held: dict[tuple[str, str], set[QueueKey]] = {}

    def __len__(self) -> int:
        """Return the number of locks, expired ones included."""
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[QueueKey], now_ms: int) -> list[QueueKey]:
        """Lock the queues that no other client of the group has locked; return those that are locked by this client."""
        held: list[QueueKey] = []
        for queue in queues:
            holder, until_ms = self._locks.get((group, queue), ("", 0))
            if holder not in ("", client_id) and until_ms > now_ms:
                continue
            if not holder and not self._has_space(now_ms):
                continue
            if holder not in ("", client_id):
                self._remove(group, queue)
            self._locks[group, queue] = (client_id, now_ms + LOCK_MS)
            self._held.setdefault((group, client_id), set()).add(queue)
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> bool:
        """Release the client's locks of these queues; return whether it had any."""
        mine = self._held.get((group, client_id), set()).intersection(queues)
        for queue in mine:
            self._remove(group, queue)
        return bool(mine)

    def held(self, group: str, client_id: str) -> list[QueueKey]:
        """Return the queues that a client has locked, expired locks included."""
        return list(self._held.get((group, client_id), ()))

    def clear(self) -> None:
        """Drop all locks, because another node leads now, or this one leads in a new term."""
        self._locks.clear()
        self._held.clear()

    def _remove(self, group: str, queue: QueueKey) -> None:
        holder, _ = self._locks.pop((group, queue))
        of_holder = self._held[group, holder]
        of_holder.discard(queue)
        if not of_holder:
            del self._held[group, holder]

    def _has_space(self, now_ms: int) -> bool:
        if len(self._locks) >= LOCKS_MAX:
            for group, queue in [key for key, lock in self._locks.items() if lock[1] <= now_ms]:
                self._remove(group, queue)
        return len(self._locks) < LOCKS_MAX
