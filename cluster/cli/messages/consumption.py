"""Reads of `dledger consume` from one broker: start offsets, messages, committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cluster.client.broker_calls import BrokerCalls, records_in
from cluster.protocol.wire.filters import filter_fields
from cluster.protocol.wire.skipped import skipped_of
from cluster.v1 import broker_pb2 as pb
from commitlog.offline.message_filter import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.protocol.skipped_messages import SkippedMessages
    from commitlog.record.record import Record

_CONTINUES = (pb.GET_STATUS_FOUND, pb.GET_STATUS_NO_MATCHED_MESSAGE, pb.GET_STATUS_MESSAGE_WAS_REMOVING)


class Step(NamedTuple):
    """One step in one queue.

    Attributes:
        consumption: the reader that returned it.
        queue_id: the queue.
        next_offset: the offset after the messages of this step.
        record: the message; None if only skipped messages are reported.
        skipped: unreadable messages before it.
    """

    consumption: Consumption
    queue_id: int
    next_offset: int
    record: Record | None = None
    skipped: Sequence[SkippedMessages] = ()


class Consumption:
    """Reads a topic of one broker for one consumer.

    `steps` and `done` may be called in different threads.

    Args:
        calls: client of the broker.
        broker: name of the broker for messages; may be empty.
        topic: the topic.
        group: the group whose offsets are used and committed; empty: none.
        tags: tags expression, or an `Sql92`.
    """

    def __init__(self, calls: BrokerCalls, broker: str, topic: str, group: str, tags: str) -> None:
        self._calls = calls
        self._broker = broker
        self._topic = topic
        self._group = group
        self._tags = tags
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._reset_counts: dict[int, int] = {}
        self._kept: dict[int, int] = {}

    def begin(self, queues: Sequence[int], where: str) -> None:
        """Determine the start offset of each queue.

        Args:
            queues: queue ids.
            where: `begin`, `end` or a time; used for queues without an offset of the group.

        Raises:
            ValueError: `where` is invalid.
            RequestFailed: the broker refuses.
        """
        request = pb.OffsetsRequest(topic=self._topic, queue_ids=queues)
        if where not in ("begin", "end"):
            try:
                request.timestamp_ms = parse_time(where)
            except ValueError as error:
                raise ValueError(f"--from {where}: expected begin, end or a time; {error}") from None
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

    def seek(self, queue_id: int, offset: int) -> None:
        """Begin at an offset of a queue, whatever the group's offset.

        Raises:
            ValueError: the queue ends before it.
        """
        end = self._ends[queue_id]
        if offset > end:
            raise ValueError(f"--offset {offset}: expected at most {end}, the end of queue {queue_id} of {self._topic}")
        self._offsets[queue_id] = offset

    def steps(self, *, is_following: bool) -> Iterator[Step]:
        """Yield messages up to the ends of the queues at the start of the call, or endlessly.

        Raises:
            RequestFailed: the broker refuses, or is unreachable.
            ValueError: a queue has no message at the offset to read.
        """
        offsets = {queue: each for queue, each in self._offsets.items() if is_following or each < self._ends[queue]}
        if not offsets:
            return
        queues = sorted(offsets)
        request = pb.SubscribeRequest(
            topic=self._topic,
            queue_ids=queues,
            offsets=[offsets[queue] for queue in queues],
            **filter_fields(self._tags),
            form=pb.MESSAGE_FORM_RECORDS,
            group=self._group,
        )
        for response in self._calls.subscribe(request):
            queue = response.queue_id
            if queue not in offsets:
                continue
            if response.status not in _CONTINUES:
                raise ValueError(
                    f"queue {queue}: there is no message at offset {offsets[queue]}; it has {response.min_offset} to "
                    f"{response.max_offset}. `dledger group reset` sets the offsets of a group"
                )
            end = response.next_offset if is_following else min(response.next_offset, self._ends[queue])
            skipped = [each for each in skipped_of(response.skipped, self._topic, self._broker) if each.begin < end]
            if skipped:
                yield Step(self, queue, offsets[queue], skipped=skipped)
            for record in records_in(response.records):
                if record.queue_offset < end:
                    yield Step(self, queue, record.queue_offset + 1, record)
            if end > offsets[queue]:
                offsets[queue] = end
                yield Step(self, queue, end)
            if not is_following and end >= self._ends[queue]:
                del offsets[queue]
                if not offsets:
                    return

    def done(self, step: Step) -> None:
        """Record that a step was processed."""
        self._offsets[step.queue_id] = max(self._offsets[step.queue_id], step.next_offset)

    def commit(self) -> None:
        """Commit the group's offsets, if there is a group.

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
