"""The consumed offsets of consumer groups, by group, topic and queue; removing many of them is cheap.

The offsets of one group in one topic are a part. A part belongs to a record of its topic; when a topic is deleted, its
record leaves the map of topics, and all parts of it are void at once, however many groups have them. Deleting a group
costs one small step for each of its topics. Memory of removed offsets is freed in small portions by `sweep`.

`frozen` copies no offset: what it returns shares all parts, and a part or group is copied before its next change.
What is swept when is not observable: replicas with the same offsets may hold different void parts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.commands import QueueOffset

# Offsets of which the memory is freed in one piece where all of it is freed: some milliseconds.
FREED_PER_PIECE: Final = 10_000


# Compared by identity: a topic that is made again has another record.
@dataclass(slots=True, eq=False)
class _Topic:
    """A topic of which offsets are kept: how many, and by which groups."""

    count: int = 0
    groups: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Part:
    """Offsets of one group in one topic, by queue; `epoch`: when it was made."""

    topic: _Topic
    epoch: int
    rows: dict[int, QueueOffset]


@dataclass(slots=True, eq=False)
class _Group:
    """Parts of one group by topic; `epoch`: when it was made."""

    epoch: int
    parts: dict[str, _Part]


class FrozenOffsets:
    """All offsets as they were at one moment; may be read in any thread."""

    __slots__ = ("_groups", "_topics")

    def __init__(self, groups: dict[str, _Group], topics: dict[str, _Topic]) -> None:
        self._groups = groups
        self._topics = topics

    def groups(self) -> Iterator[tuple[str, list[tuple[str, dict[int, QueueOffset]]]]]:
        """Yield each group of which anything is kept, with its topics and their offsets by queue, all in order.

        The offsets themselves are in no order.
        """
        topics = self._topics
        for name, group in sorted(self._groups.items()):
            parts = [(topic, part.rows) for topic, part in group.parts.items() if topics.get(topic) is part.topic]
            if parts:
                yield name, sorted(parts, key=lambda named: named[0])


class KeptOffsets:
    """All offsets of one replica.

    Attributes:
        count: how many there are, void ones not counted.
    """

    def __init__(self) -> None:
        self.count = 0
        self._epoch = 0
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, _Group] = {}
        # Removed parts: those of a group; and those of a topic (its name and record) that groups may still hold.
        self._removed_parts: deque[list[_Part]] = deque()
        self._removed_topics: deque[tuple[str, _Topic]] = deque()

    def get(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """Return the stored offset of a queue."""
        kept = self._groups.get(group)
        part = None if kept is None else kept.parts.get(topic)
        return None if part is None or self._topics.get(topic) is not part.topic else part.rows.get(queue_id)

    def of_group(self, group: str) -> Iterator[QueueOffset]:
        """Yield all that is kept of a group, in no order."""
        kept = self._groups.get(group)
        if kept is not None:
            for topic, part in kept.parts.items():
                if self._topics.get(topic) is part.topic:
                    yield from part.rows.values()

    def put(self, group: str, row: QueueOffset) -> None:
        """Keep an offset in place of the one of its queue."""
        topic = self._topics.get(row.topic)
        if topic is None:
            topic = self._topics[row.topic] = _Topic()
        parts = self._own_group(group).parts
        part = parts.get(row.topic)
        if part is None or part.topic is not topic:
            part = parts[row.topic] = _Part(topic, self._epoch, {})
            topic.groups.add(group)
        elif part.epoch != self._epoch:
            part = parts[row.topic] = _Part(topic, self._epoch, dict(part.rows))
        if row.queue_id not in part.rows:
            topic.count += 1
            self.count += 1
        part.rows[row.queue_id] = row

    def _own_group(self, name: str) -> _Group:
        """Return a group that no frozen offsets share."""
        kept = self._groups.get(name)
        if kept is None or kept.epoch != self._epoch:
            kept = self._groups[name] = _Group(self._epoch, {} if kept is None else dict(kept.parts))
        return kept

    def remove_topic(self, name: str) -> None:
        """Remove all that is kept of a topic; this costs the same for any number of groups and offsets."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            self.count -= topic.count
            self._removed_topics.append((name, topic))

    def remove_group(self, name: str) -> None:
        """Remove all that is kept of a group; this costs a small step for each of its topics."""
        kept = self._groups.pop(name, None)
        if kept is None:
            return
        topics = self._topics
        for topic_name, part in kept.parts.items():
            topic = part.topic
            if topics.get(topic_name) is topic:
                topic.groups.discard(name)
                topic.count -= len(part.rows)
                self.count -= len(part.rows)
                if not topic.groups:
                    del topics[topic_name]
        # A list of its own: the map may be shared with frozen offsets.
        self._removed_parts.append(list(kept.parts.values()))

    def sweep(self, work_max: int) -> None:
        """Free memory of removed offsets.

        Args:
            work_max: offsets after which to stop. The last part is freed whole (at most one for each queue of
                a topic), and a group that frozen offsets share is copied first (a reference for each of its topics).
        """
        work = 0
        while work < work_max and (self._removed_parts or self._removed_topics):
            work += max(1, self._sweep_part() if self._removed_parts else self._sweep_topic())

    def _sweep_part(self) -> int:
        """Free one part of a removed group; return what it cost."""
        parts = self._removed_parts[0]
        if not parts:
            self._removed_parts.popleft()
            return 0
        return len(parts.pop().rows)

    def _sweep_topic(self) -> int:
        """Free the part of a removed topic that one group holds; return what it cost."""
        name, topic = self._removed_topics[0]
        if not topic.groups:
            self._removed_topics.popleft()
            return 0
        group = topic.groups.pop()
        kept = self._groups.get(group)
        part = None if kept is None else kept.parts.get(name)
        if kept is None or part is None or part.topic is not topic:
            # The group was removed in between, or has a part of the topic that was made again.
            return 0
        cost = len(part.rows) + (len(kept.parts) if kept.epoch != self._epoch else 0)
        parts = self._own_group(group).parts
        del parts[name]
        if not parts:
            del self._groups[group]
        return cost

    def freed_in_pieces(self) -> Iterator[None]:
        """Free the memory of all offsets, `FREED_PER_PIECE` or one part more at a time; none may be read any more.

        What frozen offsets share stays until these are gone, too.
        """
        while self._removed_parts or self._removed_topics:
            self.sweep(FREED_PER_PIECE)
            yield
        self._topics.clear()
        work = 0
        while self._groups:
            _, group = self._groups.popitem()
            # A list of its own: the map may be shared with frozen offsets.
            parts = list(group.parts.values())
            del group
            while parts:
                work += 1 + len(parts.pop().rows)
                if work >= FREED_PER_PIECE:
                    work = 0
                    yield

    def frozen(self) -> FrozenOffsets:
        """Return all offsets as they are now; this costs a reference for each group and topic."""
        self._epoch += 1
        return FrozenOffsets(dict(self._groups), dict(self._topics))
