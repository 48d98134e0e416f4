"""The part of a read for one task, from files or from a broker: the same Arrow batches from both.

A part is small and is sent to its task. The result depends only on the part and on `ReadSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.record.compression import uncompressed_body
from pipeline.columns.schema import DERIVED_NAMES
from pipeline.columns.waiting import sources_of, with_waiting
from pipeline.reading.corrupt_policy import FAIL, CorruptPolicy
from pipeline.reading.read_slice import read_slice, reading_of
from pipeline.source.broker_range import PATIENCE_S, BrokerRange
from store.model.sys_flag import COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.log.selection import Selection
    from pipeline.log.slice import Slice


class Part(NamedTuple):
    """The range that one task reads.

    Attributes:
        place: a slice of files, or a range of a broker's log.
        selection: of messages in it.
    """

    place: Slice | BrokerRange
    selection: Selection


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings that all tasks of a query share.

    Attributes:
        columns: of the native schema.
        verify_crc, on_corrupt, fail_on_data_loss: as in `pipeline.reading.read_slice.read_slice`.
        is_decompressing: decompress bodies that clients compressed.
        is_nearest_first: of a broker's nodes, call the one on the task's host first.
        patience_s: seconds for which calls to a broker are retried.
    """

    columns: tuple[str, ...]
    verify_crc: bool = False
    on_corrupt: CorruptPolicy = FAIL
    fail_on_data_loss: bool = True
    is_decompressing: bool = False
    is_nearest_first: bool = False
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
        if isinstance(part.place, BrokerRange):
            return self._of_broker(part.place, part.selection)
        return read_slice(
            part.place,
            self.columns,
            selection=part.selection,
            verify_crc=self.verify_crc,
            on_corrupt=self.on_corrupt,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def _of_broker(self, broker_range: BrokerRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        # Imported only if needed: otherwise every Python process of Spark would load gRPC, also for reading files.
        from pipeline.source.broker_reading import BrokerReading  # noqa: PLC0415

        broker_range = broker_range.nearest_first() if self.is_nearest_first else broker_range
        reading = reading_of(self.columns, selection, verify_crc=self.verify_crc, on_corrupt=self.on_corrupt)
        return BrokerReading(broker_range, reading, self.fail_on_data_loss, self.patience_s).batches()


def plain_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decompress the bodies of a batch with the columns `body` and `sysFlag`; the other columns are unchanged.

    Raises:
        store.errors.StoreError: a body contradicts its flags.
    """
    flags = batch.column("sysFlag").to_numpy()
    is_compressed = flags & COMPRESSED != 0
    if not is_compressed.any():
        return batch
    bodies = batch.column("body")
    plain = [uncompressed_body(int(flags[row]), bodies[row].as_py()) for row in np.flatnonzero(is_compressed).tolist()]
    whole = pc.replace_with_mask(bodies, pa.array(is_compressed), pa.array(plain, pa.binary()))
    return batch.set_column(batch.schema.get_field_index("body"), "body", whole)
