"""All queues with messages in flight, by group, topic and number, with cheap bulk removal.

The queues of one group in one topic are a part. The deletion of a topic takes one small step for each group that has a
part of it, that of a group one for each of its topics, whatever the number of queues; `sweep` frees their memory in
small portions, and its progress is not observable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.pop.queue import PopQueue


class PopKey(NamedTuple):
    """A queue of a topic, as consumed by a group."""

    group: str
    topic: str
    queue_id: int


class Removed(NamedTuple):
    """What was removed.

    Attributes:
        in_flight: messages in flight of the removed queues.
        ordered: those of them in queues that are consumed in order.
        last_serial: serials of their leases are not larger.
    """

    in_flight: int
    ordered: int
    last_serial: int


class _Part:
    """Queues of one group in one topic, their messages in flight, those consumed in order, and the largest serial."""

    __slots__ = ("in_flight", "last_serial", "ordered", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, PopQueue] = {}
        self.in_flight = 0
        self.ordered = 0
        self.last_serial = 0


class PopQueues(Mapping[PopKey, "PopQueue"]):
    """The queues."""

    def __init__(self) -> None:
        self._count = 0
        self._parts: dict[tuple[str, str], _Part] = {}
        # The other name of each part, by topic and by group.
        self._groups: dict[str, set[str]] = {}
        self._topics: dict[str, set[str]] = {}
        # Queues of removed parts, whose memory is to be freed.
        self._removed: deque[dict[int, PopQueue]] = deque()

    # ------------------------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        """Return the number of queues."""
        return self._count

    def __iter__(self) -> Iterator[PopKey]:
        """Yield all keys, unordered."""
        for (group, topic), part in self._parts.items():
            for queue_id in part.queues:
                yield PopKey(group, topic, queue_id)

    def __getitem__(self, key: PopKey) -> PopQueue:
        """Return a queue.

        Raises:
            KeyError: it has no message in flight.
        """
        group, topic, queue_id = key
        return self._parts[group, topic].queues[queue_id]

    def frozen(self) -> dict[PopKey, PopQueue]:
        """Return a copy: a reference to each queue."""
        return {
            PopKey(group, topic, queue_id): queue
            for (group, topic), part in self._parts.items()
            for queue_id, queue in part.queues.items()
        }

    # ------------------------------------------------------------------------------------------------------ changing

    def put(self, key: PopKey, queue: PopQueue, added: int) -> None:
        """Store a queue, replacing the previous one.

        Args:
            key: of the queue.
            queue: not empty.
            added: how many more messages it has in flight than the previous one.
        """
        group, topic, queue_id = key
        part = self._parts.get((group, topic))
        if part is None:
            part = self._parts[group, topic] = _Part()
            self._groups.setdefault(topic, set()).add(group)
            self._topics.setdefault(group, set()).add(topic)
        self._count += queue_id not in part.queues
        part.queues[queue_id] = queue
        part.in_flight += added
        part.ordered += 0 if queue.ordered is None else added
        part.last_serial = max(part.last_serial, queue.last_serial)

    def count_ordered(self, key: PopKey, count: int) -> None:
        """Count the messages of a queue that is known as consumed in order only now."""
        self._parts[key.group, key.topic].ordered += count

    def remove(self, key: PopKey, in_flight: int) -> None:
        """Remove a queue, if it is there.

        Args:
            key: of the queue.
            in_flight: its messages in flight when it was stored.
        """
        group, topic, queue_id = key
        part = self._parts.get((group, topic))
        queue = None if part is None else part.queues.pop(queue_id, None)
        if part is None or queue is None:
            return
        self._count -= 1
        part.in_flight -= in_flight
        part.ordered -= 0 if queue.ordered is None else in_flight
        if not part.queues:
            self._remove_part(group, topic)

    def remove_group(self, group: str) -> Removed:
        """Remove all queues of a group."""
        return _sum([self._remove_part(group, topic) for topic in list(self._topics.get(group, ()))])

    def remove_topic(self, topic: str) -> Removed:
        """Remove all queues of a topic."""
        return _sum([self._remove_part(group, topic) for group in list(self._groups.get(topic, ()))])

    def _remove_part(self, group: str, topic: str) -> Removed:
        part = self._parts.pop((group, topic))
        for names, name, other in ((self._groups, topic, group), (self._topics, group, topic)):
            names[name].discard(other)
            if not names[name]:
                del names[name]
        if part.queues:
            self._count -= len(part.queues)
            self._removed.append(part.queues)
        return Removed(part.in_flight, part.ordered, part.last_serial)

    def sweep(self, work_max: int) -> None:
        """Free the memory of at most `work_max` removed queues."""
        removed = self._removed
        while removed and work_max > 0:
            queues = removed[0]
            while queues and work_max > 0:
                queues.popitem()
                work_max -= 1
            if not queues:
                removed.popleft()


def _sum(parts: list[Removed]) -> Removed:
    return Removed(
        sum(each.in_flight for each in parts),
        sum(each.ordered for each in parts),
        max((each.last_serial for each in parts), default=0),
    )
