"""Puts messages of an archive, or of another store, into topics of running brokers.

What a put carries stays byte for byte: body, properties, flag, born timestamp, reconsume times, and of sys_flag all but
the two bits that say how long hosts are. What a broker says itself is new:

| field | why |
| --- | --- |
| queue offset, physical offset | they are places; the offset table says what became of which |
| store timestamp | it must never go back within a log, for times are found by bisection |
| store host | with the physical offset it is the message id, by which the message is found there |
| born host | a broker takes it from the connection; so it is the host that restores |
| prepared transaction offset | 0: it is a place in the old log |
| property CRC | it covers all of these; written where the broker is set to |

`pipeline.archive.restore_store` keeps those too: it writes a new store instead.

Messages go in the order of the log, one run for all queues: the order of each queue stays. A message whose UNIQ_KEY the
broker still remembers is not stored again; `exactly_once` also recognises those that an earlier run has stored.
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
# With a rate: this many times a second, messages are let go.
_STEPS_PER_S: Final = 10


@dataclass(slots=True)
class RestorePlan:
    """How messages are restored.

    Attributes:
        topics: new names of topics; those that are not in it keep theirs.
        transform: changes or drops rows, before the names are changed.
        rate: messages a second at most; None: as fast as the brokers take them.
        is_queue_kept: messages go to queues of the same numbers; else queues are taken in turn.
        is_dry: nothing is sent: what would be is counted.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    transform: Transform | None = None
    rate: float | None = None
    is_queue_kept: bool = True
    is_dry: bool = False


@dataclass(slots=True)
class Restored:
    """What a restore did, or would do.

    Attributes:
        rows: messages that were stored; of a dry run, that would be sent.
        repeated_rows: that an earlier run had stored.
        size_bytes: of bodies and properties.
        by_queue: messages by (topic, queue) that they are restored from.
        first_ms, last_ms: between which they were stored.
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
        batches: of `pipeline.archive.archived_rows`, in the order of the log.
        target: the brokers; with `is_exactly_once`, a restore that is begun again under the same `target.topic`,
            topics and rows stores nothing twice, as long as each message has a UNIQ_KEY of its own.
        plan: how.
        table: receives the new place of each message; None: it is not recorded.
        on_progress: called with the work done so far, after each batch.

    Raises:
        NotLossless: a column is missing.
        pipeline.sink.log_writer.WriteFailed: messages were not stored, or perhaps not; those before are.
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
        # Also of a restore that fails: the table shows what was restored.
        if table is not None:
            table.close()
    done.rows = written.rows - written.repeated_rows
    done.repeated_rows = written.repeated_rows
    return done


class ArchivedRows:
    """Turns rows of an archive into messages, and notes what becomes of them.

    Args:
        plan: how they are restored.
        table: takes what became of them.
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
        """Record where messages are."""
        if self._table is not None:
            self._table.add([(*self._sources.pop(row), place) for row, place in zip(rows, places, strict=True)])

    def repeated(self, rows: Sequence[int]) -> None:
        """Forget messages that an earlier run has stored and recorded."""
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
    """Yield a batch in parts, no faster than this many rows a second."""
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
