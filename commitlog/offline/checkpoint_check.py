"""Checks that the checkpoint of queues and index is consistent with the log.

Each of its timestamps must be that of a message; none may be later than the last message's.

Source: RocketMQ `StoreCheckpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.check.queue_view import QueueView, unreadable_file
from store.dispatch.checkpoint import (
    FILE_SIZE_BYTES,
    NUMBERS_SIZE,
    SEAL_POSITION,
    SEAL_SIZE,
    SealState,
    decode_checkpoint,
    seal_state,
)
from store.errors import StorageFailed
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from commitlog.offline.durable_part import DurablePart
    from store.fs.read_only_files import ReadOnlyFiles
    from store.model.dispatch_batch import DispatchBatch

_REMEDY = "`dledger rebuild` rewrites it"
_NAMES = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset")
# The first ones are times, the others offsets.
_TIMES_COUNT = 3
# The largest lag of a replica.
_BEHIND_MAX_BYTES = 1 << 40


class CheckpointCheck:
    """Receives all ranges of the log, then checks whether a checkpoint is plausible.

    Args:
        files: read it.
        path: of it.
        is_unfinished: the store was not closed cleanly: messages that the checkpoint covers may be missing.
        durable_part: of the log, by the checkpoint.
    """

    def __init__(self, files: ReadOnlyFiles, path: str, *, is_unfinished: bool, durable_part: DurablePart) -> None:
        self._path = path
        self._is_unfinished = is_unfinished
        self._durable_part = durable_part
        self._unreadable: Finding | None = None
        self._content: bytes | None = None
        try:
            self._content = files.read_bytes(path)
        except StorageFailed as error:
            self._unreadable = unreadable_file(Area.CHECKPOINT, path, error, _REMEDY)
        self._numbers = None if self._content is None else _numbers_of(self._content)
        self._known: set[int] = {0}
        self._begin_offset = 0
        self._first_timestamp = -1
        self._last_timestamp = -1

    def add(self, batch: DispatchBatch) -> None:
        """Record the next range of the log."""
        if self._numbers is None or not len(batch):
            return
        if self._first_timestamp < 0:
            self._begin_offset = batch.begin_offset
            self._first_timestamp = int(batch.store_timestamps.min())
        self._last_timestamp = max(self._last_timestamp, int(batch.store_timestamps.max()))
        times, offsets = np.split(np.array([*self._numbers.values()]), [_TIMES_COUNT])
        self._known.update(times[np.isin(times, batch.store_timestamps)].tolist())
        ends = batch.physical_offsets + batch.sizes
        is_known = np.isin(offsets, batch.physical_offsets) | np.isin(offsets, ends)
        self._known.update(offsets[is_known].tolist())

    def finish(self, log_end: int, queues: Collection[QueueView] = ()) -> Iterator[Finding]:
        """Yield the faults of the checkpoint.

        Args:
            log_end: the end of the log.
            queues: of the store.
        """
        if self._unreadable is not None:
            yield self._unreadable
            return
        if self._content is None or len(self._content) != FILE_SIZE_BYTES:
            found = "no file" if self._content is None else f"{len(self._content)} bytes"
            yield self._finding(
                0, f"{FILE_SIZE_BYTES} bytes", found, "the next start recovers from the beginning of the log"
            )
        if self._content is None or self._numbers is None:
            return
        lost = list(self._durable_part.lost_end(log_end, self._last_timestamp, queues))
        durable_until = max(self._durable_part.timestamp, self._durable_part.derived_timestamp)
        for number, (name, value) in enumerate(self._numbers.items()):
            is_time = number < _TIMES_COUNT
            if value in self._known:
                continue
            if is_time and lost and self._last_timestamp < value <= durable_until:
                # The log is damaged, not the checkpoint.
                continue
            if is_time and self._first_timestamp < 0:
                continue
            expected = self._expected(log_end, value, is_time=is_time)
            if expected:
                meaning = "recovery would begin at the wrong offset"
                yield self._finding(number * 8, f"{name} {expected}", f"{value}", meaning)
        if not any(self._content) and self._first_timestamp >= 0 and not self._is_unfinished:
            meaning = "the next start recovers from the beginning of the log"
            yield self._finding(
                0, f"{_NAMES[0]} {self._last_timestamp}, when the last message was stored", "zeros", meaning
            )
        yield from self._check_seal(self._content)
        yield from lost

    def _check_seal(self, content: bytes) -> Iterator[Finding]:
        """Check the seal, and that all other bytes are zero."""
        state = seal_state(content)
        if state is SealState.DAMAGED:
            meaning = "the next start treats it as a checkpoint of RocketMQ"
            yield self._finding(SEAL_POSITION, "a seal with a matching checksum, or zeros", "other bytes", meaning)
        rest = np.frombuffer(content, np.uint8).copy()
        rest[:NUMBERS_SIZE] = rest[SEAL_POSITION : SEAL_POSITION + SEAL_SIZE] = 0
        for position in np.flatnonzero(rest)[:1].tolist():
            found = f"{content[position]:#04x}"
            yield self._finding(position, "zeros outside the fields and the seal", found, "nothing reads it")

    def _expected(self, log_end: int, value: int, *, is_time: bool) -> str:
        """Return the expected value; empty if the found one is plausible."""
        if is_time:
            if value > self._last_timestamp:
                return f"not above {self._last_timestamp}, when the last message was stored"
            if value < self._first_timestamp:
                # The checkpoint may cover messages whose files are deleted.
                if value >= 0 and self._begin_offset:
                    return ""
                return f"0, or not below {self._first_timestamp}, when the first message was stored"
            return "" if self._is_unfinished else "0, or when some message was stored"
        if not 0 <= value <= log_end + _BEHIND_MAX_BYTES:
            return f"an offset not far above the log's end {log_end}"
        return "" if value > log_end or self._is_unfinished else "an offset where a message begins or ends"

    def _finding(self, position: int, expected: str, found: str, meaning: str) -> Finding:
        return Finding(Area.CHECKPOINT, self._path, position, expected, found, meaning, _REMEDY, self._is_unfinished)


def read_numbers(files: ReadOnlyFiles, path: str) -> dict[str, int] | None:
    """Return the numbers of a checkpoint by RocketMQ's names; None if there is no file, or it is too short."""
    content = files.read_bytes(path)
    return None if content is None else _numbers_of(content)


def _numbers_of(content: bytes) -> dict[str, int] | None:
    if len(content) < NUMBERS_SIZE:
        return None
    return dict(zip(_NAMES, decode_checkpoint(content), strict=False))
