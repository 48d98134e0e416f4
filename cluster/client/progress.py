"""How far a consumer has come in each queue, and what of it to commit. Pure.

Messages are done in any order; committed is the offset behind which nothing is undone. So a consumer that fails gets
again what it had not done, and perhaps some that it had: at least once.

Source: RocketMQ `ProcessQueue`, `RemoteBrokerOffsetStore`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cluster.client.message_queue import MessageQueue

# Messages of a queue that may be in work, and how far the last may be ahead of the first.
IN_WORK_MAX: Final = 1_000
SPAN_MAX: Final = 2_000


class Commit(NamedTuple):
    """What to commit of a queue.

    Attributes:
        queue: it.
        offset: the next message to be done.
        reset_count: of the offset that the consumer began from.
    """

    queue: MessageQueue
    offset: int
    reset_count: int


class QueueProgress:
    """One queue of one consumer.

    Args:
        offset: where it begins.
        reset_count: as the broker told it with the offset.
    """

    def __init__(self, offset: int, reset_count: int = 0) -> None:
        assert offset >= 0, offset
        self.reset_count = reset_count
        # Where to read next: everything below was taken, or was not wanted.
        self.read_offset = offset
        self.committed_offset = offset
        # Beginning with the first that is not done; those that are not done.
        self._taken: deque[int] = deque()
        self._undone: set[int] = set()

    @property
    def in_work_count(self) -> int:
        """Messages that were taken and are not done."""
        return len(self._undone)

    @property
    def is_full(self) -> bool:
        """Whether so much is undone that no more should be read."""
        span = self._taken[-1] - self._taken[0] if self._taken else 0
        return self.in_work_count >= IN_WORK_MAX or span >= SPAN_MAX

    @property
    def done_offset(self) -> int:
        """Everything below is done."""
        return self._taken[0] if self._taken else self.read_offset

    def take(self, offsets: Iterable[int], next_offset: int) -> None:
        """Take messages into work.

        Args:
            offsets: theirs, ascending, none below `read_offset`.
            next_offset: where to read next, behind all of them; what is skipped was not wanted.
        """
        for offset in offsets:
            assert offset >= self.read_offset, (offset, self.read_offset)
            self._taken.append(offset)
            self._undone.add(offset)
            self.read_offset = offset + 1
        assert next_offset >= self.read_offset, (next_offset, self.read_offset)
        self.read_offset = next_offset

    def done(self, offset: int) -> None:
        """Take note that a message is done; one that is not in work (any more) changes nothing."""
        self._undone.discard(offset)
        while self._taken and self._taken[0] not in self._undone:
            self._taken.popleft()


class ProgressTable:
    """All queues of one consumer."""

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, QueueProgress] = {}

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._queues)

    def get(self, queue: MessageQueue) -> QueueProgress | None:
        """Return the progress of a queue; None when it is not this consumer's."""
        return self._queues.get(queue)

    def assign(self, queue: MessageQueue, offset: int, reset_count: int = 0) -> QueueProgress:
        """Begin with a queue, or begin it anew after a reset."""
        self._queues[queue] = progress = QueueProgress(offset, reset_count)
        return progress

    def revoke(self, queue: MessageQueue) -> Commit | None:
        """Give a queue up; return what is left to be committed of it."""
        progress = self._queues.pop(queue, None)
        return None if progress is None else _commit_of(queue, progress)

    def due(self) -> list[Commit]:
        """Return what has come forward since it was last committed."""
        commits = (_commit_of(queue, progress) for queue, progress in self._queues.items())
        return [commit for commit in commits if commit is not None]

    def committed(self, commit: Commit) -> None:
        """Take note that a broker has taken this commit, or holds a higher offset."""
        progress = self._queues.get(commit.queue)
        if progress is not None and progress.reset_count == commit.reset_count:
            progress.committed_offset = max(progress.committed_offset, commit.offset)


def _commit_of(queue: MessageQueue, progress: QueueProgress) -> Commit | None:
    offset = progress.done_offset
    return Commit(queue, offset, progress.reset_count) if offset > progress.committed_offset else None
