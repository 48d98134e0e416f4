"""The message store: the only entry point to the messages of a log: put, read by queue, query.

The log contains the messages. Queues and index are derived from it, and dispatch keeps them up to date, so a message
can be read after it was dispatched. Queue offsets are assigned here.

A program without an event loop calls `dispatch` and `flush` itself; `store.maintenance.service` does it in an asyncio
loop. All methods are for the owner's thread; only tickets may be executed in others. A failed write or sync stops the
store, because the state of the disk is then unknown.

Not here: the bytes of messages and the owner of the log (`commitlog`), networks, the creation of topics. Source:
RocketMQ `DefaultMessageStore`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from store.access.compacted_reads import FIRST_OFFSET, CompactedReader
from store.access.dedupe import DedupeWindow
from store.access.get_message import LIGHT_QUEUE_PREFIX, GetRequest, GetResult, MessageReader
from store.access.message_query import FOREVER_MS, MessageQuery, QueryResult
from store.compaction.compaction import Compaction
from store.dispatch.derived_data import DerivedData, DerivedTicket
from store.dispatch.long_polls import MessageWaiters, Waiter
from store.errors import (
    Certainty,
    DiskFull,
    IllegalMessage,
    IllegalRequest,
    NotCompactedYet,
    StorageFailed,
    StoreStopped,
)
from store.model.commit_log import CommitLog, PendingPut, PutOutcome, PutStatus
from store.model.message import Message, QueueKey, StoredMessage
from store.model.message_columns import MessageColumns
from store.model.read_filter import parse_filter
from store.model.sys_flag import INNER_BATCH
from store.queues.offset_by_time import Boundary, StoreTimestampOf, first_time_from, offset_by_time
from store.queues.offsets import QueueOffsets
from store.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.dispatch.catch_up import Progress
    from store.dispatch.recovery import LastState
    from store.fs.ports import Files
    from store.model.config import MessageStoreConfig
    from store.queues.consume_queue import ConsumeQueue
    from store.steps import Steps

# Largest number of messages in one put.
PUT_MESSAGES_MAX = 4096
_TIMESTAMP_NONE = -1


class MessageStore:
    """Messages of one log. Construct it by `open`."""

    def __init__(
        self,
        log: CommitLog,
        derived: DerivedData,
        compaction: Compaction,
        waiters: MessageWaiters,
        config: MessageStoreConfig,
    ) -> None:
        self._log = log
        self._derived = derived
        self._compaction = compaction
        self._waiters = waiters
        self._offsets = QueueOffsets(self._max_offset_of)
        self._reader = MessageReader(log, config, _memory_bytes())
        self._compacted_reader = CompactedReader(log, config, self._reader)
        self._query = MessageQuery(log, derived.index, config.max_msgs_num_batch)
        self._dedupe: DedupeWindow | None = None
        if config.dedupe_window_count:
            self._dedupe = DedupeWindow(log, config.dedupe_window_count, config.dedupe_window_ms)
            self._dedupe.load(derived.dispatcher.offset)
            derived.dispatcher.listeners.append(self._dedupe.dispatched)
        self._config = config
        self._stop_reason = ""
        self._refusal = ""
        self._awaited_listener: Callable[[], None] = _no_listener

    @property
    def config(self) -> MessageStoreConfig:
        """The settings of the store."""
        return self._config

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        log: CommitLog,
        config: MessageStoreConfig,
        last: LastState,
        on_progress: Progress | None = None,
    ) -> Self:
        """Open queues and index, and make them consistent with the log.

        Args:
            files: the file system.
            root: the store's directory; the caller holds its lock.
            log: open and recovered.
            config: settings of queues, index, reading, flushing and retention.
            last: the state left by the last process.
            on_progress: called with the progress of dispatch.

        Raises:
            store.errors.ForeignFile, WrongFileSize, CorruptData: see their messages; no message was lost.
            store.errors.DiskFull: no space for queues or index; no message was lost.
            store.errors.StorageFailed: a file cannot be opened, written or synced.
        """
        waiters = MessageWaiters(config.waiters_max)
        derived = DerivedData.open(files, root, log, config, waiters, last, on_progress)
        try:
            compaction = Compaction.open(files, root)
        except BaseException:
            derived.close()
            raise
        return cls(log, derived, compaction, waiters, config)

    # ---------------------------------------------------------------------------------------------------- putting

    def put(self, message: Message) -> PendingPut:
        """Put one message; see `put_many`."""
        return self.put_many((message,))

    def put_many(self, messages: Sequence[Message]) -> PendingPut:
        """Put messages one after the other, all or none; each gets the next offset of its queue.

        Queue offsets are never assigned twice: those of a put that fails after this call stay unused. Messages found in
        the dedupe window are not put again; `PutOutcome.places` has their places.

        Returns:
            The pending outcome, which ends at once or later, in this thread. A put that the store cannot accept now (it
            is full, or stopped) ends at once with that status.

        Raises:
            IllegalMessage: nothing was put; the error has the number of the message and the reason.
            StorageFailed: the messages may have been put; the store has stopped.
        """
        refused = self._refused_put()
        if refused is not None:
            return refused
        _check_put(messages)
        return self._append(messages) if self._dedupe is None else self._dedupe.put(messages, self._append)

    def put_prepared(self, messages: Sequence[Message]) -> PendingPut:
        """Put messages of clients as `put_many` does, with the effects that the broker has added to some."""
        refused = self._refused_put()
        if refused is not None:
            return refused
        _check_put(messages)
        append = partial(self._append, may_carry_effects=True)
        return append(messages) if self._dedupe is None else self._dedupe.put(messages, append)

    def put_own(self, messages: Sequence[Message]) -> PendingPut:
        """Put the broker's own messages as `put_many` does, with the effects that they carry, and although they repeat.

        A copy of a message has the key of the original; if the dedupe window removed it, its effect would be missing.
        """
        refused = self._refused_put()
        if refused is not None:
            return refused
        _check_put(messages)
        return self._append(messages, may_carry_effects=True)

    def _refused_put(self) -> PendingPut | None:
        detail = self._stop_reason or self._refusal
        if not detail:
            return None
        return PendingPut(PutOutcome(PutStatus.SERVICE_NOT_AVAILABLE, Certainty.NOT_APPENDED, (), detail))

    def _append(self, messages: Sequence[Message], *, may_carry_effects: bool = False) -> PendingPut:
        offsets = self._offsets.take(messages)
        try:
            pending = self._log.append(messages, offsets, may_carry_effects=may_carry_effects)
        except IllegalMessage:
            self._offsets.take_back(messages, offsets)
            raise
        except DiskFull as error:
            self._offsets.take_back(messages, offsets)
            return PendingPut(PutOutcome(PutStatus.CREATE_MAPPED_FILE_FAILED, Certainty.NOT_APPENDED, (), str(error)))
        except StorageFailed as error:
            self.stop(str(error))
            raise
        if pending.outcome is not None and pending.outcome.certainty is Certainty.NOT_APPENDED:
            self._offsets.take_back(messages, offsets)
        return pending

    def refuse_puts(self, reason: str) -> None:
        """Refuse puts until this is called with an empty reason; retention calls it when the disk is full."""
        self._refusal = reason

    def wake_readers(self) -> None:
        """Wake all waiting readers, after a change of what this node may serve."""
        self._waiters.notify_all()

    def recover_queue_offsets(self) -> None:
        """Recompute the next offsets from the queues, when the whole log is dispatched.

        A new leader of a replicated log calls this before its first put: other leaders may have put messages in
        between.
        """
        self._offsets.forget()
        if self._dedupe is not None:
            self._dedupe.forget_pending()

    # ---------------------------------------------------------------------------------------------------- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int = 32,
        size_bytes_max: int = 128 << 20,
        tags: str | None = "*",
    ) -> GetResult:
        """Read a queue from an offset on; `store.access.get_message` has the table of results.

        Args:
            topic: the topic's name.
            queue_id: of the topic.
            offset: in the queue.
            count_max: largest number of messages.
            size_bytes_max: largest number of bytes of records; one message is always returned.
            tags: the filter: `*`, or `A || B`; or an `Sql92`.

        Raises:
            IllegalRequest: a negative queue or offset, or an invalid expression.
            NotCompactedYet: the topic is compacted, and its index is being built.
        """
        request = GetRequest(offset, count_max, size_bytes_max, parse_filter(tags))
        key = _queue_key(topic, queue_id)
        queue, index = self._derived.queues.get(key), self._compaction.get(key)
        if queue is not None and not self._compaction.is_complete and self._compaction.is_compacted(topic):
            if request.offset < queue.min_offset:
                raise NotCompactedYet(topic)
            index = None
        return self._reader.get(queue, request) if index is None else self._compacted_reader.get(queue, index, request)

    def wait(
        self, topic: str, queue_id: int, offset: int, notify: Callable[[], None], tags: str | None = "*"
    ) -> Waiter:
        """Call `notify` once, when `get` from this offset may find a message: at once if there is one now.

        A call does not guarantee that there is a message. Call the waiter's `cancel` to stop waiting.

        Raises:
            IllegalRequest: as `get`.
            TooManyWaiters: the limit of waiters is reached.
            StoreStopped: the store has stopped.
        """
        key, read_filter = _queue_key(topic, queue_id), parse_filter(tags)
        GetRequest(offset)
        if self._stop_reason:
            raise StoreStopped(self._stop_reason)
        waiter = self._waiters.add(key, offset, notify, read_filter)
        queue = self._derived.queues.get(key)
        if queue is not None and queue.max_offset > offset:
            waiter.notify()
        else:
            self._awaited_listener()
        return waiter

    def when_awaited(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a reader begins to wait for messages that are in the log but not dispatched yet."""
        self._awaited_listener = listener

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first retained message of a queue; 0 if there is none, or it is compacted."""
        queue = self._derived.queues.get(_queue_key(topic, queue_id))
        return 0 if queue is None or self._has_index(queue.key) else queue.min_offset

    def _has_index(self, key: QueueKey) -> bool:
        """Return whether a queue is compacted, although its index may not be built yet."""
        return self._compaction.get(key) is not None or self._compaction.is_compacted(key.topic)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last readable message of a queue; 0 when there is no such queue."""
        return self._max_offset_of(_queue_key(topic, queue_id))

    def _max_offset_of(self, key: QueueKey) -> int:
        queue = self._derived.queues.get(key)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a time (milliseconds since 1970); see `store.queues.offset_by_time`.

        0 when there is no such queue.
        """
        queue = self._derived.queues.get(_queue_key(topic, queue_id))
        if queue is None:
            return 0
        timestamps = self._store_timestamps_of(queue)
        found = offset_by_time(queue, timestamp, boundary, timestamps, self._log.begin_offset)
        # Older messages of a compacted queue are in no unit; their copies have later store timestamps.
        is_first = self._has_index(queue.key) and found <= queue.min_offset
        return FIRST_OFFSET if is_first else found

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp of the first readable message of a queue; -1 when there is none."""
        queue = self._derived.queues.get(_queue_key(topic, queue_id))
        if queue is None or queue.min_offset >= queue.max_offset:
            return _TIMESTAMP_NONE
        timestamp = first_time_from(queue, queue.min_offset, self._store_timestamps_of(queue))
        return _TIMESTAMP_NONE if timestamp is None else timestamp

    def message_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store timestamp of the message at an offset, or else of the next; -1 when it is not known."""
        queue = self._derived.queues.get(_queue_key(topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return _TIMESTAMP_NONE
        timestamp = first_time_from(queue, queue_offset, self._store_timestamps_of(queue))
        return _TIMESTAMP_NONE if timestamp is None else timestamp

    def _store_timestamps_of(self, queue: ConsumeQueue) -> StoreTimestampOf:
        """Return a function for the store timestamps of a queue's messages; see `offset_by_time`."""
        topic, queue_id = queue.key.topic.encode(), queue.key.queue_id
        is_light = queue.key.topic.startswith(LIGHT_QUEUE_PREFIX)
        peek = self._log.peek

        def store_timestamp_of(queue_offset: int, physical_offset: int, size: int) -> int | None:
            message = peek(physical_offset, size)
            if message is None or not (is_light or message.is_at_queue_offset(topic, queue_id, queue_offset)):
                return None
            return message.store_timestamp

        return store_timestamp_of

    # ---------------------------------------------------------------------------------------------------- finding

    def query_by_key(
        self, topic: str, key: str, count_max: int = 32, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> QueryResult:
        """Return the messages of a topic that have `key` among their KEYS, or as UNIQ_KEY.

        Args:
            topic: the topic's name.
            key: one key, without blanks.
            count_max: largest number of messages, of which the newest are returned.
            begin_ms: lower bound of the store time, inclusive, milliseconds since 1970.
            end_ms: upper bound, inclusive.

        Raises:
            IllegalRequest: a count below 1.
        """
        return at_once(self._query.by_key(topic, key, count_max, begin_ms, end_ms))

    def query_by_key_steps(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[QueryResult]:
        """Return the same as `query_by_key`, in steps for an event loop."""
        return self._query.by_key(topic, key, count_max, begin_ms, end_ms)

    def query_by_unique_key(self, topic: str, key: str, count_max: int = 32) -> QueryResult:
        """Return the messages of a topic that have `key` as UNIQ_KEY; the arguments are those of `query_by_key`."""
        return at_once(self._query.by_unique_key(topic, key, count_max))

    def query_by_unique_key_steps(self, topic: str, key: str, count_max: int) -> Steps[QueryResult]:
        """Return the same as `query_by_unique_key`, in steps for an event loop."""
        return self._query.by_unique_key(topic, key, count_max)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """Return the message of an offset message id; None when it is not in this store.

        Raises:
            IllegalRequest: it is not such an id.
            CorruptData: there is no valid record at that offset.
        """
        return self._query.by_message_id(message_id)

    # ------------------------------------------------------------------------------------------------ background work

    @property
    def log(self) -> CommitLog:
        """The log."""
        return self._log

    @property
    def derived(self) -> DerivedData:
        """Queues and index."""
        return self._derived

    @property
    def compaction(self) -> Compaction:
        """The compacted queues."""
        return self._compaction

    @property
    def needed_from(self) -> int:
        """The log from here on must be kept: it is not durable in queues and index, or compacted topics need it."""
        return min(self._derived.durable_offset, self._compaction.needed_from)

    @property
    def waiters_count(self) -> int:
        """The number of waiting readers."""
        return len(self._waiters)

    @property
    def stop_reason(self) -> str:
        """The reason why the store has stopped; empty while it runs."""
        return self._stop_reason

    def dispatch(self) -> None:
        """Dispatch up to the log's end.

        Raises:
            DiskFull: no space for queues or index; no message is lost, try again.
            StorageFailed: the store has stopped.
        """
        while self.dispatch_step():
            continue

    def dispatch_step(self) -> bool:
        """Dispatch a bounded number of messages; return whether more may be left.

        Raises:
            as `dispatch`.
        """
        with self._stopping():
            return self._derived.dispatcher.step()

    def begin_flush(self, pages_min: int = 0) -> DerivedTicket | None:
        """Return a ticket whose `sync` makes queues and index durable; None if everything is durable."""
        with self._stopping():
            return self._derived.begin_flush(pages_min)

    def end_flush(self, ticket: DerivedTicket) -> None:
        """Record that a ticket was synced."""
        self._derived.end_flush(ticket)

    def expire(self) -> None:
        """Delete the part of queues and index before the log's start."""
        for _ in self.expire_in_steps():
            continue

    def expire_in_steps(self) -> Iterator[None]:
        """Delete the part of queues and index before the log's start, one queue per step, until the store stops."""
        with self._stopping():
            yield from self._derived.expire_in_steps()

    def stop(self, reason: str) -> None:
        """Refuse puts from now on and notify all waiters, after a failed write or sync."""
        if not self._stop_reason:
            self._stop_reason = reason
            self._waiters.notify_all()

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Stop the store if a disk operation fails."""
        if self._stop_reason:
            raise StoreStopped(self._stop_reason)
        try:
            yield
        except StorageFailed as error:
            self.stop(str(error))
            raise

    def close(self) -> None:
        """Close queues and index without a flush; the owner closes the log. Flush first, for a fast next opening."""
        self.stop("it was closed")
        self._derived.close()
        self._compaction.close()


def _no_listener() -> None:
    """Do nothing: a program without an event loop calls `dispatch` itself."""


def _check_put(messages: Sequence[Message]) -> None:
    if not 0 < len(messages) <= PUT_MESSAGES_MAX:
        raise IllegalMessage("batch", f"1 to {PUT_MESSAGES_MAX} messages", str(len(messages)))
    if isinstance(messages, MessageColumns) and messages.is_ordinary:
        queue_ids = messages.queue_ids
        if (queue_ids if isinstance(queue_ids, int) else min(queue_ids)) >= 0:
            return
    for number, message in enumerate(messages):
        if message.queue_id < 0:
            raise IllegalMessage("queue", f"at least 0 (message {number})", str(message.queue_id))
        if message.sys_flag & INNER_BATCH:
            # It would need several queue offsets, which only batch consume queues support.
            raise IllegalMessage("sys flag", f"no inner batch (message {number})", f"{message.sys_flag:#x}")


def _queue_key(topic: str, queue_id: int) -> QueueKey:
    if queue_id < 0:
        raise IllegalRequest("queue", "at least 0", str(queue_id))
    return QueueKey(topic, queue_id)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
