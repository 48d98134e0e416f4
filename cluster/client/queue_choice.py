"""Which queue the next message goes to: in turn, or by its key. Pure.

In turn, brokers that are slow or have just failed are passed by while others are left; with nobody better left they are
taken all the same. By key nothing is passed by: messages of one key stay in one queue, and in order, as long as the
number of queues stays.

Source: RocketMQ `MQFaultStrategy.selectOneMessageQueue`, `TopicPublishInfo`, `SelectMessageQueueByHash`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from cluster.client.message_queue import MessageQueue
from store.java_hash import java_hash, positive_hash

_TOPICS_MAX: Final = 10_000
_START_END: Final = 1 << 16


class RoundRobin:
    """Gives out queues in turn, topic by topic, from a random one on.

    Args:
        start: draws where each topic begins, so that producers do not all begin with the same queue.
    """

    def __init__(self, start: random.Random | None = None) -> None:
        self._start = start or random.Random()
        self._next: dict[str, int] = {}

    def choose(
        self,
        queues: Sequence[MessageQueue],
        is_available: Callable[[str], bool] = lambda _: True,
        last_broker: str = "",
    ) -> MessageQueue:
        """Return the next queue.

        Args:
            queues: of one topic, at least one.
            is_available: whether a broker is neither slow nor has just failed.
            last_broker: where the same message has just failed; empty for a first attempt.
        """
        topic = queues[0].topic
        if topic not in self._next and len(self._next) >= _TOPICS_MAX:
            self._next.clear()
        turn = self._next.get(topic, -1)
        if turn < 0:
            turn = self._start.randrange(_START_END)
        best, best_rank = turn % len(queues), -1
        for step in range(len(queues)):
            at = (turn + step) % len(queues)
            broker = queues[at].broker
            # Another broker than the one that failed counts less than one that is known to be well.
            rank = 2 * is_available(broker) + (broker != last_broker)
            if rank > best_rank:
                best, best_rank = at, rank
            if rank == 2 + 1:
                break
        # Behind the one that is taken: so those behind a bad broker's queues do not get its share.
        self._next[topic] = best + 1
        return queues[best]


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of a key: the same for as long as `queues` are the same."""
    return queues[positive_hash(java_hash(key)) % len(queues)]
