"""Assigns queues to the consumers of a group. Pure, and the same for all members, whatever the order of their input.

For queues q0 … q6 and members a, b, c:

| strategy | a | b | c |
| --- | --- | --- | --- |
| average | q0 q1 q2 | q3 q4 | q5 q6 |
| circle | q0 q3 q6 | q1 q4 | q2 q5 |

Each queue is assigned to one member; with more members than queues the last ones get none. While the members' views of
the group differ, two of them may compute the same queue as theirs; queue locks and offsets handle that.

Source: RocketMQ `AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster.client.routing.queue_choice import BrokerQueue

AllocationName = Literal["average", "circle"]


def allocate_average(client_id: str, client_ids: Iterable[str], queues: Iterable[BrokerQueue]) -> list[BrokerQueue]:
    """Return a contiguous run of queues; if the division leaves a remainder, the first members get one more.

    The result is empty if `client_id` is not a member.
    """
    ordered, members = sorted(set(queues)), sorted(set(client_ids))
    if client_id not in members:
        return []
    place = members.index(client_id)
    share, rest = divmod(len(ordered), len(members))
    begin = place * share + min(place, rest)
    return ordered[begin : begin + share + (place < rest)]


def allocate_by_circle(client_id: str, client_ids: Iterable[str], queues: Iterable[BrokerQueue]) -> list[BrokerQueue]:
    """Assign the queues round robin. The result is empty if `client_id` is not a member."""
    ordered, members = sorted(set(queues)), sorted(set(client_ids))
    return ordered[members.index(client_id) :: len(members)] if client_id in members else []


ALLOCATIONS: Final[dict[AllocationName, Callable[[str, Iterable[str], Iterable[BrokerQueue]], list[BrokerQueue]]]] = {
    "average": allocate_average,
    "circle": allocate_by_circle,
}
