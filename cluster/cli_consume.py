"""What `dledger consume` reads: where it begins in each queue, what comes, how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.broker_calls import BrokerCalls, records_in
from cluster.v1 import broker_pb2 as pb
from commitlog.message_filter import parse_bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.record import Record


class Consumption:
    """One reading of a topic by one consumer.

    Args:
        calls: to the broker.
        topic: it.
        group: whose offsets are gone by and kept; empty: nobody's.
        tags: which messages.
    """

    def __init__(self, calls: BrokerCalls, topic: str, group: str, tags: str) -> None:
        self._calls = calls
        self._topic = topic
        self._group = group
        self._tags = tags
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._reset_counts: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def begin(self, queues: Sequence[int], where: str) -> None:
        """Find where to begin in each queue.

        Args:
            queues: of the topic.
            where: `begin`, `end` or a time; goes for queues that the group has not consumed.

        Raises:
            ValueError: it is none of them.
            RequestFailed: the broker refuses.
        """
        request = pb.OffsetsRequest(topic=self._topic, queue_ids=queues)
        if where not in ("begin", "end"):
            bound = parse_bound(where)
            if not bound.is_time:
                raise ValueError(f"--from {where}: expected begin, end or a time such as 2026-11-21T09:00:00")
            request.timestamp_ms = bound.value
        found = self._calls.ask(lambda stub: stub.Offsets, request)
        begins = {"begin": found.min_offsets, "end": found.max_offsets}.get(where, found.offsets_by_time)
        self._offsets = dict(zip(found.queue_ids, begins, strict=True))
        self._ends = dict(zip(found.queue_ids, found.max_offsets, strict=True))
        if self._group:
            asked = pb.FetchOffsetRequest(group=self._group, topic=self._topic, queue_ids=queues)
            kept = self._calls.ask(lambda stub: stub.FetchOffset, asked)
            self._reset_counts = dict(zip(kept.queue_ids, kept.reset_counts, strict=True))
            self._kept = {
                queue: offset for queue, offset in zip(kept.queue_ids, kept.offsets, strict=True) if offset >= 0
            }
            self._offsets |= self._kept

    def messages(self, *, is_following: bool) -> Iterator[Record]:
        """Yield messages up to the ends as they were at the beginning; or without end.

        Raises:
            RequestFailed: the broker refuses, or is gone.
            ValueError: a queue has nothing where it should be read on.
        """
        waiting = {queue for queue, offset in self._offsets.items() if is_following or offset < self._ends[queue]}
        if not waiting:
            return
        queues = sorted(waiting)
        request = pb.SubscribeRequest(
            topic=self._topic,
            queue_ids=queues,
            offsets=[self._offsets[queue] for queue in queues],
            tags=self._tags,
            form=pb.MESSAGE_FORM_RECORDS,
            group=self._group,
        )
        for response in self._calls.subscribe(request):
            queue = response.queue_id
            if response.status not in (pb.GET_STATUS_FOUND, pb.GET_STATUS_NO_MATCHED_MESSAGE):
                raise ValueError(
                    f"queue {queue}: nothing is at offset {self._offsets[queue]}; it holds {response.min_offset} to "
                    f"{response.max_offset}. `dledger group reset` sets where a group goes on"
                )
            for record in records_in(response.records):
                if is_following or record.queue_offset < self._ends[queue]:
                    yield record
            self._offsets[queue] = max(self._offsets[queue], response.next_offset)
            if response.next_offset >= self._ends[queue] and not is_following:
                waiting.discard(queue)
                if not waiting:
                    return

    def done(self, record: Record) -> None:
        """Note that a message was dealt with."""
        self._offsets[record.queue_id] = record.queue_offset + 1

    def commit(self) -> None:
        """Keep how far the group has come, if there is one.

        Raises:
            RequestFailed: the broker refuses.
        """
        ahead = {queue: offset for queue, offset in self._offsets.items() if offset > self._kept.get(queue, -1)}
        if not self._group or not ahead:
            return
        request = pb.CommitOffsetRequest(
            group=self._group,
            topic=self._topic,
            queue_ids=list(ahead),
            offsets=list(ahead.values()),
            reset_counts=[self._reset_counts.get(queue, 0) for queue in ahead],
        )
        self._calls.ask(lambda stub: stub.CommitOffset, request)
        self._kept |= ahead
