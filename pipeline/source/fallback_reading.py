"""Reads one part from several replicas: the local one first, and damaged bytes of one replica from another.

If a replica lacks the part or loses it during the read, the next replica continues at the same position. Bytes that are
damaged in one replica are read from another and checked against their checksums. The policy
(`pipeline.reading.corrupt_policy`) applies only to bytes that are damaged in all replicas.

Of the log, exactly the damaged bytes are read from another replica, at the same position. Of a queue, a run of messages
is read; if no replica has the complete run, its halves are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pipeline.common.errors import DataLost, NoStore, PipelineError, StoreUnreadable
from pipeline.log.slice import Slice
from pipeline.reading.corrupt_policy import CorruptPolicy
from pipeline.source.replica_fallback import PartRange, ReadCandidate, clipped

if TYPE_CHECKING:
    from store.model.dispatch_batch import Skipped

_log = logging.getLogger(__name__)

# The columns from which the position in a part is computed.
LOG_COLUMNS: Final = ("physicalOffset", "storeSize")
QUEUE_COLUMNS: Final = ("queueOffset",)
# Number of messages of a queue that are read from another replica at once.
_RUN: Final = 64
# Errors after which the next replica is read. Errors of a broker are final: all of its nodes were called until the time
# limit.
_MISSING: Final = (DataLost, NoStore, StoreUnreadable)

# Called with a place, and whether it is read because another replica is damaged.
ReadPlace = Callable[[PartRange, bool], Iterator[pa.RecordBatch]]


class Damaged(Exception):  # a message to the caller; no user sees it
    """Bytes that hold no good record."""

    def __init__(self, skipped: Skipped, content: bytes) -> None:
        super().__init__(skipped)
        self.skipped = skipped
        self.content = content


class Stopping(CorruptPolicy):
    """Policy that stops reading at the first corrupt bytes."""

    def handle(self, skipped: Skipped, content: bytes | memoryview) -> None:
        """Raise `Damaged`."""
        raise Damaged(skipped, bytes(content))


@dataclass(slots=True)
class FallbackReading:
    """Reads one part.

    Attributes:
        candidates: in the order of use.
        planned: the place in the plan.
        position: the next offset to
        read: a physical offset, or a queue offset.
        end: of the part.
        read: yields the batches of a place, with the columns of the position; raises `Damaged`.
        give_up: yields the batches of the rest of the planned place; raises according to the query's options.
        on_corrupt: the query's policy.
    """

    candidates: Sequence[ReadCandidate]
    planned: PartRange
    position: int
    end: int
    read: ReadPlace
    give_up: Callable[[PartRange], Iterator[pa.RecordBatch]]
    on_corrupt: CorruptPolicy
    _places: dict[str, list[PartRange] | None] = field(default_factory=dict)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the part."""
        for candidate in self.candidates:
            places = None if candidate.is_spare else self._places_of(candidate)
            if places is None:
                continue
            try:
                yield from self._from(candidate, places, self.end)
            except _MISSING as error:
                _log.info("%s: %s; reading another replica", candidate.name, error)
            else:
                return
        for place in clipped([self.planned], self.position, self.end):
            yield from self.give_up(place)

    def _from(self, candidate: ReadCandidate, places: list[PartRange], end: int) -> Iterator[pa.RecordBatch]:
        while self.position < end:
            try:
                for place in clipped(places, self.position, end):
                    for batch in self.read(place, False):
                        self.position = self._end_of(batch)
                        yield batch
            except Damaged as damaged:
                if self.planned.topic:
                    after = min(self.position + _RUN, end)
                    yield from self._run(candidate, self.position, after)
                    self.position = after
                    continue
                skipped = damaged.skipped
                yield from self._from(candidate, places, skipped.offset)
                # An earlier damaged range may extend past this one, which was handled with it.
                if self.position <= skipped.offset:
                    yield from self._instead(candidate, damaged)
                    self.position = skipped.offset + skipped.size
            else:
                return

    def _places_of(self, candidate: ReadCandidate) -> list[PartRange] | None:
        if candidate.name not in self._places:
            self._places[candidate.name] = candidate.find()
        return self._places[candidate.name]

    def _end_of(self, batch: pa.RecordBatch) -> int:
        """Return the position after a batch that is not empty."""
        last = batch.num_rows - 1
        if self.planned.topic:
            return int(batch.column(QUEUE_COLUMNS[0])[last].as_py()) + 1
        return sum(int(batch.column(name)[last].as_py()) for name in LOG_COLUMNS)

    # ----------------------------------------------------------------------------------------------- what is damaged

    def _instead(self, candidate: ReadCandidate, damaged: Damaged) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a damaged range from other replicas."""
        skipped = damaged.skipped
        for other in self.candidates:
            if other is not candidate:
                batches = self._whole(other, skipped.offset, skipped.offset + skipped.size)
                if batches is not None:
                    self.on_corrupt.recovered(skipped, damaged.content, other.name)
                    yield from batches
                    return
        self.on_corrupt.handle(skipped, damaged.content)

    def _run(self, candidate: ReadCandidate, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield messages of a queue, some of which are damaged in the current replica."""
        damaged = None
        for other in [candidate, *(each for each in self.candidates if each is not candidate)]:
            try:
                batches = self._whole(other, begin, end, is_reported=other is candidate)
            except Damaged as found:
                damaged = found
                continue
            if batches is not None:
                if damaged is not None:
                    self.on_corrupt.recovered(damaged.skipped, damaged.content, other.name)
                yield from batches
                return
        if end - begin > 1:
            middle = (begin + end) // 2
            yield from self._run(candidate, begin, middle)
            yield from self._run(candidate, middle, end)
        elif damaged is not None:
            self.on_corrupt.handle(damaged.skipped, damaged.content)

    def _whole(
        self, candidate: ReadCandidate, begin: int, end: int, *, is_reported: bool = False
    ) -> list[pa.RecordBatch] | None:
        """Return a range from a replica; None: the replica has only a part of it, or it is damaged there.

        Raises: Damaged: the range is damaged, and `is_reported` is true.
        """
        places = self._places_of(candidate)
        parts = [] if places is None else clipped(places, begin, end)
        if sum(map(_length, parts)) != end - begin:
            return None
        try:
            batches = [batch for part in parts for batch in self.read(part, not is_reported)]
        except Damaged:
            if is_reported:
                raise
            return None
        except PipelineError as error:
            _log.info("%s: %s", candidate.name, error)
            return None
        return batches if not batches or self._end_of(batches[-1]) <= end else None


def _length(place: PartRange) -> int:
    if isinstance(place, Slice) and place.is_queue:
        return place.end_queue_offset - place.begin_queue_offset
    return place.end - place.begin
