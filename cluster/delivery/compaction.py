"""The compaction of one node: reads the log for compacted topics, merges their indexes, and, as leader, copies records.

One task on each node. In each turn, once a second:

1. read what is dispatched and was not read yet, at most a third of the time of the event loop;
2. merge the new rows into the indexes, in another thread, when they are many or the interval is over;
3. on the leader, directly after a merge that has everything: append copies of records that the log would delete soon.

A copy is chosen from an index that may lack the newest messages. That does no harm: it has the queue offset of its
original, so it never replaces a newer message of its key (`store.compaction.rows`).

Source: RocketMQ `CompactionStore`, `CompactionLog`; there each broker copies messages to files of its own, which a new
slave fetches from its master.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from cluster.delivery.compacted_messages import compaction_copy
from cluster.delivery.leader_task import LeaderTask
from cluster.process.cooperative import STEP_S
from cluster.protocol.compacted_topics import is_compacted
from cluster.replica.standalone import ROLE as STANDALONE
from cluster.state.features import WITH_COMPACTION
from store.errors import CorruptData, IllegalMessage, StoreError
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.port import Replica
    from commitlog.record.record import Record
    from store.compaction.index_file import QueueIndex
    from store.model.message import Message

_TURN_S: Final = 1.0
# After a step of `STEP_S`.
_REST_S: Final = 0.01
# After a merge that failed.
_PAUSE_S: Final = 30.0
BATCH_MAX: Final = 512
_BATCH_BYTES_MAX: Final = 1 << 20
# Rows that are examined together.
_CHUNK_ROWS: Final = 16_384
# A record is copied when it has this part of the time for which the log keeps it.
_KEPT_PART: Final = 0.75
# If the disk is so full that files are deleted however young: the part of the log whose records are copied.
_SHORT_PART: Final = 0.25
_MS_PER_S: Final = 1_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When topics are compacted.

    Attributes:
        interval_s: seconds between two merges, unless there are many new messages; RocketMQ's
            `compactionScheduleInternal`.
        keep_tombstones_s: how long a message with an empty body is kept; RocketMQ removes it at the next compaction.
    """

    interval_s: float = 900.0
    keep_tombstones_s: float = 86_400.0


class TopicCompaction:
    """The compaction on one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        clock_ms: the wall clock, milliseconds since 1970.
        settings: when it compacts.

    Attributes:
        copied_count: messages that this process has copied so that the log may delete their records.
    """

    def __init__(self, replica: Replica, clock_ms: Callable[[], int], settings: CompactionSettings) -> None:
        self._replica = replica
        self._compaction = replica.store.compaction
        self._settings = settings
        # No message wakes it.
        self._task = LeaderTask(replica, clock_ms, "")
        limits = replica.put_limits
        self._messages_max = min(limits.messages_max, BATCH_MAX)
        self._size_bytes_max = min(limits.size_bytes_max, _BATCH_BYTES_MAX)
        self._next_merge_s = monotonic() + settings.interval_s
        self._failed_until_s = 0.0
        # The end of the log after the last copies: they must be in the index before others are chosen.
        self._copied_end = 0
        self.copied_count = 0
        # Indexes that were built from nothing are complete with this offset of the log; None: it is not known.
        self._complete_at: int | None = None
        self._compaction.is_compacted = self._is_compacted
        if replica.status().role == STANDALONE:
            # Before new messages get offsets of lost ones.
            self._check_end()

    def _is_compacted(self, name: str) -> bool:
        topic = self._replica.state.topics.get(name)
        return topic is not None and is_compacted(topic.attributes)

    async def run(self) -> None:
        """Compact until cancelled."""
        await self._task.run(self._turn)

    async def _turn(self) -> float:
        """Do one turn; return the seconds until the next.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        compaction, store = self._compaction, self._replica.store
        topics = frozenset(name for name, topic in self._replica.state.topics.items() if is_compacted(topic.attributes))
        if not (topics or compaction.topics) or store.stop_reason:
            return _TURN_S
        compaction.follow(topics, self._first_place)
        if not self._check_end():
            return _TURN_S
        if compaction.is_complete:
            self._complete_at = None
        elif self._complete_at is None and self._is_caught_up():
            self._complete_at = store.log.end_offset
        end = store.derived.dispatcher.offset
        await self._scan(end)
        if self._is_merge_due() and await self._merge() and compaction.has_read(end):
            await self._copy_old()
        return _TURN_S if compaction.has_read(end) else 0.0

    def _check_end(self) -> bool:
        """Return whether the log has what is in the indexes; discard them if it certainly has not."""
        if self._replica.store.log.end_offset >= self._compaction.position:
            return True
        # The end of a replicated log is that of its committed part, which is not known at the start.
        if self._is_caught_up():
            self._compaction.discard()
            return True
        return False

    def _is_caught_up(self) -> bool:
        """Return whether the log has everything that was acknowledged in earlier terms."""
        return self._replica.status().role == STANDALONE or self._replica.has_applied_term

    def _first_place(self, topic: str) -> int | None:
        """Return the place of the first message that the queues of a topic have; None without one."""
        queues, known = self._replica.store.derived.queues, self._replica.state.topics[topic]
        places: list[int] = []
        for queue_id in range(max(known.read_queues, known.write_queues)):
            queue = queues.get(QueueKey(topic, queue_id))
            units = () if queue is None else queue.unit_tuples(queue.min_offset, 1)
            places += [place for place, _, _ in units]
        return min(places, default=None)

    async def _scan(self, end: int) -> None:
        turn_end_s = monotonic() + STEP_S
        while self._compaction.scan_step(self._replica.store.log, end):
            if monotonic() >= turn_end_s:
                await asyncio.sleep(_REST_S)
                turn_end_s = monotonic() + STEP_S

    def _is_merge_due(self) -> bool:
        compaction, now_s = self._compaction, monotonic()
        if now_s < self._failed_until_s:
            return False
        # The log may delete what was copied as soon as the copies are in the indexes.
        has_read_copies = compaction.position < self._copied_end and compaction.has_read(self._copied_end)
        complete_at = self._complete_at
        has_completed = not compaction.is_complete and complete_at is not None and compaction.has_read(complete_at)
        is_pressing = compaction.is_full or compaction.is_changed or has_read_copies or has_completed
        return is_pressing or now_s >= self._next_merge_s

    async def _merge(self) -> bool:
        """Merge what was read, in another thread; return whether that succeeded."""
        begin = self._replica.store.log.begin_offset
        job = self._compaction.begin_merge(begin, int(self._settings.keep_tombstones_s * _MS_PER_S), self._complete_at)
        running = asyncio.ensure_future(asyncio.to_thread(job.run))
        self._next_merge_s = monotonic() + self._settings.interval_s
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # No thread may write when the store is closed.
            await asyncio.wait([running])
            raise
        except StoreError as error:
            self._failed_until_s = monotonic() + _PAUSE_S
            logger.warning("compaction_failed error=%r: it is repeated", str(error))
        finally:
            self._compaction.end_merge(job)
        if job.lost_count:
            logger.error("compacted_messages_lost count=%d: the log has deleted their records", job.lost_count)
        return job.is_done

    # ------------------------------------------------------------------------------------------------------ copying

    def _target(self) -> int:
        """Return the offset of the log before which records are to be copied."""
        log, rules = self._replica.store.log, self._replica.store.config.retention_rules
        keep_ms = int(rules.reserved_s * _MS_PER_S * _KEPT_PART)
        target = log.offset_at_timestamp(max(self._task.now_ms() - keep_ms, 0))
        if rules.force_ratio is not None and self._replica.disk_used_ratio() > rules.force_ratio:
            target = max(target, log.begin_offset + int((log.end_offset - log.begin_offset) * _SHORT_PART))
        return target

    async def _copy_old(self) -> None:
        """Append copies of old records, if this node leads.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        if not self._task.is_leading(WITH_COMPACTION) or await self._task.decided():
            return
        target = self._target()
        if self._compaction.min_place >= target or self._compaction.position < self._copied_end:
            return
        begin_count = self.copied_count
        try:
            for key, index in self._compaction.queues():
                if index.min_place < target:
                    await self._copy_queue(key, index, target)
        finally:
            if self.copied_count > begin_count:
                self._copied_end = self._replica.store.log.end_offset

    async def _copy_queue(self, key: QueueKey, index: QueueIndex, target: int) -> None:
        batch: list[Message] = []
        topic, size_bytes = key.topic.encode(), 0
        for begin in range(0, len(index.rows), _CHUNK_ROWS):
            part = index.rows[begin : begin + _CHUNK_ROWS]
            old = part[part["place"] < target]
            for offset, place, size in zip(
                old["offset"].tolist(), old["place"].tolist(), old["size"].tolist(), strict=True
            ):
                record = self._read(place, size)
                if record is None or not record.is_at_queue_offset(topic, key.queue_id, offset):
                    continue
                if batch and (len(batch) >= self._messages_max or size_bytes + size > self._size_bytes_max):
                    await self._put(batch)
                    batch, size_bytes = [], 0
                batch.append(compaction_copy(record))
                size_bytes += size
            await asyncio.sleep(0)
        if batch:
            await self._put(batch)

    def _read(self, place: int, size: int) -> Record | None:
        try:
            return cast("Record | None", self._replica.store.log.read(place, size))
        except CorruptData:
            return None

    async def _put(self, batch: list[Message]) -> None:
        """Put copies; one that cannot be stored is logged, and the log keeps its record."""
        try:
            await self._task.put(batch, lambda: None)
        except IllegalMessage as error:
            if len(batch) > 1:
                for message in batch:
                    await self._put([message])
                return
            logger.error("compacted_message_not_copied topic=%s error=%r", batch[0].topic, str(error))  # noqa: TRY400
            return
        self.copied_count += len(batch)
