"""Writes rows of Arrow batches as messages of the log: one writer for each task of a write.

Rows of one queue are collected into chunks, which are stored completely or not at all. One batch of chunks at a time is
in flight to each broker. So rows of one queue are stored in order, and the stored rows of a partition are a prefix of
each queue's rows, however the task ends.

*At least once*: a retried task stores its rows again, with the same UNIQ_KEYs, unless the broker's dedupe window still
contains them. *Exactly once* (`is_exactly_once`): rows of an earlier attempt are also looked up in the brokers' key
index (`pipeline.sink.log_resume`), and none is stored twice as long as

* a retried task receives the same rows in the same order (a deterministic query, a source that can be read again, and a
  checkpoint),
* retention has not deleted the messages of the first attempt,
* messages that two concurrent attempts send (an abandoned task may still run), and messages in flight when the first
  attempt ended (at most 4,096 per task), stay within the dedupe window,
* the topic's queues are on the same brokers.

Messages are visible before the batch is committed: readers see the rows of a failed attempt, once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from cluster.client.outcomes import MessageAppended
from cluster.client.producer.async_producer import AsyncProducer
from cluster.client.producer.body_compression import COMPRESS_ABOVE_BYTES, CompressionKind, compressed_body
from cluster.client.producer.options import ProducerOptions
from cluster.client.routing.queue_choice import BrokerQueue, queue_of_key
from cluster.process.loop_thread import LoopThread
from cluster.protocol.errors import RequestFailed
from pipeline.common.broker_security import broker_security
from pipeline.common.errors import PipelineError
from pipeline.sink.log_resume import StoredRows
from pipeline.sink.log_rows import OutgoingRow, RowEncoder, UnfitFrame, unique_key_head

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from cluster.client.producer.batch import Encoded

# Not configurable: a retried task must produce the same chunks.
CHUNK_ROWS: Final = 1_000
CHUNK_SIZE_BYTES: Final = 256 << 10
# Number of consecutive rows without key and queue that go to the same queue.
_RUN_ROWS: Final = 250
_OPEN_SIZE_BYTES: Final = 16 << 20
# Seconds that a writer waits for its connections to close.
CLOSE_TIMEOUT_S: Final = 10.0
_IN_FLIGHT_ROWS: Final = 32_000
_IN_FLIGHT_SIZE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class LogTarget:
    """The target and the settings of a write. Sent to the tasks.

    Attributes:
        endpoints: `host:port` of nodes of all brokers to write to; empty if name servers are given.
        name_servers: `host:port` of all name servers.
        topic: of all rows; None: the column `topic` is used.
        is_exactly_once: see the module docstring.
        timeout_s: longest time for a chunk, including retries.
        compression: of bodies above 4 KiB; None: no compression.
    """

    endpoints: str = ""
    name_servers: str = ""
    topic: str | None = None
    is_exactly_once: bool = False
    timeout_s: float = 120.0
    compression: CompressionKind | None = None


class RowOrigin(NamedTuple):
    """The origin of rows, from which their UNIQ_KEYs are made.

    Attributes:
        write_id: of the query, or of the batch write.
        batch_id: of the query's batch; 0 in a batch write.
        partition: number of the task's partition.
    """

    write_id: str
    batch_id: int
    partition: int


class WrittenRange(NamedTuple):
    """Offsets [begin, end) of one queue that contain a task's messages."""

    broker: str
    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(slots=True)
class RowsStored:
    """The result of writing the rows of one task.

    Attributes:
        rows: number of rows, including those that were stored before.
        repeated_rows: number of rows that an earlier attempt stored.
        size_bytes: of the bodies and properties sent.
        ranges: queue offsets of the messages sent.
    """

    rows: int = 0
    repeated_rows: int = 0
    size_bytes: int = 0
    ranges: tuple[WrittenRange, ...] = ()


class WriteFailed(PipelineError):
    """Messages were not stored, or it is unknown whether they were."""


class RowSource(Protocol):
    """Converts batches to messages: `RowEncoder` for a data frame, other classes for an archive."""

    def rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """Yield the messages of the next rows."""
        ...


# Called with the row numbers and the locations of stored messages.
OnStored = Callable[[Sequence[int], Sequence[MessageAppended]], None]
# Called with the row numbers of messages that an earlier attempt stored.
OnRepeated = Callable[[Sequence[int]], None]


class LogWriter:
    """Writes the rows of one partition; a context manager. Not thread-safe.

    Args:
        target: of the write.
        origin: of the rows.
        rows: converts batches to messages; None: a `RowEncoder`.
        on_stored: called with each stored chunk, in the order of chunks.
        on_repeated: called with rows that are not sent because an earlier attempt stored them.

    Raises:
        ValueError: endpoints and name servers are both given, or neither, or one is not `host:port`.
    """

    def __init__(
        self,
        target: LogTarget,
        origin: RowOrigin,
        *,
        rows: RowSource | None = None,
        on_stored: OnStored = lambda _rows, _places: None,
        on_repeated: OnRepeated = lambda _rows: None,
    ) -> None:
        self._target = target
        self._encoder: RowSource = RowEncoder(unique_key_head(*origin), target.topic) if rows is None else rows
        self._on_stored = on_stored
        self._on_repeated = on_repeated
        self._partition = origin.partition
        self._thread = LoopThread("log-writer")
        self._stack = AsyncExitStack()
        self._stored: StoredRows | None = None
        self._queues: dict[str, tuple[BrokerQueue, ...]] = {}
        self._checked_brokers: set[str] = set()
        self._chunks: dict[BrokerQueue, _Chunk] = {}
        self._open_bytes = 0
        self._first: BrokerQueue | None = None
        self._is_first_sent = False
        self._is_tried_again = False
        self._in_flight: deque[tuple[_Chunk, Future[list[MessageAppended]]]] = deque()
        self._in_flight_rows = self._in_flight_bytes = 0
        self._ranges: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._written = RowsStored()
        try:
            self._producer = self._thread.run(self._open())
        except BaseException:
            self._thread.close()
            raise

    async def _open(self) -> AsyncProducer:
        target = self._target
        options = ProducerOptions(
            deadline_s=target.timeout_s,
            batch_messages_max=4_096,
            batch_size_bytes_max=1 << 20,
            batches_in_flight_max=1,
            queue_messages_max=2 * _IN_FLIGHT_ROWS,
            queue_size_bytes_max=2 * _IN_FLIGHT_SIZE_BYTES,
            is_unknown_retried=True,
        )
        security = broker_security()
        if target.is_exactly_once:
            stored = StoredRows(target.endpoints, target.name_servers, security)
            self._stored = await self._stack.enter_async_context(stored)
        producer = AsyncProducer(target.endpoints, target.name_servers, options, security)
        return await self._stack.enter_async_context(producer)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close all connections. Messages sent after the last `finish` may be stored or not."""
        for _, future in self._in_flight:
            future.cancel()
        try:
            self._thread.run(self._close())
        finally:
            self._thread.close()

    async def _close(self) -> None:
        # The producer would wait for all queued messages; the writer needs no more answers.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._stack.aclose()

    # ---------------------------------------------------------------------------------------------------- writing

    def write(self, batch: pa.RecordBatch) -> None:
        """Queue rows; blocks while the permitted number of bytes is in flight.

        Raises: UnfitFrame: a row cannot be stored. WriteFailed: messages were not stored, or it is unknown.
        """
        for row in self._encoder.rows(batch):
            self._add(row)

    def finish(self) -> RowsStored:
        """Return when all rows are committed.

        Raises: WriteFailed: rows were not stored, or it is unknown.
        """
        self._send_all()
        while self._in_flight:
            self._take_answer()
        self._written.ranges = tuple(
            WrittenRange(broker, topic, queue_id, begin, end)
            for (broker, topic, queue_id), (begin, end) in sorted(self._ranges.items())
        )
        return self._written

    def _add(self, row: OutgoingRow) -> None:
        row = self._compressed(row)
        queue = self._queue_of(row)
        chunk = self._chunks.get(queue)
        size_bytes = len(row.message.body) + len(row.message.properties)
        if chunk is not None and chunk.size_bytes + size_bytes > CHUNK_SIZE_BYTES:
            self._send(queue)
            chunk = None
        if chunk is None:
            chunk = self._chunks[queue] = _Chunk(queue)
            self._first = self._first or queue
        chunk.add(row, size_bytes)
        self._open_bytes += size_bytes
        self._written.rows += 1
        if len(chunk.messages) == CHUNK_ROWS:
            self._send(queue)
        elif self._open_bytes > _OPEN_SIZE_BYTES:
            self._send_all()

    def _compressed(self, row: OutgoingRow) -> OutgoingRow:
        message, kind = row.message, self._target.compression
        if kind is None or len(message.body) <= COMPRESS_ABOVE_BYTES:
            return row
        body, sys_flag = compressed_body(message.body, kind)
        return row._replace(message=message._replace(body=body, sys_flag=sys_flag))

    def _queue_of(self, row: OutgoingRow) -> BrokerQueue:
        queues = self._queues.get(row.topic)
        if queues is None:
            queues = self._queues[row.topic] = self._ask_queues(row.topic)
        if row.queue_id is not None:
            asked = [queue for queue in queues if queue.queue_id == row.queue_id]
            if not asked:
                known = sorted({queue.queue_id for queue in queues})
                what = f"queueId of row {row.row} of a partition"
                expected = f"a writable queue of topic {row.topic}: {known[0]} to {known[-1]}"
                raise UnfitFrame(what, expected, str(row.queue_id), "Correct the row, or give the topic more queues")
            queues = tuple(asked)
        if row.sharding_key is not None and row.queue_id is None:
            return queue_of_key(queues, row.sharding_key)
        # A retry of the task chooses the same queue.
        return queues[(self._partition + row.row // _RUN_ROWS) % len(queues)]

    def _ask_queues(self, topic: str) -> tuple[BrokerQueue, ...]:
        try:
            queues = self._thread.run(self._producer.queues(topic))
            for queue in queues if self._stored is not None else ():
                if queue.broker not in self._checked_brokers:
                    assert self._stored is not None
                    self._thread.run(self._stored.check_broker(queue))
                    self._checked_brokers.add(queue.broker)
        except RequestFailed as failure:
            raise self._failed(f"topic {topic}", failure) from None
        return queues

    # ---------------------------------------------------------------------------------------------------- sending

    def _send_all(self) -> None:
        for queue in list(self._chunks):
            self._send(queue)

    def _send(self, queue: BrokerQueue) -> None:
        """Send a queue's chunk. The chunk with the partition's first row is sent first."""
        if not self._is_first_sent:
            assert self._first is not None
            self._is_first_sent = True
            self._send_first(self._chunks.pop(self._first))
            if queue == self._first:
                return
        self._begin(self._chunks.pop(queue))

    def _send_first(self, chunk: _Chunk) -> None:
        stored = self._stored
        if stored is None:
            self._begin(chunk)
            return
        try:
            self._is_tried_again = self._thread.run(stored.is_stored(chunk.queue, chunk.keys[0]))
        except RequestFailed as failure:
            raise self._failed(f"topic {chunk.queue.topic}", failure) from None
        self._begin(chunk)
        while self._in_flight:
            self._take_answer()

    def _begin(self, chunk: _Chunk) -> None:
        self._open_bytes -= chunk.size_bytes
        if self._is_tried_again:
            chunk = self._without_stored(chunk)
            if not chunk.messages:
                return
        while self._in_flight and (
            self._in_flight_rows + len(chunk.messages) > _IN_FLIGHT_ROWS
            or self._in_flight_bytes + chunk.size_bytes > _IN_FLIGHT_SIZE_BYTES
        ):
            self._take_answer()
        work = self._producer.send_encoded(chunk.queue, chunk.messages, chunk.keys, self._target.timeout_s)
        self._in_flight.append((chunk, asyncio.run_coroutine_threadsafe(work, self._thread.loop)))
        self._in_flight_rows += len(chunk.messages)
        self._in_flight_bytes += chunk.size_bytes
        self._written.size_bytes += chunk.size_bytes

    def _without_stored(self, chunk: _Chunk) -> _Chunk:
        assert self._stored is not None
        try:
            stored = self._thread.run(self._stored.stored(chunk.queue, chunk.keys))
        except RequestFailed as failure:
            raise self._failed(f"topic {chunk.queue.topic}", failure) from None
        if not stored:
            return chunk
        self._written.repeated_rows += len(stored)
        self._on_repeated([row for row, key in zip(chunk.rows, chunk.keys, strict=True) if key in stored])
        return chunk.without(stored)

    def _take_answer(self) -> None:
        chunk, future = self._in_flight.popleft()
        self._in_flight_rows -= len(chunk.messages)
        self._in_flight_bytes -= chunk.size_bytes
        try:
            places = future.result()
        except RequestFailed as failure:
            what = f"{len(chunk.messages)} messages for queue {chunk.queue.queue_id} of topic {chunk.queue.topic}"
            raise self._failed(what, failure) from None
        self._note(places)
        self._on_stored(chunk.rows, places)

    def _note(self, places: Sequence[MessageAppended]) -> None:
        for place in places[0], places[-1]:
            key = (place.broker, place.topic, place.queue_id)
            begin, end = self._ranges.get(key, (place.queue_offset, 0))
            self._ranges[key] = min(begin, place.queue_offset), max(end, place.queue_offset + 1)

    def _failed(self, what: str, failure: RequestFailed) -> WriteFailed:
        remedy = "Remove the cause and restart the query: rows that are stored already are recognised by their UNIQ_KEY"
        return WriteFailed(what, "a broker that stores it", str(failure), remedy)


@dataclass(slots=True)
class _Chunk:
    queue: BrokerQueue
    messages: list[Encoded] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, row: OutgoingRow, size_bytes: int) -> None:
        self.messages.append(row.message)
        self.keys.append(row.unique_key)
        self.rows.append(row.row)
        self.size_bytes += size_bytes

    def without(self, stored: set[str]) -> _Chunk:
        left = [place for place, key in enumerate(self.keys) if key not in stored]
        messages, keys = [self.messages[place] for place in left], [self.keys[place] for place in left]
        size_bytes = sum(len(message.body) + len(message.properties) for message in messages)
        return _Chunk(self.queue, messages, keys, [self.rows[place] for place in left], size_bytes)
