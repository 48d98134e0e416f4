"""The producers that can be asked about their transactions: each has an open stream to the leader. Pure.

Source: RocketMQ `ProducerManager`, whose producers are asked one after the other, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.transactions import name_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Container

PRODUCERS_MAX: Final = 10_000
# Questions that wait in one stream.
QUESTIONS_MAX: Final = 1_000


# Compared by identity.
@dataclass(slots=True, eq=False)
class AskedProducer:
    """A producer with a stream.

    Attributes:
        group: its producer group.
        topics: it is asked about transactions of these topics.
        on_question: called when there is a question, or the stream must end.
        questions: half messages that it is asked about, by their offsets in their queue; it takes them.
    """

    group: str
    topics: Container[str]
    on_question: Callable[[], None]
    questions: deque[int] = field(default_factory=deque)

    def ask(self, half: int) -> None:
        """Ask about a transaction."""
        self.questions.append(half)
        self.on_question()


class AskedProducers:
    """The producers with a stream to this node.

    Args:
        on_joined: called when a producer was added.
    """

    def __init__(self, on_joined: Callable[[], None]) -> None:
        self._on_joined = on_joined
        # By the hash of the group, which is what the state has; the one to be asked next is the first.
        self._groups: dict[int, deque[AskedProducer]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of producers."""
        return self._count

    def join(self, producer: AskedProducer) -> None:
        """Add a producer.

        Raises:
            RequestFailed: TOO_MANY_WAITERS.
        """
        if self._count >= PRODUCERS_MAX:
            raise RequestFailed(Reason.TOO_MANY_WAITERS, f"this broker has {self._count} producers with streams")
        self._groups.setdefault(name_hash(producer.group), deque()).append(producer)
        self._count += 1
        self._on_joined()

    def leave(self, producer: AskedProducer) -> None:
        """Remove a producer."""
        key = name_hash(producer.group)
        self._groups[key].remove(producer)
        self._count -= 1
        if not self._groups[key]:
            del self._groups[key]

    def has_group(self, group_hash: int) -> bool:
        """Return whether there may be a producer of the group."""
        return group_hash in self._groups

    def next_of(self, group: str, topic: str) -> AskedProducer | None:
        """Return the producer to ask, in turn; None: none of the group has space for a question about this topic."""
        group_hash = name_hash(group)
        producers = self._groups.get(group_hash, ())
        for producer in producers:
            is_of_group = producer.group == group and topic in producer.topics
            if is_of_group and len(producer.questions) < QUESTIONS_MAX:
                self._groups[group_hash].remove(producer)
                self._groups[group_hash].append(producer)
                return producer
        return None
