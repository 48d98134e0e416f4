"""Which queues each consumer of a group gets. Pure, and the same for all members, in whatever order they are.

For queues q0 … q6 and members a, b, c:

| strategy | a | b | c |
| --- | --- | --- | --- |
| average | q0 q1 q2 | q3 q4 | q5 q6 |
| by circle | q0 q3 q6 | q1 q4 | q2 q5 |

Each queue goes to one member; with more members than queues the last ones get none. While members do not agree yet on
who they are, two may hold one queue for a moment: offsets and queue locks are there for that.

Source: RocketMQ `AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.client.message_queue import MessageQueue

Strategy = Callable[[Iterable[MessageQueue], Iterable[str], str], tuple[MessageQueue, ...]]


def allocate_average(queues: Iterable[MessageQueue], members: Iterable[str], member: str) -> tuple[MessageQueue, ...]:
    """Return the queues of `member`: runs of neighbours, the first members get one more when they do not divide evenly.

    Nothing for one that is none of the members.
    """
    ordered, ids = sorted(set(queues)), sorted(set(members))
    if member not in ids:
        return ()
    number = ids.index(member)
    share, rest = divmod(len(ordered), len(ids))
    begin = number * share + min(number, rest)
    return tuple(ordered[begin : begin + share + (number < rest)])


def allocate_by_circle(queues: Iterable[MessageQueue], members: Iterable[str], member: str) -> tuple[MessageQueue, ...]:
    """Return the queues of `member`: dealt out like cards. Nothing for one that is none of the members."""
    ordered, ids = sorted(set(queues)), sorted(set(members))
    return tuple(ordered[ids.index(member) :: len(ids)]) if member in ids else ()


STRATEGIES: dict[str, Strategy] = {"average": allocate_average, "by-circle": allocate_by_circle}
