"""The part of a plain log that was durable according to the checkpoint of its store.

A start of the store refuses a log without this part (`commitlog.plain.recovery`). So `dledger verify` reports the loss
as damage, and `dledger rebuild` refuses the log, because a new checkpoint would hide the loss.

| checkpoint                | guarantees                                                                           |
| ------------------------- | ------------------------------------------------------------------------------------ |
| any                       | records stored before `physicMsgTimestamp` were durable                              |
| of a cleanly closed store | the last record was stored at that time                                             |
| of one that Java closed   | messages up to `logicsMsgTimestamp` existed, if units point past the log's end      |
| with our seal             | records below an offset were durable, also after an unclean exit                     |

A time in the future without a seal is ignored: the checkpoint is damaged, and a rebuild repairs it.

Not here: whether the checkpoint itself is plausible (`commitlog.offline.checkpoint_check`).

Source: RocketMQ `StoreCheckpoint`, `CommitLog.recoverAbnormally`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from commitlog.plain.tail import is_one_bit_off, timestamp_of_damaged
from commitlog.plain.units_past_end import UNITS_LOOKED_AT_MAX, are_past_end
from store.dispatch.checkpoint import FILE_SIZE_BYTES, LOGICS_POSITION, SEAL_POSITION, decode_checkpoint
from store.model.finding import Area, Finding
from store.queues.unit import units_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from store.check.queue_view import QueueView
    from store.model.dispatch_batch import Skipped

RESTORE: Final = "Restore the log from a backup or from another replica; `dledger rebuild --skip-damaged` skips it"
# The largest difference of two machines' clocks.
_FUTURE_MAX_MS: Final = 24 * 3_600_000
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DurablePart:
    """The durable part of the log according to one checkpoint.

    Attributes:
        path: of the checkpoint.
        end_offset: every record below it was durable; 0: unknown.
        timestamp: every record stored before this time was durable; 0: unknown.
        is_clean: the store was closed cleanly, so a record of that time existed.
        derived_timestamp: RocketMQ dispatched messages up to this time to queues or index; 0: unknown.
    """

    path: str
    end_offset: int = 0
    timestamp: int = 0
    is_clean: bool = False
    derived_timestamp: int = 0

    @classmethod
    def of(cls, path: str, content: bytes | None, *, is_plain: bool, is_clean: bool) -> DurablePart:
        """Derive the durable part of the log from a checkpoint.

        Args:
            path: of the checkpoint.
            content: of the checkpoint; None if it cannot be read.
            is_plain: the whole log is a plain one; otherwise the log ends with entries, which have their own
                checkpoint.
            is_clean: the store was closed cleanly.
        """
        if content is None or len(content) != FILE_SIZE_BYTES:
            return cls(path)
        found = decode_checkpoint(content)
        latest_ms = time.time_ns() // _NS_PER_MS + _FUTURE_MAX_MS
        timestamp = found.physic_msg_timestamp
        is_plausible = is_plain and (found.is_sealed or 0 < timestamp <= latest_ms)
        derived_timestamp = found.java_derived_timestamp if is_plain else 0
        return cls(path, found.log_end, max(timestamp, 0) if is_plausible else 0, is_clean, derived_timestamp)

    def fault_of_tail(self, view: memoryview, tail: Skipped, last_timestamp: int) -> str:
        """Return the reason why the bytes at the end of a plain log are not a torn write; empty: they are one.

        Args:
            view: of their file.
            tail: their position and size.
            last_timestamp: of the record before; -1 if there is none.
        """
        timestamp = timestamp_of_damaged(view, tail.position, tail.offset)
        is_older = timestamp is not None and last_timestamp <= timestamp < self.timestamp
        if is_older or tail.offset < self.end_offset:
            return "the last record was durable, by the checkpoint: it was damaged later"
        if is_one_bit_off(view, tail.position, tail.offset):
            return "one changed bit in the last record: it was complete on disk"
        return ""

    def is_missing(self, last_timestamp: int) -> bool:
        """Return whether the log lacks the record with the checkpoint's timestamp.

        Args:
            last_timestamp: of the last record; -1 when there is none.
        """
        return max(last_timestamp, 0) < self.timestamp

    def lost_end(self, log_end: int, last_timestamp: int, queues: Collection[QueueView] = ()) -> Iterator[Finding]:
        """Yield a finding if the log ends before its durable end.

        Args:
            log_end: the end of the log.
            last_timestamp: of its last record; -1 when there is none.
            queues: of the store.
        """
        if self.end_offset > log_end:
            lost = f"the last {self.end_offset - log_end} bytes of the log are lost"
            expected, found = f"a log up to offset {self.end_offset}, which was durable", f"one up to {log_end}"
            position = SEAL_POSITION
        elif self.is_clean and self.is_missing(last_timestamp):
            lost = "the end of the log is lost"
            expected = f"a record stored at {self.timestamp}, which was durable"
            found = f"the log's end at offset {log_end}, after a record stored at {last_timestamp}"
            position = 0
        elif self.is_clean and max(last_timestamp, 0) < self.derived_timestamp and _point_past(queues, log_end):
            lost = "the end of the log is lost"
            expected = f"records up to the time {self.derived_timestamp}, which were dispatched"
            found = f"the log's end at offset {log_end}, after a record stored at {last_timestamp}"
            found += ", and units of consume queues that point past it"
            position = LOGICS_POSITION
        else:
            return
        meaning = f"{lost}: files of it were removed, or damaged"
        yield Finding(Area.LOG, self.path, position, expected, found, meaning, RESTORE)


def _point_past(queues: Collection[QueueView], log_end: int) -> bool:
    """Return whether units of queues prove that there were messages past the log's end."""
    newest = (units_of(queue.units(max(queue.end - UNITS_LOOKED_AT_MAX, queue.begin), queue.end)) for queue in queues)
    return are_past_end(newest, log_end)
