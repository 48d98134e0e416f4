"""Offsets on their way to the leader: they outlive the connections by which they came, and reads wait for them.

A consumer commits without an answer, also when it ends: its last commits, its farewell and the end of its connection
come within a millisecond, and the consumer that gets its queues asks at once where to begin. The answer of the leader
to that question must not overtake the commits. So a commit is stored even if its connection has ended, the farewell
(35 UNREGISTER_CLIENT) is answered after the commits, and so are questions for offsets at the same node.

Source: RocketMQ `DefaultMQPushConsumerImpl.shutdown`, `ConsumerManageProcessor`, whose commits are stored when the next
request of any connection is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cluster.process.tasks import end_tasks
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from cluster.fronts.leader_link import LeaderLink

# Offsets on their way; above it they are dropped, because the clients repeat them.
PENDING_MAX: Final = 1_000
# For which a read waits; clients wait 3 to 5 s for its answer. After that it has what the leader has.
SETTLE_S: Final = 1.0
_LIMIT_S: Final = 2.5


class PendingCommits:
    """The commits of one node that have no answer.

    Args:
        link: to the leader.
    """

    def __init__(self, link: LeaderLink) -> None:
        self._link = link
        # Each with its group, topic and queue.
        self._pending: dict[asyncio.Task[None], tuple[str, str, int]] = {}

    async def store(self, group: str, topic: str, queue_id: int, offset: int, reset_count: int) -> None:
        """Store an offset; it is dropped if too many are on their way, or the leader refuses it.

        Args:
            group: of consumers.
            topic: of the queue.
            queue_id: of the queue.
            offset: from 0.
            reset_count: of the offset that the client knows; the leader drops an offset of before a reset.
        """
        if len(self._pending) >= PENDING_MAX:
            return
        committed = pb.CommitOffsetRequest(
            group=group, topic=topic, queue_ids=[queue_id], offsets=[offset], reset_counts=[reset_count]
        )
        task = asyncio.create_task(self._commit(committed))
        self._pending[task] = (group, topic, queue_id)
        task.add_done_callback(lambda done: self._pending.pop(done, None))
        # The end of the connection cancels its requests, but not this.
        await asyncio.shield(task)

    async def settle(self, group: str, topic: str = "", queue_id: int | None = None) -> None:
        """Wait until the commits of a group that came before are stored or dropped, at most `SETTLE_S`.

        Args:
            group: of consumers.
            topic: only those of this topic; empty: of all.
            queue_id: only those of this queue of the topic; None: of all.
        """
        pending = [
            task
            for task, (of_group, of_topic, of_queue) in self._pending.items()
            if of_group == group and topic in ("", of_topic) and queue_id in (None, of_queue)
        ]
        if pending:
            await asyncio.wait(pending, timeout=SETTLE_S)

    async def stop(self) -> None:
        """Give up the commits that are left; called after the port was closed."""
        await end_tasks(list(self._pending))

    async def _commit(self, request: pb.CommitOffsetRequest) -> None:
        try:
            await self._link.call(lambda stub: stub.CommitOffset, request, _LIMIT_S)
        except RequestFailed:
            # The client repeats it each 5 s.
            return
