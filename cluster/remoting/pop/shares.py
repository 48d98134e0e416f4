"""The queues that one member of a group pulls, by RocketMQ's strategies. Pure.

Each member asks for its own share, so all must be computed from the same members and queues.

Source: RocketMQ `AllocateMessageQueueAveragely`, `AllocateMessageQueueAveragelyByCircle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def in_runs(queue_ids: Sequence[int], members: Sequence[str], member: str) -> Sequence[int]:
    """Return the share of a member: a run of queues; the first members have one more than the others."""
    index, count = members.index(member), len(members)
    size, longer = divmod(len(queue_ids), count)
    begin = index * size + min(index, longer)
    return queue_ids[begin : begin + size + (index < longer)]


def in_turns(queue_ids: Sequence[int], members: Sequence[str], member: str) -> Sequence[int]:
    """Return the share of a member: the members take the queues in turns."""
    return queue_ids[members.index(member) :: len(members)]
