"""The part of a read for one task, from files or from a broker: the same Arrow batches from both.

A part is small and is sent to its task. The result depends only on the part and on `ReadSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pipeline.columns.plain_bodies import plain_bodies
from pipeline.columns.schema import DERIVED_NAMES
from pipeline.columns.waiting import sources_of, with_waiting
from pipeline.log.slice import Slice
from pipeline.reading.corrupt_policy import FAIL, CorruptPolicy
from pipeline.reading.read_slice import read_slice, reading_of
from pipeline.source.broker_range import PATIENCE_S, BrokerRange
from pipeline.source.fallback_reading import LOG_COLUMNS, QUEUE_COLUMNS, FallbackReading, Stopping
from pipeline.source.replica_fallback import NO_CHOICE, PartRange, Replicas, candidates

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.log.marks import Mark
    from pipeline.log.selection import Selection

# Reads that replace damaged data of another replica do not wait for a node.
_OTHER_PATIENCE_S = 5.0


class Part(NamedTuple):
    """The range that one task reads.

    Attributes:
        place: a slice of files, or a range of a broker's log.
        selection: of messages in it.
        marks: of the log, if another replica's directory may be read.
    """

    place: PartRange
    selection: Selection
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings that all tasks of a query share.

    Attributes:
        columns: of the native schema.
        verify_crc, on_corrupt, fail_on_data_loss: as in `pipeline.reading.read_slice.read_slice`.
        is_decompressing: decompress bodies that clients compressed.
        replicas: that may be read instead of the planned place.
        patience_s: seconds for which calls to a broker are retried.
    """

    columns: tuple[str, ...]
    verify_crc: bool = False
    on_corrupt: CorruptPolicy = FAIL
    fail_on_data_loss: bool = True
    is_decompressing: bool = False
    replicas: Replicas = NO_CHOICE
    patience_s: float = PATIENCE_S

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part, in log order or queue order.

        Raises:
            pipeline.common.errors.PipelineError: see `read_slice`, and `pipeline.source.chunk_client.BrokerLog.read`.
        """
        if not frozenset(DERIVED_NAMES).isdisjoint(self.columns):
            stored = replace(self, columns=sources_of(self.columns))
            return (with_waiting(batch, self.columns) for batch in stored.read(part))
        if self.is_decompressing and "body" in self.columns:
            plain = replace(self, columns=tuple(dict.fromkeys((*self.columns, "sysFlag"))), is_decompressing=False)
            return (plain_bodies(batch).select(self.columns) for batch in plain.read(part))
        if self.replicas.is_choice or (isinstance(part.place, BrokerRange) and "," in part.place.endpoints):
            return self._of_choice(part)
        return self._of_place(part.place, part.selection)

    def _of_place(self, place: PartRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        if isinstance(place, BrokerRange):
            return self._of_broker(place, selection)
        return read_slice(
            place,
            self.columns,
            selection=selection,
            verify_crc=self.verify_crc,
            on_corrupt=self.on_corrupt,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def _of_choice(self, part: Part) -> Iterator[pa.RecordBatch]:
        place = part.place
        begin, end = place.begin, place.end
        if isinstance(place, Slice) and place.is_queue:
            begin, end = place.begin_queue_offset, place.end_queue_offset
        names = tuple(dict.fromkeys((*self.columns, *(QUEUE_COLUMNS if place.topic else LOG_COLUMNS))))
        first = replace(self, columns=names, on_corrupt=Stopping(), fail_on_data_loss=True)
        other = replace(first, verify_crc=True, patience_s=_OTHER_PATIENCE_S)
        reading = FallbackReading(
            candidates(place, part.marks, self.replicas),
            place,
            begin,
            end,
            lambda place, is_other: (other if is_other else first)._of_place(place, part.selection),  # noqa: SLF001
            lambda place: self._of_place(place, part.selection),
            self.on_corrupt,
        )
        return (batch.select(self.columns) for batch in reading.batches())

    def _of_broker(self, broker_range: BrokerRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        # Imported only if needed: otherwise every Python process of Spark would load gRPC, also for reading files.
        from pipeline.source.broker_reading import BrokerReading  # noqa: PLC0415

        reading = reading_of(self.columns, selection, verify_crc=self.verify_crc, on_corrupt=self.on_corrupt)
        return BrokerReading(broker_range, reading, self.fail_on_data_loss, self.patience_s).batches()
