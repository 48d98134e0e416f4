"""DescribeLog, PlanLog and ReadLog: the log in large chunks, for readers of many queues at once.

Answers to invalid or unavailable input (`cluster.protocol.errors` has the codes; a read changes nothing):

| request                                          | answer                                     |
| ------------------------------------------------ | ------------------------------------------ |
| a topic that does not exist, or is not readable  | DescribeLog omits it; otherwise as for Get |
| lists of different lengths, negative numbers     | ILLEGAL_REQUEST                            |
| more than 65,536 queues, or the same queue twice | ILLEGAL_REQUEST                            |
| a deleted range of the log or of a queue         | PlanLog cuts it; ReadLog: NO_MESSAGE       |
| a range that this node does not have yet         | SERVICE_NOT_AVAILABLE                      |
| messages that are deleted during the call        | SERVICE_NOT_AVAILABLE                      |
| user or address has its share of all streams     | OVERLOADED                                 |

A stream has one chunk in memory at a time, and yields to other calls between two chunks. Work on many queues yields
every few milliseconds, so that a leader can send its heartbeats; if retention deletes a file in between, the stream
ends.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.api.answers import read_mode_of, refusal
from cluster.api.message_columns import check_lengths
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError, Overloaded
from dledger.service.call_gate import holder
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes
from store.errors import CorruptData, IllegalRequest, StoreError
from store.model.message import QueueKey
from store.model.topics import is_system_topic
from store.queues.merge_by_offset import UnitRange, Units, clamp, first_in_log, split_points, window_of
from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from cluster.broker.core import BrokerCore
    from store.model.dispatch_batch import Int32s, Int64s
    from store.queues.consume_queue import ConsumeQueue
    from store.steps import Steps

QUEUES_MAX: Final = 1 << 16
STREAMS_MAX: Final = 128
CHUNK_BYTES_MIN: Final = 64 << 10
CHUNK_BYTES_MAX: Final = 1 << 20
_CHUNK_BYTES_DEFAULT: Final = 512 << 10
_UNITS_MAX: Final = 4096
# Numbers that are added to a response in one step.
_NUMBERS_PER_STEP: Final = 4096


class _TopicSpans(NamedTuple):
    """Queues of a topic, and the start and end of messages in each: columns, because many objects are slow to free."""

    topic: str
    queue_ids: list[int]
    begins: list[int]
    ends: list[int]

    def add(self, queue_id: int, begin: int, end: int) -> None:
        self.queue_ids.append(queue_id)
        self.begins.append(begin)
        self.ends.append(end)


class LogCalls:
    """The calls that read the log in large chunks."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._streams = FairShares(STREAMS_MAX)
        self._retries = RetryTimes(time.monotonic)

    # -------------------------------------------------------------------------------------------------- planning

    async def describe(self, request: pb.DescribeLogRequest) -> pb.DescribeLogResponse:
        """Return the readable ranges.

        Raises:
            StoreError, DLedgerError: see the module's table.
        """
        await self._core.confirm(read_mode_of(request.mode))
        log = self._core.replica.store.log
        readable = await run_cooperatively(self._readable())
        asked = set(request.topics)
        wanted = [name for name in readable if name in asked] if asked else readable
        spans = await run_cooperatively(self._spans(wanted))
        by_time = await run_cooperatively(self._by_time(spans, request.timestamp_ms)) if request.timestamp_ms else ()
        response = pb.DescribeLogResponse(topics=readable, begin_offset=log.begin_offset, end_offset=log.end_offset)
        await run_cooperatively(_add_spans(response.spans, spans))
        await run_cooperatively(_add_spans(response.by_time, by_time))
        return response

    async def plan(self, request: pb.PlanLogRequest) -> pb.PlanLogResponse:
        """Return the next ranges to read, and their positions in the log.

        Raises:
            StoreError, DLedgerError: see the module's table.
        """
        if min(request.max_messages, request.max_bytes, request.split_bytes) < 0:
            raise IllegalRequest("max_messages, max_bytes, split_bytes", "at least 0", "less")
        wanted = await run_cooperatively(_from_wire(request.spans))
        await self._core.confirm(read_mode_of(request.mode))
        for topic in {key.topic for key in wanted}:
            self._core.readable_topic(topic)
        ranges, filled = await run_cooperatively(self._ranges(wanted))
        ends = await run_cooperatively(first_in_log(filled, request.max_messages or None, request.max_bytes or None))
        taken = clamp(filled, ends)
        window = await run_cooperatively(window_of(taken))
        splits = []
        for offset in split_points(taken, window, request.split_bytes) if request.split_bytes else ():
            splits.append(self._front_of(offset))
            # A long log has many files: yield to other calls.
            await asyncio.sleep(0)
        response = pb.PlanLogResponse(
            begin_offset=self._front_of(window.begin) if taken else 0,
            end_offset=window.end,
            split_offsets=splits,
            messages=window.messages,
            size_bytes=window.size_bytes,
        )
        planned = await run_cooperatively(_planned(ranges, ends))
        await run_cooperatively(_add_spans(response.spans, planned))
        return response

    def _readable(self) -> Steps[list[str]]:
        """Return the readable topics, in order; topics that are created meanwhile may be missing."""
        topics, found = self._core.replica.state.topics, []
        for name in list(topics):
            yield
            topic = topics.get(name)
            if topic is not None and topic.is_readable and not is_system_topic(name):
                found.append(name)
        return sorted(found)

    def _spans(self, names: Iterable[str]) -> Steps[list[_TopicSpans]]:
        """Return all messages of topics; of a topic that was deleted meanwhile, none."""
        store, topics, found = self._core.replica.store, self._core.replica.state.topics, []
        for name in names:
            topic, spans = topics.get(name), _TopicSpans(name, [], [], [])
            for queue_id in range(0 if topic is None else max(topic.read_queues, topic.write_queues)):
                yield
                spans.add(queue_id, store.min_offset(name, queue_id), store.max_offset(name, queue_id))
            if spans.queue_ids:
                found.append(spans)
        return found

    def _ranges(self, wanted: Mapping[QueueKey, tuple[int, int]]) -> Steps[tuple[list[UnitRange], list[UnitRange]]]:
        """Return the requested ranges without deleted messages; and those of them that are not empty."""
        store, found, filled = self._core.replica.store, [], []
        for key, (begin, end) in wanted.items():
            yield
            least, most = store.min_offset(*key), store.max_offset(*key)
            each = UnitRange(key, max(begin, least), max(min(end, most), begin, least), self._units(key))
            found.append(each)
            if each.end > each.begin:
                filled.append(each)
        return found, filled

    def _by_time(self, spans: Iterable[_TopicSpans], timestamp_ms: int) -> Steps[list[_TopicSpans]]:
        """Return the spans cut to messages from a time on."""
        store, found = self._core.replica.store, []
        for each in spans:
            begins = each.begins
            if timestamp_ms >= 0:
                begins = []
                for queue_id in each.queue_ids:
                    yield
                    begins.append(store.offset_by_time(each.topic, queue_id, timestamp_ms))
            found.append(each._replace(begins=begins))
        return found

    def _front_of(self, offset: int) -> int:
        """Return the log offset at which a message begins: that of its record, or of its entry's header."""
        found = self._core.replica.store.log.raw(offset, offset + 1, 1)
        return offset if found is None else offset - found.header_size

    def _units(self, key: QueueKey) -> Units:
        def units(begin: int, end: int) -> tuple[Int64s, Int32s]:
            found = self._queue(key).units(begin, end - begin)
            if len(found.sizes) < end - begin:
                text = f"messages of {key.topic}/{key.queue_id} were deleted during the call; retry"
                raise RequestFailed(Reason.SERVICE_NOT_AVAILABLE, text)
            return found.physical_offsets, found.sizes

        return units

    def _queue(self, key: QueueKey) -> ConsumeQueue:
        queue = self._core.replica.store.derived.queues.get(key)
        if queue is None:
            raise _not_yet(f"queue {key.queue_id} of topic {key.topic!r}", 0)
        return queue

    # --------------------------------------------------------------------------------------------------- reading

    async def read(self, request: pb.ReadLogRequest) -> AsyncIterator[pb.ReadLogResponse]:
        """Stream a range of the log in chunks; if the stream ends early, the last response has the reason."""
        core, name = self._core, holder()
        if not self._streams.take(name, 1):
            error = Overloaded(name, f"the {STREAMS_MAX} streams of the log", self._retries.next_s())
            yield pb.ReadLogResponse(answer=refusal(core, error, is_read=True))
            return
        try:
            _check_read(request)
            size = min(max(request.chunk_bytes or _CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
            for response in self._of_queue(request, size) if request.topic else self._of_log(request, size):
                yield response
                await asyncio.sleep(0)
        except (StoreError, DLedgerError) as error:
            yield pb.ReadLogResponse(answer=refusal(core, error, is_read=True))
        finally:
            self._streams.give_back(name, 1)

    def _of_log(self, request: pb.ReadLogRequest, size: int) -> Iterator[pb.ReadLogResponse]:
        offset, end = request.begin_offset, request.end_offset
        while offset < end:
            log = self._core.replica.store.log
            self._check_here(offset, end)
            found = log.raw(offset, end, size)
            if found is None:
                raise RequestFailed(Reason.NO_MESSAGE, f"offset {offset} of the log: found no file with it")
            after = offset + len(found.data)
            begins = log.begins_within(offset, after)
            yield pb.ReadLogResponse(
                data=bytes(found.data),
                header_size=found.header_size,
                offset=offset,
                next_offset=after,
                begins=b"" if begins is None else (begins - offset).astype("<i4").tobytes(),
            )
            offset = after

    def _of_queue(self, request: pb.ReadLogRequest, size: int) -> Iterator[pb.ReadLogResponse]:
        self._core.readable_topic(request.topic)
        key = QueueKey(request.topic, request.queue_id)
        begin = request.begin
        while begin < request.end:
            queue = self._queue(key)
            if begin < queue.min_offset:
                found = f"it was deleted, the first message left is {queue.min_offset}"
                raise RequestFailed(Reason.NO_MESSAGE, f"message {begin} of {key.topic}/{key.queue_id}: {found}")
            if request.end > queue.max_offset:
                raise _not_yet(f"message {request.end - 1} of {key.topic}/{key.queue_id}", queue.max_offset)
            units = queue.units(begin, min(request.end - begin, _UNITS_MAX))
            response = self._chunk(units.physical_offsets, units.sizes, size)
            response.offset = begin
            begin = response.next_offset = begin + response.next_offset
            yield response

    def _chunk(self, offsets: Int64s, sizes: Int32s, size_max: int) -> pb.ReadLogResponse:
        """Return messages back to back; `next_offset` is the number of their units."""
        log = self._core.replica.store.log
        parts: list[memoryview] = []
        places: list[tuple[int, int]] = []
        size, header_size, count = 0, -1, 0
        for offset, length in zip(offsets.tolist(), sizes.tolist(), strict=True):
            if length != BLANK_SIZE:
                self._check_here(offset, offset + length)
                found = log.raw(offset, offset + length, length)
                if found is None or len(found.data) != length:
                    raise CorruptData("consume queue", offset, f"a unit for a message of {length} bytes", "another")
                if parts and (size >= size_max or found.header_size != header_size):
                    break
                header_size = found.header_size
                if header_size:
                    whole = log.raw(offset - header_size, offset + length, header_size + length)
                    assert whole is not None
                    found = whole
                parts.append(found.data)
                places.append((offset, length))
                size += len(found.data)
            count += 1
        return pb.ReadLogResponse(
            data=b"".join(parts),
            header_size=max(header_size, 0),
            next_offset=count,
            physical_offsets=[offset for offset, _ in places],
            sizes=[length for _, length in places],
        )

    def _check_here(self, offset: int, end: int) -> None:
        log = self._core.replica.store.log
        if offset < log.begin_offset:
            raise RequestFailed(
                Reason.NO_MESSAGE, f"offset {offset} of the log: expected {log.begin_offset} or more; it was deleted"
            )
        if end > log.end_offset:
            raise _not_yet(f"offset {end} of the log", log.end_offset)


def _not_yet(what: str, found: int) -> RequestFailed:
    return RequestFailed(
        Reason.SERVICE_NOT_AVAILABLE,
        f"this node does not have {what} yet, its end is {found}; retry, or ask another node",
    )


def _check_read(request: pb.ReadLogRequest) -> None:
    if request.topic and not 0 <= request.begin <= request.end:
        raise IllegalRequest("begin, end", "a range of queue offsets", f"{request.begin} to {request.end}")
    if not request.topic and not 0 <= request.begin_offset <= request.end_offset:
        expected = "a range of physical offsets"
        raise IllegalRequest("begin_offset, end_offset", expected, f"{request.begin_offset} to {request.end_offset}")


def _from_wire(spans: Iterable[pb.QueueSpans]) -> Steps[dict[QueueKey, tuple[int, int]]]:
    wanted: dict[QueueKey, tuple[int, int]] = {}
    for each in spans:
        check_lengths("queue_ids and begins", each.queue_ids, each.begins)
        check_lengths("queue_ids and ends", each.queue_ids, each.ends)
        for queue_id, begin, end in zip(each.queue_ids, each.begins, each.ends, strict=True):
            key = QueueKey(each.topic, queue_id)
            yield
            if key in wanted or len(wanted) >= QUEUES_MAX:
                raise IllegalRequest("spans", f"at most {QUEUES_MAX} queues, each once", f"{key.topic}/{queue_id}")
            if not 0 <= begin <= end or queue_id < 0:
                raise IllegalRequest("spans", "queue offsets from begin to end", f"{begin} to {end} of {queue_id}")
            wanted[key] = begin, end
    return wanted


def _planned(ranges: Iterable[UnitRange], ends: Mapping[QueueKey, int]) -> Steps[Iterable[_TopicSpans]]:
    """Return the ranges up to these ends; empty without one."""
    found: dict[str, _TopicSpans] = {}
    for each in ranges:
        yield
        topic = each.key.topic
        if topic not in found:
            found[topic] = _TopicSpans(topic, [], [], [])
        found[topic].add(each.key.queue_id, each.begin, ends.get(each.key, each.begin))
    return found.values()


def _add_spans(target: RepeatedCompositeFieldContainer[pb.QueueSpans], spans: Iterable[_TopicSpans]) -> Steps[None]:
    """Add spans to a field of a response; to copy whole lists into it would block the event loop."""
    for each in spans:
        added = target.add(topic=each.topic)
        for begin in range(0, len(each.queue_ids), _NUMBERS_PER_STEP):
            yield
            part = slice(begin, begin + _NUMBERS_PER_STEP)
            added.queue_ids.extend(each.queue_ids[part])
            added.begins.extend(each.begins[part])
            added.ends.extend(each.ends[part])
