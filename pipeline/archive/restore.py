"""Puts messages of an archive, or of another store, into topics of running brokers.

The fields of a put are restored byte for byte: body, properties, flag, born timestamp, reconsume times, and sys_flag
except for the two IPv6 bits. The fields that a broker assigns are new:

| field | why |
| --- | --- |
| queue offset, physical offset | positions in the new log; the offset table maps old ones to new ones |
| store timestamp | it must not decrease within a log, because times are found by bisection |
| store host | a part of the message id, together with the physical offset |
| born host | the broker uses the address of the connection: the host of the restore |
| prepared transaction offset | 0, because it is a position in the old log |
| property CRC | it covers these fields; written if the broker is configured so |

`pipeline.archive.restore_store`, which writes a new store, also keeps those fields.

Messages are put in log order, all queues together, so the order of each queue is kept. A message whose UNIQ_KEY is in
the broker's dedupe window is not stored again; `exactly_once` also detects those that an earlier run has stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cluster.client.producer.batch import Encoded
from commitlog.record.properties import RawProperties
from pipeline.columns.record_builder import BORN_MS, NotLossless
from pipeline.columns.times import milliseconds
from pipeline.sink.log_rows import OutgoingRow
from pipeline.sink.log_writer import LogTarget, LogWriter, RowOrigin
from store.model.message import UNIQUE_KEY
from store.model.sys_flag import HOST_MASK

if TYPE_CHECKING:
    from cluster.client.outcomes import MessageAppended
    from pipeline.archive.offset_table import OffsetTable

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]
NEEDED: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "body",
    "propertiesRaw",
    "flag",
    "sysFlag",
    "reconsumeTimes",
    "bornTimestamp",
)
# With a rate: number of steps per second in which messages are sent.
_STEPS_PER_S: Final = 10


@dataclass(slots=True)
class RestorePlan:
    """How messages are restored.

    Attributes:
        topics: new names of topics; other topics keep their names.
        transform: changes or drops rows, before the renaming.
        rate: largest number of messages per second; None: as fast as the brokers accept them.
        is_queue_kept: keep queue numbers; else use the queues round-robin.
        is_dry: send nothing and count the messages.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    transform: Transform | None = None
    rate: float | None = None
    is_queue_kept: bool = True
    is_dry: bool = False


@dataclass(slots=True)
class Restored:
    """The result of a restore, or of a dry run.

    Attributes:
        rows: messages stored, or to be sent in a dry run.
        repeated_rows: messages that an earlier run had stored.
        size_bytes: of bodies and properties.
        by_queue: number of messages by original (topic, queue).
        first_ms, last_ms: range of their store times.
    """

    rows: int = 0
    repeated_rows: int = 0
    size_bytes: int = 0
    by_queue: Counter[tuple[str, int]] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int | None = None


def restore(
    batches: Iterable[pa.RecordBatch],
    target: LogTarget,
    plan: RestorePlan,
    table: OffsetTable | None = None,
    *,
    on_progress: Callable[[Restored], None] = lambda _: None,
) -> Restored:
    """Put messages into topics; return when all are committed.

    Args:
        batches: of `pipeline.archive.archived_rows`, in log order.
        target: the brokers; with `is_exactly_once`, a restarted restore with the same `target.topic`, topics and rows
            stores no message twice if each message has a unique UNIQ_KEY.
        plan: how to restore.
        table: receives the new place of each message; None: not recorded.
        on_progress: called with the result so far, after each batch.

    Raises:
        NotLossless: a column is missing.
        pipeline.sink.log_writer.WriteFailed: some messages were not stored, or the outcome is unknown; earlier ones are
            stored.
    """
    done = Restored()
    if plan.is_dry:
        for batch in _transformed(batches, plan):
            _count(done, batch)
            on_progress(done)
        done.rows = sum(done.by_queue.values())
        return done
    rows = ArchivedRows(plan, table)
    try:
        origin = RowOrigin("restore", 0, 0)
        with LogWriter(target, origin, rows=rows, on_stored=rows.stored, on_repeated=rows.repeated) as writer:
            for batch in _transformed(batches, plan):
                for part in _paced(batch, plan.rate):
                    writer.write(part)
                _count(done, batch)
                on_progress(done)
            written = writer.finish()
    finally:
        # Also after a failure, so that the table shows what was restored.
        if table is not None:
            table.close()
    done.rows = written.rows - written.repeated_rows
    done.repeated_rows = written.repeated_rows
    return done


class ArchivedRows:
    """Converts rows of an archive to messages, and records their outcome.

    Args:
        plan: how they are restored.
        table: receives their places.
    """

    def __init__(self, plan: RestorePlan, table: OffsetTable | None) -> None:
        self._plan = plan
        self._table = table
        self._row = 0
        self._sources: dict[int, tuple[str, int, int, int]] = {}

    def rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """Yield the messages of the next rows.

        Raises:
            NotLossless: a column is missing.
        """
        columns = _columns(batch)
        for topic, queue_id, queue_offset, offset, body, raw, flag, sys_flag, reconsumes, born in zip(
            *columns, strict=True
        ):
            row, self._row = self._row, self._row + 1
            if self._table is not None:
                self._sources[row] = (topic, queue_id, queue_offset, offset)
            unique_key = RawProperties(raw).find(UNIQUE_KEY) or ""
            message = Encoded(body, raw, flag, sys_flag & ~HOST_MASK, born, reconsumes)
            name = self._plan.topics.get(topic, topic)
            yield OutgoingRow(name, queue_id if self._plan.is_queue_kept else None, None, unique_key, message, row)

    def stored(self, rows: Sequence[int], places: Sequence[MessageAppended]) -> None:
        """Record the new places of messages."""
        if self._table is not None:
            self._table.add([(*self._sources.pop(row), place) for row, place in zip(rows, places, strict=True)])

    def repeated(self, rows: Sequence[int]) -> None:
        """Skip messages that an earlier run has stored and recorded."""
        for row in rows:
            self._sources.pop(row, None)


def _columns(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    for name in NEEDED:
        if name not in batch.schema.names or batch.column(name).null_count:
            if name == "bornTimestamp" and BORN_MS in batch.schema.names:
                continue
            remedy = "Restore from an archive, and let the function keep the columns that it does not change"
            raise NotLossless(f"column {name!r}", "a value in each row", "null, or no such column", remedy)
    if BORN_MS in batch.schema.names:
        born = batch.column(BORN_MS).to_pylist()
    else:
        born = milliseconds(batch.column("bornTimestamp")).tolist()
    return [*(batch.column(name).to_pylist() for name in NEEDED[:-1]), born]


def _transformed(batches: Iterable[pa.RecordBatch], plan: RestorePlan) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        changed = batch if plan.transform is None else plan.transform(batch)
        if changed.num_rows:
            yield changed


def _paced(batch: pa.RecordBatch, rate: float | None) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts, at most `rate` rows per second."""
    if rate is None:
        yield batch
        return
    step = max(1, int(rate / _STEPS_PER_S))
    began_s = time.monotonic()
    for begin in range(0, batch.num_rows, step):
        due_s = began_s + begin / rate
        if (wait_s := due_s - time.monotonic()) > 0:
            time.sleep(wait_s)
        yield batch.slice(begin, step)
    if (wait_s := began_s + batch.num_rows / rate - time.monotonic()) > 0:
        time.sleep(wait_s)


def _count(done: Restored, batch: pa.RecordBatch) -> None:
    queues = zip(batch.column("topic").to_pylist(), batch.column("queueId").to_pylist(), strict=True)
    done.by_queue.update(queues)
    done.size_bytes += batch.column("body").nbytes + batch.column("propertiesRaw").nbytes
    if "storeTimestamp" in batch.schema.names:
        stored = milliseconds(batch.column("storeTimestamp"))
        done.first_ms = int(min(stored.min(), done.first_ms if done.first_ms is not None else stored.min()))
        done.last_ms = int(max(stored.max(), done.last_ms if done.last_ms is not None else stored.max()))
