"""The committed offsets of consumer groups, by group, topic and queue, with cheap bulk removal.

The offsets of one group in one topic are a part. A part refers to a record of its topic; the deletion of a topic
removes its record from the map of topics, which makes all of its parts void in constant time. The deletion of a group
costs one small step for each of its topics. `sweep` frees the memory of removed offsets in small portions.

`frozen` copies no offset: its result shares all parts, and a part or group is copied before its next change.
The progress of `sweep` is not observable: replicas with the same offsets may have different void parts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.commands import QueueOffset

OFFSETS_MAX: Final = 2_000_000
# Offsets that are freed in one step of `freed_in_pieces`: some milliseconds.
FREED_PER_PIECE: Final = 10_000


# Compared by identity: a recreated topic has another record.
@dataclass(slots=True, eq=False)
class _Topic:
    """A topic with offsets: their number, and the groups that have them."""

    count: int = 0
    groups: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Part:
    """Offsets of one group in one topic, by queue; `epoch`: the freeze count at its creation."""

    topic: _Topic
    epoch: int
    rows: dict[int, QueueOffset]


@dataclass(slots=True, eq=False)
class _Group:
    """Parts of one group by topic; `epoch`: the freeze count at its creation."""

    epoch: int
    parts: dict[str, _Part]


class FrozenOffsets:
    """All offsets at one moment; may be read in any thread."""

    __slots__ = ("_groups", "_topics")

    def __init__(self, groups: dict[str, _Group], topics: dict[str, _Topic]) -> None:
        self._groups = groups
        self._topics = topics

    def groups(self) -> Iterator[tuple[str, list[tuple[str, dict[int, QueueOffset]]]]]:
        """Yield each group with offsets, with its topics and their offsets by queue; groups and topics are ordered.

        The offsets of a topic are unordered.
        """
        topics = self._topics
        for name, group in sorted(self._groups.items()):
            parts = [(topic, part.rows) for topic, part in group.parts.items() if topics.get(topic) is part.topic]
            if parts:
                yield name, sorted(parts, key=lambda named: named[0])


class CommittedOffsets:
    """All offsets of one replica.

    Attributes:
        count: number of offsets, without void ones.
    """

    def __init__(self) -> None:
        self.count = 0
        self._epoch = 0
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, _Group] = {}
        # Removed parts of groups; and removed topics (name and record) whose parts groups may still have.
        self._removed_parts: deque[list[_Part]] = deque()
        self._removed_topics: deque[tuple[str, _Topic]] = deque()

    def get(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """Return the stored offset of a queue."""
        kept = self._groups.get(group)
        part = None if kept is None else kept.parts.get(topic)
        return None if part is None or self._topics.get(topic) is not part.topic else part.rows.get(queue_id)

    def of_group(self, group: str) -> Iterator[QueueOffset]:
        """Yield all offsets of a group, unordered."""
        kept = self._groups.get(group)
        if kept is not None:
            for topic, part in kept.parts.items():
                if self._topics.get(topic) is part.topic:
                    yield from part.rows.values()

    def put(self, group: str, row: QueueOffset) -> None:
        """Store an offset, replacing the previous one of its queue."""
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
        """Return a group that is not shared with frozen offsets, by copying it if necessary."""
        kept = self._groups.get(name)
        if kept is None or kept.epoch != self._epoch:
            kept = self._groups[name] = _Group(self._epoch, {} if kept is None else dict(kept.parts))
        return kept

    def remove_topic(self, name: str) -> None:
        """Remove all offsets of a topic, in constant time."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            self.count -= topic.count
            self._removed_topics.append((name, topic))

    def remove_group(self, name: str) -> None:
        """Remove all offsets of a group, in one small step for each of its topics."""
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
        # Copied, because the map may be shared with frozen offsets.
        self._removed_parts.append(list(kept.parts.values()))

    def sweep(self, work_max: int) -> None:
        """Free memory of removed offsets.

        Args:
            work_max: offsets after which to stop. The last part is freed completely (at most one offset for each queue
                of a topic), and a group that is shared with frozen offsets is copied first (a reference for each
                topic).
        """
        work = 0
        while work < work_max and (self._removed_parts or self._removed_topics):
            work += max(1, self._sweep_part() if self._removed_parts else self._sweep_topic())

    def _sweep_part(self) -> int:
        """Free one part of a removed group; return the number of its offsets."""
        parts = self._removed_parts[0]
        if not parts:
            self._removed_parts.popleft()
            return 0
        return len(parts.pop().rows)

    def _sweep_topic(self) -> int:
        """Free the part of a removed topic in one group; return the number of its offsets."""
        name, topic = self._removed_topics[0]
        if not topic.groups:
            self._removed_topics.popleft()
            return 0
        group = topic.groups.pop()
        kept = self._groups.get(group)
        part = None if kept is None else kept.parts.get(name)
        if kept is None or part is None or part.topic is not topic:
            # The group was removed meanwhile, or has a part of the recreated topic.
            return 0
        cost = len(part.rows) + (len(kept.parts) if kept.epoch != self._epoch else 0)
        parts = self._own_group(group).parts
        del parts[name]
        if not parts:
            del self._groups[group]
        return cost

    def freed_in_pieces(self) -> Iterator[None]:
        """Free the memory of all offsets, which must no longer be used, in steps of `FREED_PER_PIECE` plus one part.

        Parts shared with frozen offsets are freed only with those.
        """
        while self._removed_parts or self._removed_topics:
            self.sweep(FREED_PER_PIECE)
            yield
        self._topics.clear()
        work = 0
        while self._groups:
            _, group = self._groups.popitem()
            # Copied, because the map may be shared with frozen offsets.
            parts = list(group.parts.values())
            del group
            while parts:
                work += 1 + len(parts.pop().rows)
                if work >= FREED_PER_PIECE:
                    work = 0
                    yield

    def frozen(self) -> FrozenOffsets:
        """Return all current offsets; this copies one reference for each group and topic."""
        self._epoch += 1
        return FrozenOffsets(dict(self._groups), dict(self._topics))
