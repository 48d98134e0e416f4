"""Reads the dead letters of a group at one broker, and puts them to their topics again.

A dead letter is put as a new message: with its body, flag, tags and keys, without redeliveries and without the
properties about its retries. Its UNIQ_KEY is the message id of the dead letter, so the broker recognises it in its
dedupe window if it is put twice; the old UNIQ_KEY is kept as `DLQ_ORIGIN_UNIQ_KEY`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.client.broker_calls import records_in
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.skipped import skipped_of
from cluster.v1 import broker_pb2 as pb
from commitlog.record.effects import EFFECT_NAME
from commitlog.record.properties import encode_properties
from store.model.message import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    UNIQUE_KEY,
)
from store.model.sys_flag import COMPRESSED, COMPRESSION_MASK
from store.model.topics import DLQ_PREFIX, REAL_QUEUE_ID, REAL_TOPIC, TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from cluster.client.broker_calls import BrokerCalls
    from cluster.protocol.skipped_messages import SkippedMessages
    from commitlog.record.record import Record

_PAGE_MESSAGES: Final = 256
_ORIGIN_UNIQUE_KEY: Final = "DLQ_ORIGIN_UNIQ_KEY"
_OF_RETRIES: Final = frozenset(
    {
        *(RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, UNIQUE_KEY, EFFECT_NAME),
        *(DELAY, REAL_TOPIC, REAL_QUEUE_ID, "TRAN_MSG", "POP_CK", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
    }
)
_NOT_PUT: Final = (Reason.UNKNOWN_TOPIC, Reason.TOPIC_NOT_WRITABLE, Reason.ILLEGAL_MESSAGE)


class Queue(NamedTuple):
    """One queue of dead letters.

    Attributes:
        queue_id: its number.
        begin: offset of the first one that is retained.
        end: the offset after the last one.
        replayed: those before this offset were put again by `dledger dlq replay --all`.
    """

    queue_id: int
    begin: int
    end: int
    replayed: int


class DeadLetters:
    """The dead letters of a group at one broker.

    Args:
        calls: of the broker.
        group: that could not process them.

    Attributes:
        broker: name of the broker, for reports of unreadable ones.
        on_skipped: called with those that cannot be read.
    """

    def __init__(
        self, calls: BrokerCalls, group: str, on_skipped: Callable[[SkippedMessages], None], broker: str = ""
    ) -> None:
        self.broker = broker
        self.on_skipped = on_skipped
        self._calls = calls
        self._group = group
        self._topic = DLQ_PREFIX + group

    def queues(self) -> list[Queue]:
        """Return the queues; none if the group never had a dead letter.

        Raises:
            RequestFailed: see its message.
        """
        try:
            found = self._calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=self._topic))
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC:
                return []
            raise
        fetch = pb.FetchOffsetRequest(group=self._group, topic=self._topic, queue_ids=found.queue_ids)
        kept = self._calls.ask(lambda stub: stub.FetchOffset, fetch)
        rows = zip(found.queue_ids, found.min_offsets, found.max_offsets, kept.offsets, strict=True)
        return [Queue(*row) for row in rows]

    def pages(self, queue: Queue, begin: int, count: int | None = None) -> Iterator[tuple[list[Record], int]]:
        """Yield records from `begin` to the end of a queue, at most `count`, each time with the offset to continue at.

        Raises:
            RequestFailed: see its message.
        """
        offset, left = max(begin, queue.begin), count
        while offset < queue.end and left != 0:
            request = pb.GetRequest(
                topic=self._topic,
                queue_id=queue.queue_id,
                offset=offset,
                max_messages=_PAGE_MESSAGES if left is None else min(left, _PAGE_MESSAGES),
                form=pb.MESSAGE_FORM_RECORDS,
            )
            answer = self._calls.ask(lambda stub: stub.Get, request)
            for each in skipped_of(answer.skipped, self._topic, self.broker):
                self.on_skipped(each)
            records = [each for each in records_in(answer.records) if each.queue_offset < queue.end]
            if answer.next_offset <= offset:
                return
            offset = answer.next_offset
            left = None if left is None else left - len(records)
            yield records, offset

    def commit(self, queue: Queue, offset: int) -> None:
        """Note that all dead letters before an offset were put again.

        Raises:
            RequestFailed: see its message.
        """
        # The count of resets, as a consumer that begins has it.
        fetch = pb.FetchOffsetRequest(group=self._group, topic=self._topic, queue_ids=[queue.queue_id])
        kept = self._calls.ask(lambda stub: stub.FetchOffset, fetch)
        request = pb.CommitOffsetRequest(
            group=self._group,
            topic=self._topic,
            queue_ids=[queue.queue_id],
            offsets=[min(offset, queue.end)],
            reset_counts=kept.reset_counts,
        )
        self._calls.ask(lambda stub: stub.CommitOffset, request)


def origin_of(record: Record) -> tuple[str, str]:
    """Return topic and message id with which a dead letter was sent; empty if it does not have them."""
    properties = record.properties
    topic = properties.get(RETRY_TOPIC) or properties.get(DLQ_ORIGIN_TOPIC, "")
    return topic, properties.get(ORIGIN_MESSAGE_ID) or properties.get(DLQ_ORIGIN_MESSAGE_ID, "")


def has_id(record: Record, ids: Collection[str]) -> bool:
    """Return whether a dead letter has one of these ids: its own message id, the original one, or its UNIQ_KEY."""
    return not {record.message_id, origin_of(record)[1], record.properties.get(UNIQUE_KEY, "")}.isdisjoint(ids)


@dataclass(slots=True)
class Replay:
    """Puts dead letters to their topics again, at the broker that has them.

    Attributes:
        calls: of the broker.
        put_count: those that were put.
        repeated_count: those among them that the broker recognised: an earlier replay had put them.
        failed: those that were not put, by topic and reason.
    """

    calls: BrokerCalls
    put_count: int = 0
    repeated_count: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    _write_queues: dict[str, int] = field(default_factory=dict)

    def put(self, records: Sequence[Record]) -> None:
        """Put records, those of one topic together; count those whose topic does not accept them.

        Raises:
            RequestFailed: see its message; it is safe to repeat all.
        """
        by_topic: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            by_topic[origin_of(record)[0]].append(record)
        for topic, together in by_topic.items():
            try:
                self._put_to(topic, together)
            except RequestFailed as failure:
                if failure.reason not in _NOT_PUT:
                    raise
                self.failed[f"{topic or 'a dead letter without RETRY_TOPIC'}: {failure.message}"] += len(together)

    def _put_to(self, topic: str, records: Sequence[Record]) -> None:
        if topic not in self._write_queues:
            found = self.calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=topic)).topics
            self._write_queues[topic] = found[0].write_queues if topic and found else 1
        queues = max(self._write_queues[topic], 1)
        request = pb.PutRequest(
            topic=topic,
            queue_ids=[record.queue_offset % queues for record in records],
            bodies=[record.body for record in records],
            properties=[_properties_of(record) for record in records],
            flags=[record.flag for record in records],
            sys_flags=[record.sys_flag & (COMPRESSED | COMPRESSION_MASK) for record in records],
            born_timestamps=[record.born_timestamp for record in records],
        )
        answer = self.calls.ask(lambda stub: stub.Put, request)
        self.put_count += len(records)
        self.repeated_count += answer.repeated_count


def _properties_of(record: Record) -> bytes:
    properties = record.properties
    kept = {
        name: value
        for name, value in properties.items()
        if name not in _OF_RETRIES and not name.startswith(TIMER_PREFIX)
    }
    unique_key = properties.get(UNIQUE_KEY)
    if unique_key and _ORIGIN_UNIQUE_KEY not in kept:
        kept[_ORIGIN_UNIQUE_KEY] = unique_key
    return encode_properties({**kept, UNIQUE_KEY: record.message_id})
