"""Locks on queues, for consumers that need each queue for themselves: held by the leader, for a limited time. Pure.

A lock is valid for 60 s and renewed every 20 s; a consumer that renews it in time keeps it. It ends with its
consumer's membership in the group, too. Locks live in memory: a new leader has none. It grants none in its first
seconds, in which the group's consumers join it; locks of the previous leader stay theirs, but they hand out no message
of those queues until they have joined. Only a consumer that is cut off from the new leader and not from the old one may
believe that it holds a queue that another consumer has, for 60 s at most. Commits of both still move offsets only
forwards.

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
        # Holder and end of each lock, at most `LOCKS_MAX`. An ended one stays until another client takes
        # the queue, or room is needed.
        self._locks: dict[tuple[str, QueueKey], tuple[str, int]] = {}
        # Exactly the same locks by group and client, and no empty set: otherwise `_remove` fails.
        self._held: dict[tuple[str, str], set[QueueKey]] = {}

    def __len__(self) -> int:
        """Return the number of locks, including ended ones."""
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[QueueKey], now_ms: int) -> list[QueueKey]:
        """Give the client those of the queues that no other client of the group holds; return those it holds now."""
        held: list[QueueKey] = []
        for queue in queues:
            holder, until_ms = self._locks.get((group, queue), ("", 0))
            if holder not in ("", client_id) and until_ms > now_ms:
                continue
            if not holder and not self._has_room(now_ms):
                continue
            if holder not in ("", client_id):
                self._remove(group, queue)
            self._locks[group, queue] = (client_id, now_ms + LOCK_MS)
            self._held.setdefault((group, client_id), set()).add(queue)
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> bool:
        """Take the locks of these queues from the client, if it holds them; return whether it held one."""
        mine = self._held.get((group, client_id), set()).intersection(queues)
        for queue in mine:
            self._remove(group, queue)
        return bool(mine)

    def unlock_all(self, group: str, client_id: str) -> None:
        """Take all locks from a client that has left the group."""
        self.unlock(group, client_id, self._held.get((group, client_id), ()))

    def clear(self) -> None:
        """Forget all: another node leads now, or this one leads in a new term."""
        self._locks.clear()
        self._held.clear()

    def _remove(self, group: str, queue: QueueKey) -> None:
        holder, _ = self._locks.pop((group, queue))
        of_holder = self._held[group, holder]
        of_holder.discard(queue)
        if not of_holder:
            del self._held[group, holder]

    def _has_room(self, now_ms: int) -> bool:
        if len(self._locks) >= LOCKS_MAX:
            for group, queue in [key for key, lock in self._locks.items() if lock[1] <= now_ms]:
                self._remove(group, queue)
        return len(self._locks) < LOCKS_MAX
