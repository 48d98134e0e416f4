"""The input of a restore: the rows of an archive, or of a store, in log order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archive.archive import ARCHIVE_COLUMNS
from pipeline.columns.record_builder import NotLossless, missing_columns
from pipeline.common.errors import BadOption
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.reading.read_slice import read_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.lake.files import DataFile
    from pipeline.lake.lake import Lake
    from pipeline.log.store_view import StoreView

_BATCH_ROWS = 10_000
_UNKNOWN = (0, 1 << 63)


def lake_rows(lake: Lake, selection: Selection = EVERYTHING, log: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an archive in log order. Only files that overlap in the log are in memory together.

    Args:
        lake: lossless.
        selection: by topics, queue ranges, times and physical offsets; tags are ignored.
        log: name of the log; None: the lake has only one.

    Raises:
        pipeline.columns.record_builder.NotLossless: the lake lacks columns that records need.
        pipeline.common.errors.BadOption: the lake has several logs and `log` is None, or no log of that name.
        pipeline.lake.files.UnfitRows: a file is missing or damaged.
    """
    if missing := missing_columns(lake.schema):
        remedy = "Only archives, and lakes that were written with all columns, can be restored"
        raise NotLossless(f"lake {lake.root}", f"the columns {', '.join(missing)}", "a lake without them", remedy)
    wanted = selection.topics, selection.begin_ms, selection.end_ms
    files = [file for file in _files_of(lake, log) if file.may_hold(*wanted)]
    # A file whose offsets are not known is read first, and kept until all others have been compared with it.
    files.sort(key=lambda file: (file.physical or _UNKNOWN, file.path))
    waiting: pa.Table | None = None
    for place, file in enumerate(files):
        rows = _chosen(lake.read(file), selection)
        waiting = rows if waiting is None else pa.concat_tables([waiting, rows])
        if place + 1 < len(files):
            following = files[place + 1].physical or _UNKNOWN
            if following == file.physical or following[0] <= _first(waiting):
                continue
            is_done = pc.less(waiting["physicalOffset"], following[0])
            yield from _in_order(waiting.filter(is_done))
            waiting = waiting.filter(pc.invert(is_done))
    if waiting is not None:
        yield from _in_order(waiting)


def store_rows(store: StoreView, selection: Selection = EVERYTHING) -> Iterator[pa.RecordBatch]:
    """Yield the rows of another store, as `lake_rows` does; queue by queue if only some queues are selected.

    Raises:
        pipeline.common.errors.PipelineError: see `plan` and `read_slice`.
    """
    for part in plan(store, selection):
        yield from read_slice(part, ARCHIVE_COLUMNS, selection=selection, verify_crc=True)


def _files_of(lake: Lake, log: str | None) -> list[DataFile]:
    """Return the lake's files of one log."""
    by_log: dict[str, list[DataFile]] = {}
    for file in lake.files():
        by_log.setdefault(file.log or "", []).append(file)
    logs = sorted(by_log)
    if log is None and len(logs) > 1:
        raise BadOption("log", f"one of the logs of the lake: {', '.join(map(repr, logs))}", "none")
    if log is not None and log not in by_log:
        raise BadOption("log", f"one of the logs of the lake: {', '.join(map(repr, logs))}", repr(log))
    return by_log.get(log if log is not None else logs[0] if logs else "", [])


def _chosen(rows: pa.Table, selection: Selection) -> pa.Table:
    stored_ms = pc.floor(pc.divide(rows["storeTimestamp"].cast(pa.int64()), 1000))
    if selection.begin_ms is not None:
        rows, stored_ms = _both(rows, stored_ms, pc.greater_equal(stored_ms, selection.begin_ms))
    if selection.end_ms is not None:
        rows, stored_ms = _both(rows, stored_ms, pc.less(stored_ms, selection.end_ms))
    if selection.offset_range is not None:
        begin, end = selection.offset_range
        offsets = rows["physicalOffset"]
        rows = rows.filter(pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, end)))
    if selection.queue_ranges is not None and len(rows):
        rows = rows.filter(pa.array(_in_ranges(rows, selection)))
    return rows


def _both(rows: pa.Table, column: pa.ChunkedArray, mask: pa.ChunkedArray) -> tuple[pa.Table, pa.ChunkedArray]:
    return rows.filter(mask), column.filter(mask)


def _in_ranges(rows: pa.Table, selection: Selection) -> Sequence[bool]:
    ranges = selection.queue_ranges or {}
    topic = rows["topic"][0].as_py()
    places = zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True)
    return [
        (wanted := ranges.get((topic, queue_id))) is not None and wanted[0] <= offset < wanted[1]
        for queue_id, offset in places
    ]


def _first(rows: pa.Table) -> int:
    least = pc.min(rows["physicalOffset"]).as_py()
    return -1 if least is None else int(least)


def _in_order(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    if len(rows):
        yield from rows.sort_by("physicalOffset").combine_chunks().to_batches(_BATCH_ROWS)
